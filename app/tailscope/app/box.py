"""A part of the latency heatmap: a stretch of arrivals and a range of times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from tailscope.app.timespan import instant
from tailscope.triage.stages import Flags, floats
from tailscope.triage.words import iso

MEASURES = ("total_seconds", "ttft_seconds")


@dataclass(frozen=True, slots=True)
class Box:
    """What was boxed.

    Attributes:
        start_ns: First arrival, UTC nanoseconds.
        end_ns: Last arrival.
        low: Least seconds.
        high: Most seconds.
        measure: Column of the seconds.
    """

    PARAMETER: ClassVar[str] = "box"

    start_ns: int
    end_ns: int
    low: float
    high: float
    measure: str = MEASURES[0]

    @classmethod
    def parse(cls, text: str) -> Box:
        """Read what ``str`` writes.

        Raises:
            ValueError: If the text is something else.
        """
        parts = text.split("~")
        if len(parts) != 5 or parts[4] not in MEASURES:
            raise ValueError(f"{text!r} is no selection")
        low, high = float(parts[2]), float(parts[3])
        if not 0 <= low <= high < math.inf:
            raise ValueError(f"{text!r} has no range of seconds")
        return cls(instant(parts[0]), instant(parts[1]), low, high, parts[4])

    def __str__(self) -> str:
        times = f"{iso(self.start_ns)}~{iso(self.end_ns)}"
        return f"{times}~{self.low:.4g}~{self.high:.4g}~{self.measure}"

    def inside(self, frame: pd.DataFrame) -> Flags:
        """Which requests lie in it."""
        arrived, seconds = frame["arrived_ns"].to_numpy(), floats(frame, self.measure)
        found: Flags = (arrived >= self.start_ns) & (arrived <= self.end_ns)
        return found & (seconds >= self.low) & (seconds <= self.high)
