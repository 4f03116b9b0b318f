"""A command of Tailscope that runs as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import urllib3

TAILSCOPE = (sys.executable, "-m", "tailscope.cli")
"""How a process runs the ``tailscope`` command of this installation."""

_GRACE = 5.0
_LOG_LINES = 12


class ChildError(Exception):
    """A process ended, or did not begin to answer; the text says which, and what it wrote last."""


class Child:
    """One process. What it writes goes to a file, and to the reader only if it fails.

    Args:
        name: What a reader calls it.
        command: Program and arguments.
        log: File for its output.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        self._pool = urllib3.PoolManager(retries=False, timeout=2.0)
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                # Ctrl-C reaches the parent alone, which ends its children in order.
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ChildError if the process has ended."""
        status = self._process.poll()
        if status is not None:
            ended = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise ChildError(f"the {self.name} ended with {ended}{self._last_lines()}")

    def answers(self, url: str) -> bool:
        """Return whether a URL of the process answers with 200."""
        try:
            return self._pool.request("GET", url).status == HTTPStatus.OK
        except urllib3.exceptions.HTTPError:
            return False

    def silent(self, url: str, seconds: float) -> ChildError:
        """Make the error for a process that did not answer in time."""
        return ChildError(
            f"the {self.name} did not answer {url} within {seconds:.0f} s{self._last_lines()}"
        )

    def ask_to_end(self) -> None:
        """Send SIGTERM to the process and to those that it started."""
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait for the end that was asked for; after 5 s, kill."""
        self._pool.clear()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        # A session of its own makes its process id the id of its group.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _last_lines(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "".join(f"\n  {line}" for line in lines[-_LOG_LINES:])


def _environment() -> dict[str, str]:
    """Keep the user's settings out: a child gets all of its own as flags."""
    return {name: text for name, text in os.environ.items() if not name.startswith("TAILSCOPE_")}
