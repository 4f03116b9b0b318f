"""The check for a real GPU runs: here on the fake, so that it works on the day there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakenvml.fixtures import fake
from tests.fakenvml.rig import ROOT, environment
from tests.fakenvml.state import State
from tests.gpu.check import smi_means

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


DMON = """\
# gpu    pwr  gtemp     sm    mem   mclk   pclk  smutil  smoccu  tensor    dram
# Idx      W      C      %      %    MHz    MHz   GPM:%   GPM:%   GPM:%   GPM:%
    0     70     31      0      0   2619    345       -       -       -       -
    0    650     60     99     42   2619   1980      88    31.5      22      71
    0    650     60     99     42   2619   1980      90    32.5      24      73
GPM metrics are not supported on GPU 1.
"""


def test_columns_of_nvidia_smi() -> None:
    first, second = {"sm_active": 0.90, "sm_occupancy": 0.325}, {"tensor_active": 0.24}
    assert smi_means(DMON) == pytest.approx({**first, **second, "dram_active": 0.73}, abs=0.011)
    assert smi_means("No devices were found\n") == {}


def test_without_a_driver_the_load_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.load", "compute", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 0:
        pytest.skip("there is a driver here")
    assert done.stderr.startswith("no load: ")
    assert "Traceback" not in done.stderr
