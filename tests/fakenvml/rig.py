"""The NVML source in a process of its own, on the fake library, with a clock that is turned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakenvml.page import Page
from tests.fakenvml.state import Number, State
from tests.process import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
UUID = "GPU-{:08x}-0000-4000-8000-000000000000"


def environment(library: Path, state: Path, trace: Path | None = None) -> dict[str, str]:
    """Return the environment of a process that is to load the fake library."""
    roots = ("exporter", "dashboards", "app", "alerts", ".")
    found = {
        **os.environ,
        "LD_LIBRARY_PATH": str(library),
        "FAKENVML_STATE": str(state),
        "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in roots),
    }
    return {**found, "FAKENVML_TRACE": str(trace)} if trace else found


class Rig:
    """One source. Time moves only by ``tick``.

    Args:
        library: Folder of the fake library.
        folder: For the state, the trace and the log.
        values: The state to begin with.
        interval: Seconds from one read to the next, as the source is told.
    """

    def __init__(
        self,
        library: Path,
        folder: Path,
        values: Mapping[str, Number] | None = None,
        *,
        interval: float = 1.0,
    ) -> None:
        self.now = 1000.0
        self.state = State(folder / "state", {"now": self.now, **(values or {})})
        self._trace = folder / "trace"
        self._trace.touch()
        self._log_path = folder / "log"
        self._interval = interval
        self._impatient = False
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fakenvml.player", str(interval)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=environment(library, self.state.path, self._trace),
                text=True,
            )

    def do(self, what: str, **more: float) -> Any:
        """Give one command; returns its answer."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": what, "now": self.now, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self.log
        return json.loads(line)

    def change(self, **values: Number | None) -> None:
        """Change the state from now on; ``__`` in a name stands for a dot."""
        self.turn(0.0, **values)

    def turn(self, seconds: float, **values: Number | None) -> None:
        """Turn the clock, with the state as it was, and change it then; NVML must be open."""
        self._set(seconds, values)
        self.do("poke")

    def _set(self, seconds: float | None, values: Mapping[str, Number | None]) -> None:
        self.now += self._interval if seconds is None else seconds
        dotted = {key.replace("__", "."): value for key, value in values.items()}
        self.state.set({"now": self.now, **dotted})

    def read(self) -> dict[str, str]:
        """Read once, without turning the clock."""
        return dict(self.do("read"))

    def tick(self, seconds: float | None = None, **values: Number | None) -> dict[str, str]:
        """Turn the clock, with the state as it was, change it then, and read."""
        self._set(seconds, values)
        return self.read()

    def hang(self, call: str, **values: Number | None) -> None:
        """Turn the clock, change the state so that a call hangs, and read until it is called.

        What hangs is not waited for long, neither by this read nor by a close from now on.
        """
        self._impatient = True
        self.clear()
        self.do("wait", answers=0.2, ends=0.7)
        self.tick(None, **values)
        self.wait(call)
        self.do("wait", answers=PATIENCE, ends=0.7)

    def let_go(self, **values: Number | None) -> None:
        """Change the state so that calls come back, and are waited for again."""
        self.change(**values)
        self.do("wait", answers=PATIENCE, ends=PATIENCE)

    def page(self) -> Page:
        """Return the page of metrics."""
        return Page(self.do("page"))

    def ups(self) -> dict[str, float]:
        """Return of each GPU whether it is up."""
        return {sample.labels["gpu"]: sample.value for sample in self.page().all("gpu_up")}

    def calls(self) -> list[str]:
        """Return the lines of the trace so far."""
        return self._trace.read_text().splitlines()

    def clear(self) -> None:
        """Begin a new trace."""
        os.truncate(self._trace, 0)

    def counts(self) -> Counter[str]:
        """Return how often each function was called."""
        return Counter(line.split()[0] for line in self.calls() if not line.startswith("!"))

    def wait(self, line: str, seconds: float = PATIENCE) -> None:
        """Wait until a line of the trace begins so.

        Raises:
            AssertionError: If none does in time.
        """
        until(
            lambda: any(call.startswith(line) for call in self.calls()),
            f"a call of {line}",
            seconds,
            pause=0.005,
        )

    @property
    def log(self) -> str:
        """What was logged."""
        return self._log_path.read_text()

    def end(self) -> list[str]:
        """Close the source and end the process; returns what it should not have done."""
        if self._process.poll() is None:
            self.do("close")
        self.kill()
        return [
            line
            for line in self.calls()
            # A thread that a read did not wait for may see one of the two clocks turned before
            # the other.
            if line.startswith("!") and not (self._impatient and "MetricsGet over" in line)
        ]

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
