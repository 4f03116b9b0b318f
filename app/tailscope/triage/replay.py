"""What would have been: the recorded load played again on the calibrated engine, changed.

Differences are taken between two plays, not between a play and the records: what the engine of the
play lacks, it lacks in both. A share is the part of the excess of the play that goes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tailscope.triage.calibration import Engine, delayed
from tailscope.triage.simulator import Load, Play, load, simulate
from tailscope.triage.step import StepCost
from tailscope.triage.work import Flags, Floats, Ints, Work

_T = TypeVar("_T")

MOST_LOSS = 0.10
"""A play that is further from the records than this says nothing."""

NEAR = 0.05
"""A play that is nearer than this is as good as the records."""

RATIO = (0.9, 1.1)
"""Seconds of the slow requests in the play, over those measured, that a play may have."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How near the play of the unchanged load is to the records.

    Attributes:
        loss: Seconds of |simulated - measured| over the seconds measured.
        ratio: Seconds of the slow requests, simulated over measured.
    """

    loss: float
    ratio: float

    @property
    def passed(self) -> bool:
        """Whether what the play predicts may be shown."""
        return self.loss < MOST_LOSS and RATIO[0] <= self.ratio <= RATIO[1]

    @property
    def near(self) -> bool:
        """Whether it is as good as the records."""
        return self.passed and self.loss < NEAR


@dataclass(frozen=True, slots=True)
class Saving:
    """What a change gives the slow requests.

    Attributes:
        seconds: Seconds less; negative if it makes them slower.
        excess: Seconds of excess that they had.
    """

    seconds: float
    excess: float

    @property
    def share(self) -> float:
        """Part of the excess that goes away."""
        return self.seconds / self.excess if self.excess > 0 else 0.0


def fidelity(work: Work, engine: Engine, slow: Flags) -> Fidelity:
    """How near the play of the unchanged load is to the records."""
    played = engine.play.done - work.arrived
    measured = float(work.total[slow].sum())
    return Fidelity(engine.loss, float(played[slow].sum()) / measured if measured > 0 else 1.0)


def without(work: Work, engine: Engine, removed: Flags) -> Play:
    """The play without some requests; NaN for these."""
    kept = np.flatnonzero(~removed)
    play = simulate(
        chosen(delayed(load(work), engine.overhead), kept), engine.cost, engine.limits, engine.speed
    )
    full = np.full((3, len(work)), np.nan)
    full[:, kept] = play.start, play.first, play.done
    return Play(full[0], full[1], full[2], play.preemptions)


def mended(work: Work, engine: Engine) -> Play:
    """The play on an engine that is never slow."""
    return simulate(delayed(load(work), engine.overhead), engine.cost, engine.limits)


def alone(work: Work, engine: Engine) -> Floats:
    """Seconds that each request would take alone on the calibrated engine, shape (n,).

    The fit of the costs takes a step to be linear in its work; the replay knows its floor.
    """
    cost, sent = engine.cost, load(work)
    computed = np.asarray(sent.computed, dtype=np.float64)
    steps = np.asarray(sent.output, dtype=np.float64) - 1.0
    size = min(float(engine.limits.tokens), max(float(computed.max(initial=1.0)), 1.0))
    whole, rest = np.divmod(computed, size)
    prefill = whole * _prompt_step(cost, size) + np.where(rest > 0, _prompt_step(cost, rest), 0.0)
    decode = steps * max(cost.floor, cost.base + cost.per_decode) + cost.per_read * work.reads
    found: Floats = engine.overhead + prefill + cost.per_pair * work.attention + decode
    return found


def _prompt_step(cost: StepCost, tokens: Floats | float) -> Floats:
    """Seconds of a step with these prompt tokens and nothing else."""
    found: Floats = np.maximum(cost.floor, cost.base + cost.per_prefill * np.asarray(tokens))
    return found


def saving(work: Work, engine: Engine, changed: Play, victims: Flags) -> Saving:
    """What a changed play gives the victims, against the play of the unchanged load.

    Args:
        work: The requests.
        engine: The calibrated engine.
        changed: The play to compare with.
        victims: Requests that are looked at.
    """
    before = engine.play.done[victims]
    after = changed.done[victims]
    excess = np.maximum(before - work.arrived[victims] - alone(work, engine)[victims], 0.0)
    return Saving(float((before - after).sum()), float(excess.sum()))


def chosen(sent: Load, which: Ints) -> Load:
    """A load with only some of its requests."""
    rows = which.tolist()

    def pick(values: Sequence[_T]) -> list[_T]:
        return [values[row] for row in rows]

    return replace(
        sent,
        arrived=pick(sent.arrived),
        computed=pick(sent.computed),
        cached=pick(sent.cached),
        output=pick(sent.output),
        group=None if sent.group is None else pick(sent.group),
        rank=None if sent.rank is None else pick(sent.rank),
    )
