"""What the command refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailscope import cli

MAIN = Path(__file__).parents[1] / "app" / "tailscope" / "app" / "main.py"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--port", "0"], "--port 0: it must be between 1 and 65535"),
        (["--data", str(MAIN)], "this is a file"),
        (["--address", "203.0.113.1"], "cannot listen on 203.0.113.1:8501"),
    ],
)
def test_the_command_refuses_what_cannot_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: list[str], said: str
) -> None:
    assert cli.main(["app", "--data", str(tmp_path), *flags]) == 2
    assert said in capsys.readouterr().err
