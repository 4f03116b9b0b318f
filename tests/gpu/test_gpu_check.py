"""The check for a real GPU runs: here on the fake, so that it works on the day there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fakenvml.fixtures import fake
from tests.fakenvml.rig import ROOT, environment
from tests.fakenvml.state import State

__all__ = ["fake"]


def test_it_runs_and_tells(fake: Path, tmp_path: Path) -> None:
    state = State(tmp_path / "state", {"gpu0.util": 0})
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.check", "--quick"],
        env=environment(fake, state.path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 1 GPUs answer" in done.stdout
    assert "gpu_sm_active_ratio" in done.stdout
    assert "nvmlDeviceGetFieldValues" in done.stdout.partition("call, ms")[2]
    assert "uid " in done.stdout.partition("without rights")[2]
