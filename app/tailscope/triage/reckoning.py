"""What each request took beyond what it would take alone, and which are slow: where all begins.

One fit for each engine, in parallel, and one threshold for all of them. A tenant whose own requests
fill the slow ones leaves no victims among them; for such a tenant the slowest requests of the
others are taken, by the same percentile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd

from tailscope.triage.epoch import Epoch, parted
from tailscope.triage.shared import engines
from tailscope.triage.slow import FLOOR_SECONDS, MIN_REQUESTS, SlowRule
from tailscope.triage.stages import STAGES, column, floats
from tailscope.triage.study import Costing, costing
from tailscope.triage.work import Flags, Floats, Ints, works

VICTIMS = 8
"""Fewer slow requests of others than this are none to judge a tenant by."""

_THREADS = 2
_USUAL = 95.0

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Part:
    """One engine with slow requests.

    Attributes:
        costing: Its requests with their costs.
        slow: Positions of the slow ones.
        slowest: For a tenant whose own requests fill the slow ones: those of the others that were
            slowed most, by tenant.
    """

    costing: Costing
    slow: Ints
    slowest: Mapping[int, Ints]

    @property
    def seconds(self) -> float:
        """Excess of the slow requests."""
        return float(self.costing.excess[self.slow].sum())


@dataclass(frozen=True, slots=True)
class Reckoning:
    """Costs of all requests of a frame; arrays have one row for each row of the frame.

    Attributes:
        origin_ns: UTC nanoseconds of time 0 of all that follows.
        costings: One for each engine, the one with the most requests first.
        parts: Engines with slow requests, the one with the most slow seconds first.
        threshold: What the rule came to: seconds above what a request takes alone for a percentile,
            seconds in all for seconds. None if there are too few requests.
        slow: Which rows are slow.
        excess: Seconds above what it would take alone; NaN for a row without a time.
        stages: The same by stage; NaN where nothing is known of a stage.
        epochs: Engines that came back as other ones.
    """

    origin_ns: int
    costings: tuple[Costing, ...]
    parts: tuple[Part, ...]
    threshold: float | None
    slow: Flags
    excess: Floats
    stages: Floats
    epochs: tuple[Epoch, ...] = ()


def reckon(
    frame: pd.DataFrame,
    rule: SlowRule,
    judged: Flags | None = None,
    changed_ns: Sequence[int] = (),
) -> Reckoning:
    """Fit the costs of every engine and find the slow requests.

    Args:
        frame: Requests with the record's columns; all of them count as load.
        rule: What slow means.
        judged: Which rows may count as slow; all if None.
        changed_ns: When engines were changed: costs are fitted anew from then on.
    """
    origin = int(frame["arrived_ns"].min()) if len(frame) else 0
    apart = in_parallel(parted, engines(works(frame, origin, changed_ns)))
    costings = in_parallel(costing, [work for parts, _ in apart for work in parts])
    costings.sort(key=lambda one: -len(one.work))
    chosen = np.ones(len(frame), dtype=bool) if judged is None else judged
    excess = np.full(len(frame), np.nan)
    total = np.full(len(frame), np.nan)
    tenant = np.full(len(frame), -1, dtype=np.int64)
    stages = np.full((len(frame), len(STAGES)), np.nan)
    for found in costings:
        rows = found.work.rows
        excess[rows], total[rows] = found.excess, found.work.total
        tenant[rows], stages[rows] = found.work.tenant, _stages(found)
    _blank(frame, stages)
    chosen = chosen & np.isfinite(excess)
    threshold = _threshold(excess[chosen], total[chosen], rule)
    measure = total if rule.seconds is not None else excess
    slow = chosen & (measure >= (np.inf if threshold is None else threshold))
    others = _crowded(excess, tenant, chosen, slow, rule.percentile or _USUAL)
    parts = [part for found in costings if (part := _part(found, slow, others)) is not None]
    parts.sort(key=lambda part: -part.seconds)
    epochs = tuple(one for _, found in apart for one in found)
    return Reckoning(origin, tuple(costings), tuple(parts), threshold, slow, excess, stages, epochs)


def in_parallel(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Results in the order of the items; NumPy lets other threads run meanwhile."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(work, items))


def _stages(found: Costing) -> Floats:
    work, alone = found.work, found.alone
    return np.column_stack(
        [
            work.frontend - alone.frontend,
            work.queue,
            work.prefill - alone.prefill,
            work.decode - alone.decode,
        ]
    )


def _blank(frame: pd.DataFrame, stages: Floats) -> None:
    """Forget what was assumed of stages of which nothing is known."""
    if not len(frame):
        return
    first = np.isfinite(floats(frame, "ttft_seconds"))
    for place, stage in enumerate(STAGES):
        known = np.isfinite(floats(frame, column(stage)))
        if stage != "frontend":
            known |= first
        stages[~known, place] = np.nan


def _threshold(excess: Floats, total: Floats, rule: SlowRule) -> float | None:
    if rule.seconds is not None:
        return rule.seconds if len(total) else None
    if len(excess) < MIN_REQUESTS:
        return None
    return max(_level(excess, rule.percentile or _USUAL), FLOOR_SECONDS)


def _level(excess: Floats, percentile: float) -> float:
    count = max(round((1.0 - percentile / 100.0) * len(excess)), 1)
    return float(np.partition(excess, -count)[-count])


def _crowded(
    excess: Floats, tenant: Ints, chosen: Flags, slow: Flags, percentile: float
) -> dict[int, Flags]:
    """For each tenant that fills the slow requests: the slowest of the others."""
    count = np.bincount(tenant[slow], minlength=1)
    found = {}
    for one in np.flatnonzero((count > 0) & (count > slow.sum() - VICTIMS)):
        rest = chosen & (tenant != one)
        if rest.any():
            least = max(_level(excess[rest], percentile), 1e-6)
            found[int(one)] = rest & (excess >= least)
    return found


def _part(found: Costing, slow: Flags, others: Mapping[int, Flags]) -> Part | None:
    rows = found.work.rows
    mine = np.flatnonzero(slow[rows])
    slowest = {one: np.flatnonzero(flags[rows]) for one, flags in others.items()}
    if not len(mine) and not any(len(other) for other in slowest.values()):
        return None
    return Part(found, mine, slowest)
