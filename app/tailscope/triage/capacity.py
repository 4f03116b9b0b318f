"""How much more load an engine takes before its latency passes an objective.

The recorded arrivals are moved closer together by a factor, or one tenant's requests are repeated,
and played on the calibrated engine. The knee is the load beyond which latency grows faster than
load: where the 95th percentile has doubled; an engine whose backlog grows already is beyond it. It
holds for the model, the engine and the mix of the records; after a change of any of them it has to
be found again. A limit of the engine that the records never reached does not show in them, so that
what is said of larger batches than they hold is an extrapolation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

import numpy as np

from tailscope.triage.calibration import Engine, delayed
from tailscope.triage.exposure import running
from tailscope.triage.replay import Fidelity, chosen
from tailscope.triage.simulator import Load, load, simulate
from tailscope.triage.step import UNLIMITED
from tailscope.triage.work import Floats, Work

_BACKLOG = 0.1
"""Part of the window that its last requests wait where the engine does not keep up."""

_LAST = 0.9

FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


@dataclass(frozen=True, slots=True)
class Point:
    """Latency at one load, seconds."""

    factor: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """Latency against load.

    Attributes:
        points: One for each factor, ascending.
        knee: Factor at which the 95th percentile has doubled; None if it never does.
        saturated: Whether the engine does not keep up with the load as it is; no knee then.
        seen: Highest factor at which no batch is larger than the largest of the records; None where
            the engine's limit is known from them.
        headroom: Highest factor at which the objective holds, between the points by straight line;
            None without an objective, 0 if it does not hold now.
    """

    points: tuple[Point, ...]
    knee: float | None
    saturated: bool
    seen: float | None
    headroom: float | None


def capacity(
    work: Work,
    engine: Engine,
    near: Fidelity,
    *,
    objective: float | None = None,
    tenant: int | None = None,
    factors: tuple[float, ...] = FACTORS,
) -> Capacity | None:
    """Play the load at several multiples of itself.

    Args:
        work: Requests that the engine was calibrated on.
        engine: The calibrated engine.
        near: How near its play is to the records.
        objective: Seconds that the 99th percentile of the total time may have.
        tenant: Only this tenant's load grows.
        factors: Multiples of the load.

    Returns:
        None if the play may not be trusted.
    """
    if not near.passed:
        return None
    found = [_played(work, engine, factor, tenant) for factor in factors]
    points = tuple(one.point for one in found)
    saturated = found[0].backlog > _BACKLOG
    doubled = [(point.factor, point.p95 / max(points[0].p95, 1e-9)) for point in points]
    headroom = None
    if objective is not None:
        headroom = _crossing([(p.factor, p.p99) for p in points], objective) or points[-1].factor
        headroom = 0.0 if points[0].p99 > objective else headroom
    return Capacity(
        points,
        None if saturated else _crossing(doubled, 2.0),
        saturated,
        _seen(work, engine, found),
        headroom,
    )


@dataclass(frozen=True, slots=True)
class _Played:
    """A play at one load.

    Attributes:
        point: Its latency.
        backlog: Median wait of the last requests, as a part of the window.
        batch: Most requests in the batch.
    """

    point: Point
    backlog: float
    batch: int


def _played(work: Work, engine: Engine, factor: float, tenant: int | None) -> _Played:
    sent, arrived = grown(work, factor, tenant)
    play = simulate(delayed(sent, engine.overhead), engine.cost, engine.limits, engine.speed)
    seconds = play.done - arrived
    last = arrived >= np.quantile(arrived, _LAST)
    wait = float(np.median((play.start - arrived)[last]))
    return _Played(
        Point(factor, float(np.quantile(seconds, 0.95)), float(np.quantile(seconds, 0.99))),
        wait / max(float(np.ptp(arrived)), 1e-9),
        _batch(play.start, play.done),
    )


def _batch(start: Floats, done: Floats) -> int:
    return int(running(start, done)[1].max(initial=0))


def _seen(work: Work, engine: Engine, found: list[_Played]) -> float | None:
    """Up to which load the batch is one of those of the records."""
    limits = engine.limits
    if limits.sequences < UNLIMITED or limits.cache < UNLIMITED:
        return None
    most = _batch(work.start, work.done)
    seen = [one.point.factor for one in takewhile(lambda one: one.batch <= most, found)]
    return seen[-1] if seen else found[0].point.factor


def grown(work: Work, factor: float, tenant: int | None) -> tuple[Load, Floats]:
    """The load at a multiple, with its arrivals."""
    if tenant is None:
        begin = float(work.arrived[0])
        arrived = begin + (work.arrived - begin) / factor
        return replace(load(work), arrived=arrived.tolist()), arrived
    own = np.flatnonzero(work.tenant == tenant)
    whole, rest = divmod(factor - 1.0, 1.0)
    # Evenly spread: those at which the sum of the rests passes a whole number.
    part = own[np.diff(np.floor(rest * np.arange(len(own) + 1) + 1e-9)) > 0]
    # Copies come at the times of the tenant's other requests, so that its bursts stay bursts.
    copies = [np.roll(own, turn + 1) for turn in range(int(whole))]
    source = np.concatenate([np.arange(len(work)), *copies, part]).astype(np.int64)
    when = np.concatenate([np.arange(len(work)), *([own] * int(whole)), part]).astype(np.int64)
    order = np.argsort(work.arrived[when], kind="stable")
    arrived = work.arrived[when][order]
    return replace(chosen(load(work), source[order]), arrived=arrived.tolist()), arrived


def _crossing(points: list[tuple[float, float]], level: float) -> float | None:
    """Where a curve first passes a level, by straight lines; None if it never does."""
    for (low, before), (high, after) in pairwise(points):
        if before <= level < after:
            return low + (high - low) * (level - before) / (after - before)
    return None
