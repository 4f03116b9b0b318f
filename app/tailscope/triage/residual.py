"""Was the engine itself slower than its work explains?

For each decode the fitted cost says what it should have taken with the company that it had. The
ratio of measured to expected seconds, as the median of all requests that decoded in a stretch of
time, stays near 1 whatever the load; an engine that is throttled, or shares its GPU with somebody
unseen, shows in all requests at once. A stretch counts as slow from a ratio of ``SLOW`` on, and
only beside others or as one of many: a single one may be a single long stall, and two that are slow
by a little a few stalls that chance put side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailscope.triage.step import Speed
from tailscope.triage.work import Flags, Floats, Ints, Work

STRETCH = 5.0
"""Seconds of a stretch; longer where there would be more than ``MOST``."""

MOST = 20_000
"""Stretches at most."""

SLOW = 1.3
CLEARLY = 1.5
"""Two stretches side by side are enough from this ratio on; of less it takes three."""

_OFTEN, _OFTEN_SHARE = 4, 0.1
"""Stretches apart from each other that are enough together, and their share of all."""

FEWEST = 4
"""Requests that a stretch needs to say anything."""

_FINE = 2.0
"""Seconds of the bins in and around slow stretches."""

_MOST_FINE = 200
_MOST_ROWS = 4000
_TIE = 0.05
_NOISE = 1.15
"""A bin that is less slow than this is not slow."""

_ROUNDS = 4
_SPREAD = 40
"""A request counts in at most this many stretches: a very long one is spread thin enough."""


@dataclass(frozen=True, slots=True)
class Residual:
    """How much slower than expected the engine was, over time; arrays of one element a stretch.

    Attributes:
        begin: When the first stretch begins, seconds.
        length: Seconds of a stretch.
        ratio: Measured over expected seconds; 1 where too few requests say anything.
        slow: Whether the engine counts as slow.
        speed: The factor over time in and around the slow stretches, finer than these.
    """

    begin: float
    length: float
    ratio: Floats
    slow: Flags
    speed: Speed

    @property
    def found(self) -> bool:
        """Whether the engine was slow at any time."""
        return bool(self.slow.any())

    @property
    def worst(self) -> float:
        """Second-highest ratio: the one that decides."""
        return float(np.sort(self.ratio)[-2]) if len(self.ratio) > 1 else 1.0

    @property
    def lasting(self) -> bool:
        """Whether it was still slow at the end."""
        known = np.flatnonzero(self.ratio != 1.0)
        return bool(len(known)) and bool(self.slow[known[-1]])

    def lost(self, begin: Floats, end: Floats) -> Floats:
        """Seconds of each interval that a healthy engine would not have needed.

        An engine that is r times slower does in a second what it usually does in 1/r.
        """
        if not self.speed.edges:
            return np.zeros(len(begin))
        edges = np.array(self.speed.edges)
        wasted = 1.0 - 1.0 / np.array(self.speed.factor)
        total = np.concatenate([[0.0], np.cumsum(wasted[:-1] * np.diff(edges))])
        found: Floats = np.interp(end, edges, total) - np.interp(begin, edges, total)
        return np.maximum(found, 0.0)


def residual(work: Work, expected: Floats) -> Residual:
    """Compare each decode with what it should have taken, stretch by stretch.

    Args:
        work: Requests of one engine.
        expected: Seconds that each decode should have taken, shape (n,).
    """
    use = np.flatnonzero((work.steps >= 4) & (work.decode > 0) & (expected > 0))
    begin = float(work.arrived.min())
    span = max(float(work.done.max()) - begin, STRETCH)
    length = max(STRETCH, span / MOST)
    count = int(np.ceil(span / length))
    ratio = np.ones(count)
    if len(use) >= FEWEST:
        rows, stretch, weight = _spread(work.first[use] - begin, work.decode[use], length, count)
        values = (work.decode / np.maximum(expected, 1e-9))[use][rows]
        ratio = _medians(stretch, values, weight, count)
    clearly = ratio >= CLEARLY
    slow = _lasting(ratio >= SLOW, 3) | _lasting(clearly, 2)
    if clearly.sum() >= max(_OFTEN, _OFTEN_SHARE * float((ratio != 1.0).sum())):
        slow |= clearly  # on and off, as clocks are under heat
    return Residual(begin, length, ratio, slow, _speed(work, expected, begin, length, slow))


def _lasting(high: Flags, least: int) -> Flags:
    """Stretches in runs of at least so many."""
    change = np.flatnonzero(np.diff(np.r_[False, high, False].astype(np.int8)))
    found = np.zeros(len(high), dtype=bool)
    for low, end in zip(change[::2], change[1::2], strict=True):
        found[low:end] = end - low >= least
    return found


def _speed(work: Work, expected: Floats, begin: float, length: float, slow: Flags) -> Speed:
    """The factor in and around the slow stretches, in bins of their own.

    With v the pace of the engine (1 is usual), a decode does its expected seconds of work in the
    time that it takes: expected = sum over bins of (seconds in the bin) * v. Solved for v by least
    squares that outliers cannot bend, with neighbouring bins held together a little.
    """
    edges: list[float] = []
    factor: list[float] = []
    for low, high in _zones(slow):
        zone = (begin + (low - 1) * length, begin + (high + 1) * length)
        bins = np.linspace(*zone, min(max(round((zone[1] - zone[0]) / _FINE), 4), _MOST_FINE) + 1)
        pace = _pace(work, expected, bins)
        slower = np.maximum(1.0 / np.maximum(pace, 0.02), 1.0)
        slower[slower < _NOISE] = 1.0
        edges += bins.tolist()
        factor += [*slower.tolist(), 1.0]
    return Speed(tuple(edges), tuple(factor))


def _zones(slow: Flags) -> list[tuple[int, int]]:
    """Runs of slow stretches as [low, high); runs that are near each other are one."""
    at = np.flatnonzero(slow)
    if not len(at):
        return []
    runs = np.split(at, np.flatnonzero(np.diff(at) > 3) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs]


def _pace(work: Work, expected: Floats, bins: Floats) -> Floats:
    first, done = work.first, work.done
    use = np.flatnonzero((work.steps >= 4) & (expected > 0) & (done > bins[0]) & (first < bins[-1]))
    use = use[np.argsort(first[use])][:: max(len(use) // _MOST_ROWS, 1)]
    inside = np.minimum(done[use, None], bins[None, 1:]) - np.maximum(
        first[use, None], bins[None, :-1]
    )
    inside = np.maximum(inside, 0.0)
    # What lies outside of the bins went at the usual pace.
    work_left = expected[use] - np.maximum(work.decode[use] - inside.sum(axis=1), 0.0)
    weight = 1.0 / np.maximum(work.decode[use], 0.1)
    count = len(bins) - 1
    tied = np.diff(np.eye(count), axis=0) * _TIE * np.sqrt(max(len(use), 1) / count)
    trust = np.ones(len(use))
    pace = np.ones(count)
    for _ in range(_ROUNDS):
        scale = weight * np.sqrt(trust)
        matrix = np.concatenate([inside * scale[:, None], tied])
        target = np.concatenate([work_left * scale, np.zeros(count - 1)])
        pace = np.linalg.lstsq(matrix, target, rcond=None)[0]
        error = np.abs(work_left - inside @ pace) * weight
        bound = 2.0 * float(np.median(error)) if len(error) else 0.0
        trust = np.minimum(1.0, bound / np.maximum(error, 1e-12)) if bound > 0 else trust
    found: Floats = np.clip(pace, 0.0, 1.5)
    return found


def _spread(first: Floats, seconds: Floats, length: float, count: int) -> tuple[Ints, Ints, Floats]:
    """Requests over the stretches in which they decoded, weighted by the share of their time."""
    low = np.clip((first / length).astype(np.int64), 0, count - 1)
    high = np.clip(((first + seconds) / length).astype(np.int64), 0, count - 1)
    rows, stretch, weight = [], [], []
    for offset in range(int(min((high - low).max(), _SPREAD)) + 1):
        here = np.flatnonzero(low + offset <= high)
        at = low[here] + offset
        inside = np.minimum(first[here] + seconds[here], (at + 1) * length) - np.maximum(
            first[here], at * length
        )
        rows.append(here)
        stretch.append(at)
        weight.append(np.maximum(inside, 0.0) / seconds[here])
    return np.concatenate(rows), np.concatenate(stretch), np.concatenate(weight)


def _medians(stretch: Ints, values: Floats, weight: Floats, count: int) -> Floats:
    """Weighted median of the values of each stretch; 1 where there are too few."""
    order = np.lexsort((values, stretch))
    stretch, values, weight = stretch[order], values[order], weight[order]
    number = np.bincount(stretch, minlength=count)
    total = np.bincount(stretch, weights=weight, minlength=count)
    before = np.concatenate([[0.0], np.cumsum(total)[:-1]])
    reached = np.cumsum(weight) - before[stretch] >= 0.5 * total[stretch] - 1e-12
    hit = np.flatnonzero(reached)
    found, place = np.unique(stretch[hit], return_index=True)
    medians = np.ones(count)
    medians[found] = values[hit[place]]
    medians[(number < FEWEST) | (total < 1.0)] = 1.0
    return medians
