"""Runs the real NVML source on the fake library, told by lines of JSON what to do.

A process of its own, for a process can load one ``libnvidia-ml.so.1`` only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from typing import Any

import psutil
import pynvml

from tailscope.exporter.exposition import render
from tailscope.exporter.health import SourceError
from tailscope.exporter.sources.nvml import fleet
from tailscope.exporter.sources.nvml.source import NvmlSource
from tailscope.records.samples import Sample

PATIENCE = 20.0
"""For what the slowest machine takes, in seconds."""


class Player:
    """One source, whose clock stands still between two commands."""

    def __init__(self, interval: float) -> None:
        self._now = 0.0
        self._samples: list[Sample] = []
        self._source = NvmlSource(
            interval=interval,
            longest=3 * interval,
            keep=self._samples.extend,
            clock=lambda: self._now,
            xid_wait=0.005,
        )
        self.wait(PATIENCE, PATIENCE)

    def do(self, command: dict[str, Any]) -> Any:
        """Do one command."""
        self._now = command.pop("now", self._now)
        return getattr(self, command.pop("do"))(**command)

    def wait(self, answers: float, ends: float) -> None:
        """Set how long a read waits for answers, and a close for the end of calls, in seconds."""
        self._source._fleet._patience = answers
        fleet.CLOSE_SECONDS = ends

    def read(self) -> dict[str, str]:
        """Read once."""
        try:
            return {"message": self._source.read()}
        except SourceError as error:
            return {"reason": error.reason, "message": str(error)}

    def poke(self) -> None:
        """Make the library look at its state."""
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlSystemGetDriverVersion()

    def page(self) -> str:
        """Write the exposition."""
        return render([self._source.lines(True)], None, openmetrics=False).decode()

    def samples(self) -> list[Sample]:
        """Return what went into the store since the last time."""
        found = list(self._samples)
        self._samples.clear()
        return found

    def uuids(self) -> list[list[str]]:
        """Return the GPUs that were read, and those with GPM."""
        return [sorted(self._source.boards()), sorted(self._source.activities())]

    def usage(self) -> dict[str, int]:
        """Return what the process uses."""
        process = psutil.Process()
        return {
            "rss": process.memory_info().rss,
            "fds": process.num_fds(),
            "threads": threading.active_count(),
        }

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def main() -> None:
    """Do what each line of the standard input says, and answer each with a line."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    player = Player(float(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(player.do(json.loads(line))), flush=True)
    # A thread may be inside a call that never returns.
    os._exit(0)


if __name__ == "__main__":
    main()
