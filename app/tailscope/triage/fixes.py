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
        lost: Requests that are cut short, or give up.
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
    victims = ~trial.paying & trial.kept & ~case.suspected
    still = trial.paying & trial.kept
    return Fix(
        name=trial.name,
        change=trial.change,
        config=trial.config,
        before=quantiles(before[victims]),
        after=quantiles(after.seconds[victims]),
        payers=trial.payers,
        payers_before=quantiles(before[trial.paying]) if trial.paying.any() else None,
        payers_after=quantiles(after.seconds[still]) if still.any() else None,
        lost=after.gave_up + trial.cut,
    )


@dataclass(frozen=True, slots=True)
class _After:
    """Seconds of each request with a change; NaN for those that are gone from this engine."""

    seconds: Floats
    gave_up: int


def _seconds(case: Case, trial: Trial) -> _After:
    work, engine = case.work, case.engine
    rows = np.flatnonzero(trial.kept)
    after = np.full(len(work), np.nan)
    gave_up = 0
    for turn in range(trial.replicas):
        mine = rows[turn :: trial.replicas]
        found = simulate(chosen(trial.sent, mine), engine.cost, trial.limits, engine.speed)
        gone = np.isnan(found.start)
        # A request that gives up has waited for as long as its patience lasted.
        after[mine] = np.where(gone, trial.sent.patience, found.done - work.arrived[mine])
        gave_up += int(gone.sum())
    return _After(after, gave_up)


def _hedged(case: Case, trial: Trial) -> _After:
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
    after = took[: len(work)]
    after[late] = np.minimum(after[late], delay + took[len(work) :])
    return _After(after, 0)


def quantiles(seconds: Floats) -> Quantiles:
    """Percentiles of some requests; zeros if there are none."""
    if not len(seconds):
        return Quantiles(0.0, 0.0, 0.0)
    return Quantiles(*(float(np.quantile(seconds, level)) for level in LEVELS))
