"""What counters rose by between the reads of a GPU.

The store holds no counter before its first step: where the GPU was read and a counter is not there,
it stood at 0. Where nothing was read, nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailscope.triage.hardware import Span
from tailscope.triage.stages import Floats

Times = npt.NDArray[np.int64]

GAP_INTERVALS = 5
"""A time of more than so many usual intervals between two reads is a gap: nobody watched."""

MIN_GAP_NS = 5 * 10**9
"""Nor is a shorter time than this a gap: a read may be late."""


@dataclass(frozen=True, slots=True)
class Reads:
    """When a GPU was read.

    Attributes:
        times: UTC nanoseconds, rising.
        gap_ns: A longer time than this between two of them was not watched.
    """

    times: Times
    gap_ns: int

    @classmethod
    def of(cls, times: Times) -> Reads:
        """Find out what a gap is."""
        times = np.unique(times)
        usual = int(np.median(np.diff(times))) if len(times) > 1 else 0
        return cls(times, max(GAP_INTERVALS * usual, MIN_GAP_NS))

    def watched(self, start_ns: int, end_ns: int) -> float:
        """Seconds of a time that lie between reads, without the gaps."""
        clipped = np.diff(np.clip(self.times, start_ns, end_ns))
        return float(clipped[np.diff(self.times) <= self.gap_ns].sum() / 1e9)


def steps(series: pd.DataFrame, reads: Reads) -> pd.DataFrame:
    """What one counter rose by; a counter that went back began anew at 0.

    Args:
        series: ``time_ns`` and ``value`` of one series.
        reads: When its GPU was read.

    Returns:
        ``start`` and ``end``, UTC nanoseconds, of each step between two reads; ``rise``; and
        ``gap``, whether there was a gap in it. Steps without a rise, and the first value of all,
        before which nothing is known, are left out.
    """
    ordered = series.sort_values("time_ns", kind="stable")
    end = ordered["time_ns"].to_numpy(dtype=np.int64)
    value = ordered["value"].to_numpy(dtype=np.float64)
    before = np.concatenate([[-1], end[:-1]])
    place = np.searchsorted(reads.times, end, "left") - 1
    read = np.where(place >= 0, reads.times[np.maximum(place, 0)] if len(reads.times) else -1, -1)
    absent = read > before
    start = np.where(absent, read, before)
    earlier = np.where(absent, 0.0, np.concatenate([[0.0], value[:-1]]))
    rise = np.where(value >= earlier, value - earlier, value)
    found = pd.DataFrame(
        {"start": start, "end": end, "rise": rise, "gap": end - start > reads.gap_ns}
    )
    return found[(found["start"] >= 0) & (found["rise"] > 0)].reset_index(drop=True)


def held(rises: pd.DataFrame, start_ns: int, end_ns: int) -> pd.DataFrame:
    """Steps of a counter of seconds, cut to a time.

    A rise that the step has no room for is no rise, but a count of a time that was not watched;
    over a gap nobody knows when it was.

    Args:
        rises: What ``steps`` returns.
        start_ns: Begin of the time.
        end_ns: Its end.
    """
    length = (rises["end"] - rises["start"]) / 1e9
    known = rises[~rises["gap"] & (rises["rise"] <= 2 * length + 1)]
    start, end = (known[name].clip(start_ns, end_ns) for name in ("start", "end"))
    whole = (known["end"] - known["start"]) / 1e9
    inside = (end - start) / 1e9
    cut = known.assign(start=start, end=end, rise=np.minimum(known["rise"], whole) * inside / whole)
    return cut[cut["rise"] > 0].reset_index(drop=True)


def spans(rises: pd.DataFrame) -> tuple[Span, ...]:
    """Join the steps that follow each other."""
    if rises.empty:
        return ()
    start, end, rise = (rises[name].to_numpy() for name in ("start", "end", "rise"))
    first = np.flatnonzero(np.concatenate([[True], start[1:] > end[:-1]]))
    last = np.concatenate([first[1:], [len(rises)]]) - 1
    sums = np.add.reduceat(rise, first)
    return tuple(
        Span(int(begin), int(until), float(seconds))
        for begin, until, seconds in zip(start[first], end[last], sums, strict=True)
    )


def within(parts: tuple[Span, ...], moments: Floats) -> Floats:
    """Seconds of spans that lie before each moment, UTC nanoseconds: O(n log n).

    Args:
        parts: Spans that do not overlap, oldest first.
        moments: When to look.
    """
    edges = np.array([edge for span in parts for edge in (span.start_ns, span.end_ns)])
    sums = np.cumsum([span.seconds for span in parts])
    heights = np.column_stack([np.r_[0.0, sums[:-1]], sums]).ravel()
    return np.asarray(np.interp(moments, edges, heights), dtype=np.float64)
