"""Simple changes, each judged by playing the recorded load again with the change made.

Most textbook fixes do nothing on most loads, and some are disasters: halving the batch can double
the tail. So nothing is recommended without a play, nothing is played unless the unchanged play is
near the records, and the price is shown beside the gain: what those who pay for it get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tailscope.triage.replay import Fidelity, chosen
from tailscope.triage.simulator import simulate
from tailscope.triage.trials import Case, Trial, trials
from tailscope.triage.work import Floats

WORTH = 0.05
"""A fix is worth showing if it lowers the victims' p99 by this share."""

LEVELS = (0.50, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds from arrival to the last token of a group of requests."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Fix:
    """A change and what it would have done.

    Attributes:
        name: Short name.
        change: What to change, as a sentence.
        config: Text for the engine or the gateway, by its name.
        before: Victims as they were, in the play.
        after: Victims with the change.
        payers: Who pays for it, in words.
        payers_before: These, as they were; None if nobody pays.
        payers_after: These, with the change; None where they are gone from this engine.
        lost: Requests that are cut short, are refused, or give up.
    """

    name: str
    change: str
    config: Mapping[str, str]
    before: Quantiles
    after: Quantiles
    payers: str
    payers_before: Quantiles | None
    payers_after: Quantiles | None
    lost: int

    @property
    def helps(self) -> bool:
        """Whether it lowers the victims' p99 enough to be worth showing."""
        return self.gain >= WORTH

    @property
    def gain(self) -> float:
        """Share by which the victims' p99 falls; negative if it rises."""
        return 1.0 - self.after.p99 / self.before.p99 if self.before.p99 > 0 else 0.0


def fixes(case: Case, near: Fidelity) -> list[Fix]:
    """Play every change.

    Args:
        case: The engine and its requests.
        near: How near the unchanged play is to the records.

    Returns:
        All of them, the one that lowers the victims' p99 most first; none if the play may not be
        trusted.
    """
    if not near.passed:
        return []
    played = [play(case, trial) for trial in trials(case)]
    return sorted(played, key=lambda fix: -fix.gain)


def play(case: Case, trial: Trial) -> Fix:
    """Play one change."""
    after = _hedged(case, trial) if trial.hedge is not None else _seconds(case, trial)
    before = case.engine.play.done - case.work.arrived
    gave_up = trial.kept & np.isnan(after)
    paying = trial.paying | gave_up
    victims = ~paying & trial.kept & ~case.suspected
    still = trial.paying & trial.kept & ~gave_up
    return Fix(
        name=trial.name,
        change=trial.change,
        config=trial.config,
        before=quantiles(before[victims]),
        after=quantiles(after[victims]),
        payers=trial.payers,
        payers_before=quantiles(before[paying]) if paying.any() else None,
        payers_after=quantiles(after[still]) if still.any() else None,
        lost=int(gave_up.sum()) + trial.cut,
    )


def _seconds(case: Case, trial: Trial) -> Floats:
    """Seconds of each request with a change; NaN for those that left this engine, or gave up."""
    work, engine = case.work, case.engine
    rows = np.flatnonzero(trial.kept)
    after = np.full(len(work), np.nan)
    found = simulate(chosen(trial.sent, rows), engine.cost, trial.limits, engine.speed)
    after[rows] = found.done - work.arrived[rows]
    return after


def _hedged(case: Case, trial: Trial) -> Floats:
    """Requests that are late for their first token are sent to another engine, too.

    The other engine has the same load at another time: half the window later, and what would come
    after its end at its beginning. So each engine gets as many second copies as it gives away, and
    one play stands for both. Copies that are no longer wanted are not taken back.
    """
    work, engine, delay = case.work, case.engine, trial.hedge or 0.0
    late = np.flatnonzero(engine.play.first - work.arrived > delay)
    begin, span = float(work.arrived[0]), float(np.ptp(work.arrived)) or 1.0
    copied = begin + (work.arrived[late] + delay - begin + span / 2.0) % span
    source = np.concatenate([np.arange(len(work)), late])
    arrived = np.concatenate([work.arrived, copied])
    order = np.argsort(arrived, kind="stable")
    overhead = engine.overhead
    sent = replace(chosen(trial.sent, source[order]), arrived=(arrived[order] + overhead).tolist())
    found = simulate(sent, engine.cost, trial.limits, engine.speed)
    took = np.empty(len(arrived))
    took[order] = found.done - arrived[order]
    after: Floats = took[: len(work)]
    after[late] = np.minimum(after[late], delay + took[len(work) :])
    return after


def quantiles(seconds: Floats) -> Quantiles:
    """Percentiles of some requests; zeros if there are none."""
    if not len(seconds):
        return Quantiles(0.0, 0.0, 0.0)
    return Quantiles(*(float(np.quantile(seconds, level)) for level in LEVELS))
