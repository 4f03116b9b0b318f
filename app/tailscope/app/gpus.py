"""What the GPUs went through, from the samples that a store holds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import pandas as pd

from tailscope.triage.gpu import LOOKBACK_NS, METRICS, examine, period
from tailscope.triage.hardware import Gpu
from tailscope.triage.scope import Scope

LONGEST_NS = 24 * 3600 * 10**9
"""Of a longer time only the end is looked at."""

MAX_SAMPLES = 400_000
"""Nor at more samples than about this: eight GPUs write some 300,000 an hour."""

_FIRST_NS = 1800 * 10**9
_MIN_NS = 60 * 10**9


class Samples(Protocol):
    """Something that samples can be read from: a store's reader, or several sources as one."""

    def samples(
        self, metrics: Iterable[str], start_ns: int = ..., end_ns: int = ...
    ) -> pd.DataFrame:
        """Samples of metrics in a time, oldest first."""


def examined(reader: Samples, frame: pd.DataFrame, scope: Scope) -> tuple[Gpu, ...]:
    """What the GPUs of a store went through while the requests of a scope ran.

    Args:
        reader: The store.
        frame: Requests.
        scope: Whose time window counts.

    Returns:
        Nothing where the store has no samples of GPUs.

    Raises:
        ReaderError: If the store cannot be read.
    """
    bounds = period(frame, scope)
    if bounds is None:
        return ()
    samples, start = _latest(reader, *bounds)
    return examine(samples, start, bounds[1])


def _latest(reader: Samples, start_ns: int, end_ns: int) -> tuple[pd.DataFrame, int]:
    """The latest samples of a time, as many as is bearable, and where they begin.

    They are read backwards in pieces, each twice as long as the one before, or as long as there is
    room for at the rate at which samples came so far.
    """
    now = time.time_ns()
    start_ns = max(start_ns, min(end_ns, now) - LONGEST_NS)
    low = max(start_ns, min(end_ns, now) - _FIRST_NS)
    pieces, high, room = [], end_ns, MAX_SAMPLES
    while True:
        pieces.append(reader.samples(METRICS, low, high))
        room -= len(pieces[-1])
        length = min(high, now) - low
        rate = len(pieces[-1]) / length if length > 0 else 0.0
        longest = min(2 * length, int(room / rate)) if rate else 2 * length
        if low <= start_ns or longest < _MIN_NS:
            break
        low, high = max(start_ns, low - longest), low
    # At its first moment counters already stood somewhere.
    before = reader.samples(METRICS, max(low - LOOKBACK_NS, 0), low)
    return pd.concat([before, *reversed(pieces)], ignore_index=True), low
