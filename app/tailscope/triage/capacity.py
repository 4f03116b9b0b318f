"""How much more load an engine takes before its latency passes an objective.

The recorded arrivals are moved closer together by a factor, or one tenant's requests are thinned or
repeated, and played on the calibrated engine. The knee is the load beyond which latency grows
faster than load: where the 95th percentile has doubled. It holds for the model, the engine and the
mix of the records; after a change of any of them it has to be found again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tailscope.triage.calibration import Engine, delayed
from tailscope.triage.replay import Fidelity
from tailscope.triage.simulator import Load, load, simulate
from tailscope.triage.work import Floats, Work

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
        headroom: Highest factor at which the objective holds, between the points by straight line;
            None without an objective, 0 if it does not hold now.
    """

    points: tuple[Point, ...]
    knee: float | None
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
    points = tuple(_point(work, engine, factor, tenant) for factor in factors)
    doubled = [(point.factor, point.p95 / max(points[0].p95, 1e-9)) for point in points]
    headroom = None
    if objective is not None:
        headroom = _crossing([(p.factor, p.p99) for p in points], objective) or points[-1].factor
        headroom = 0.0 if points[0].p99 > objective else headroom
    return Capacity(points, _crossing(doubled, 2.0), headroom)


def _point(work: Work, engine: Engine, factor: float, tenant: int | None) -> Point:
    sent, arrived = _grown(work, factor, tenant)
    play = simulate(delayed(sent, engine.overhead), engine.cost, engine.limits, engine.speed)
    seconds = play.done - arrived
    return Point(factor, float(np.quantile(seconds, 0.95)), float(np.quantile(seconds, 0.99)))


def _grown(work: Work, factor: float, tenant: int | None) -> tuple[Load, Floats]:
    """The load at a multiple, with its arrivals."""
    sent = load(work)
    if tenant is None:
        begin = float(work.arrived[0])
        arrived = begin + (work.arrived - begin) / factor
        return replace(sent, arrived=arrived.tolist()), arrived
    own = np.flatnonzero(work.tenant == tenant)
    whole = int(factor) - 1
    # Copies come at the times of the tenant's other requests, so that its bursts stay bursts.
    extra = [np.roll(own, shift + 1) for shift in range(whole)]
    part = own[:: max(round(1.0 / max(factor - int(factor), 1e-9)), 1)]
    extra += [part] if factor > int(factor) else []
    source = np.concatenate([np.arange(len(work)), *extra]).astype(np.int64)
    when = np.concatenate(
        [np.arange(len(work)), *([own] * whole), *([part] if factor > int(factor) else [])]
    ).astype(np.int64)
    order = np.argsort(work.arrived[when], kind="stable")
    source, arrived = source[order].tolist(), work.arrived[when][order]
    return (
        Load(
            arrived=arrived.tolist(),
            computed=[sent.computed[row] for row in source],
            cached=[sent.cached[row] for row in source],
            output=[sent.output[row] for row in source],
        ),
        arrived,
    )


def _crossing(points: list[tuple[float, float]], level: float) -> float | None:
    """Where a curve first passes a level, by straight lines; None if it never does."""
    for (low, before), (high, after) in pairwise(points):
        if before <= level < after:
            return low + (high - low) * (level - before) / (after - before)
    return None
