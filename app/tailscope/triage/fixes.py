"""Simple changes, each judged by playing the recorded load again with the change made.

Most textbook fixes do nothing on most loads, and some are disasters: halving the batch can double
the tail. So nothing is recommended without a play, nothing is played unless the unchanged play is
near the records, and the price is shown beside the gain: what those who pay for it get.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tailscope.triage.calibration import Engine, delayed
from tailscope.triage.lift import CACHE_DROP, Change
from tailscope.triage.replay import Fidelity, chosen
from tailscope.triage.simulator import Load, load, simulate
from tailscope.triage.step import UNLIMITED, Limits
from tailscope.triage.work import Flags, Floats, Work

WORTH = 0.05
"""A fix is worth showing if it lowers the victims' p99 by this share."""

LEVELS = (0.50, 0.95, 0.99)
_AGEING = 20.0
"""Seconds of waiting that outweigh a second of own work, where short jobs go first."""

_OUTPUT, _INPUT = 512, 4096


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
    config: dict[str, str]
    before: Quantiles
    after: Quantiles
    payers: str
    payers_before: Quantiles | None
    payers_after: Quantiles | None
    lost: int

    @property
    def gain(self) -> float:
        """Share by which the victims' p99 falls; negative if it rises."""
        return 1.0 - self.after.p99 / self.before.p99 if self.before.p99 > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A change to play.

    Attributes:
        name: Short name.
        change: What to change.
        config: Text for the engine or the gateway, by its name.
        sent: The load with the change.
        limits: The engine's limits with the change.
        kept: Requests that still come to this engine.
        paying: Requests whose owner pays for the change.
        payers: Who that is, in words.
        cut: Requests that are cut short.
    """

    name: str
    change: str
    config: dict[str, str]
    sent: Load
    limits: Limits
    kept: Flags
    paying: Flags
    payers: str = "nobody"
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """What the trials of one engine share.

    Attributes:
        work: Requests that the engine was calibrated on.
        engine: The calibrated engine.
        suspect: The tenant whose load is in question, if there is one.
        change: How its load changed.
    """

    work: Work
    engine: Engine
    suspect: int | None = None
    change: Change | None = None

    @property
    def sent(self) -> Load:
        """The load as it reached the engine."""
        return delayed(load(self.work), self.engine.overhead)

    @property
    def suspected(self) -> Flags:
        """Requests of the suspect."""
        if self.suspect is None:
            return np.zeros(len(self.work), dtype=bool)
        return np.asarray(self.work.tenant == self.suspect)

    def trial(
        self,
        name: str,
        change: str,
        config: dict[str, str],
        *,
        sent: Load | None = None,
        limits: Limits | None = None,
        kept: Flags | None = None,
        paying: Flags | None = None,
        payers: str = "nobody",
        cut: int = 0,
    ) -> Trial:
        """A trial that leaves as it was what is not given."""
        count = len(self.work)
        return Trial(
            name,
            change,
            config,
            sent or self.sent,
            limits or self.engine.limits,
            np.ones(count, dtype=bool) if kept is None else kept,
            np.zeros(count, dtype=bool) if paying is None else paying,
            payers,
            cut,
        )


def fixes(case: Case, near: Fidelity) -> list[Fix]:
    """Play every change and keep those that help.

    Args:
        case: The engine and its requests.
        near: How near the unchanged play is to the records.

    Returns:
        Those that lower the victims' p99, the best first; none if the play may not be trusted.
    """
    if not near.passed:
        return []
    played = [play(case, trial) for trial in trials(case)]
    return sorted((fix for fix in played if fix.gain >= WORTH), key=lambda fix: -fix.gain)


def play(case: Case, trial: Trial) -> Fix:
    """Play one change."""
    work = case.work
    rows = np.flatnonzero(trial.kept)
    found = simulate(chosen(trial.sent, rows), case.engine.cost, trial.limits, case.engine.speed)
    after = np.full(len(work), np.nan)
    # A request that gives up has waited for as long as its patience lasted.
    waited = np.where(np.isnan(found.start), trial.sent.patience, found.done - work.arrived[rows])
    after[rows] = waited
    before = case.engine.play.done - work.arrived
    victims = ~trial.paying & trial.kept & ~case.suspected
    still = trial.paying & trial.kept
    return Fix(
        name=trial.name,
        change=trial.change,
        config=trial.config,
        before=quantiles(before[victims]),
        after=quantiles(after[victims]),
        payers=trial.payers,
        payers_before=quantiles(before[trial.paying]) if trial.paying.any() else None,
        payers_after=quantiles(after[still]) if still.any() else None,
        lost=int(np.isnan(found.start).sum()) + trial.cut,
    )


def quantiles(seconds: Floats) -> Quantiles:
    """Percentiles of some requests; zeros if there are none."""
    if not len(seconds):
        return Quantiles(0.0, 0.0, 0.0)
    return Quantiles(*(float(np.quantile(seconds, level)) for level in LEVELS))


def trials(case: Case) -> Iterator[Trial]:
    """Every change that the load allows for."""
    if case.suspect is not None:
        yield from _of_tenant(case, case.suspect)
    yield from _of_order(case)
    yield from _of_size(case)
    yield from _of_limits(case)


def _of_tenant(case: Case, suspect: int) -> Iterator[Trial]:
    name, own = case.work.tenants[suspect], case.suspected
    yield case.trial(
        "separate",
        f"Give {name} an instance of its own.",
        {"gateway": f"route tenant {name} to another upstream"},
        kept=~own,
        paying=own,
        payers=f"{name}, which moves",
    )
    room = case.engine.limits.sequences
    if room < UNLIMITED and room >= 4:
        cap = max(room // 4, 1)
        group = own.astype(np.int64).tolist()
        yield case.trial(
            "tenant_cap",
            f"Let {name} have at most {cap} requests in the batch at a time.",
            {"gateway": f"max_parallel_requests: {cap}  # for tenant {name}"},
            sent=replace(case.sent, group=group, caps={1: cap}),
            paying=own,
            payers=name,
        )
    if case.change is not None and case.change.cached <= CACHE_DROP:
        yield _cache_restored(case, suspect)


def _cache_restored(case: Case, suspect: int) -> Trial:
    """The suspect's prompts hit the prefix cache as they did outside of its stretch."""
    work, change = case.work, case.change
    own = case.suspected
    assert change is not None  # noqa: S101 - the caller looked
    inside = own & (work.arrived >= change.begin) & (work.arrived < change.end)
    usual = own & ~inside
    share = float(work.cached[usual].sum()) / max(float(work.context[usual].sum()), 1.0)
    cached = np.where(inside, np.maximum(work.cached, np.rint(share * work.context)), work.cached)
    cached = np.minimum(cached, np.maximum(work.context - 1.0, 0.0)).astype(np.int64)
    computed = np.maximum(np.rint(work.context).astype(np.int64) - cached, 1)
    return case.trial(
        "cache_restored",
        f"Let the prompts of {work.tenants[suspect]} begin with the same text again, and route "
        f"them to the same instance: {share:.0%} of their tokens used to come from the cache.",
        {"gateway": "route by prefix (consistent hash of the system prompt)"},
        sent=replace(case.sent, cached=cached.tolist(), computed=computed.tolist()),
    )


def _of_order(case: Case) -> Iterator[Trial]:
    work = case.work
    seconds = case.engine.cost.per_prefill * work.computed
    rank = work.arrived + _AGEING * seconds
    long_ = seconds > np.quantile(seconds, 0.9)
    yield case.trial(
        "short_first",
        "Let short prompts go first; a long one gains on them as it waits.",
        {"vllm": "--scheduling-policy priority  # priority = prompt tokens, set by the gateway"},
        sent=replace(case.sent, rank=rank.tolist()),
        paying=long_,
        payers="the longest tenth of the prompts",
    )
    room = case.engine.limits.sequences
    if 4 <= room < UNLIMITED:
        cap = max(room // 2, 1)
        yield case.trial(
            "lanes",
            f"Keep half of the batch for short prompts: at most {cap} long ones at a time.",
            {"gateway": f"max_parallel_requests: {cap}  # for prompts above the 90th percentile"},
            sent=replace(case.sent, group=long_.astype(np.int64).tolist(), caps={1: cap}),
            paying=long_,
            payers="the longest tenth of the prompts",
        )
    waits = case.engine.play.start - work.arrived
    patience = max(float(np.quantile(waits, 0.95)) * 0.5, 1.0)
    if float(waits.max()) > patience:
        yield case.trial(
            "queue_timeout",
            f"Give up waiting after {patience:.1f} s, and tell the client to come back later.",
            {"gateway": f"queue_timeout: {patience:.1f}s"},
            sent=replace(case.sent, patience=patience),
            payers="the requests that give up",
        )


def _of_size(case: Case) -> Iterator[Trial]:
    work, sent = case.work, case.sent
    long_ = np.asarray(work.output > _OUTPUT)
    if long_.any():
        output = np.minimum(work.output, _OUTPUT).astype(np.int64)
        yield case.trial(
            "output_cap",
            f"Allow at most {_OUTPUT} tokens of answer.",
            {"gateway": f"max_tokens: {_OUTPUT}"},
            sent=replace(sent, output=np.maximum(output, 1).tolist()),
            paying=long_,
            payers="the requests with longer answers, which are cut",
            cut=int(long_.sum()),
        )
    large = np.asarray(work.context > _INPUT)
    if large.any():
        left = np.maximum(np.minimum(work.computed, _INPUT - work.cached), 1.0)
        computed = np.where(large, left, np.maximum(work.computed, 1.0)).astype(np.int64)
        yield case.trial(
            "input_cap",
            f"Allow at most {_INPUT} tokens of prompt.",
            {"gateway": f"max_input_tokens: {_INPUT}"},
            sent=replace(sent, computed=computed.tolist()),
            paying=large,
            payers="the requests with longer prompts, which are cut",
            cut=int(large.sum()),
        )


def _of_limits(case: Case) -> Iterator[Trial]:
    limits = case.engine.limits
    for tokens in (limits.tokens // 4, limits.tokens // 2, limits.tokens * 2):
        yield case.trial(
            f"step_tokens_{tokens}",
            f"Compute at most {tokens} tokens a step, instead of {limits.tokens}.",
            {
                "vllm": f"--max-num-batched-tokens {tokens}",
                "sglang": f"--chunked-prefill-size {tokens}",
            },
            limits=replace(limits, tokens=max(tokens, 1)),
        )
    if limits.sequences >= UNLIMITED:
        return
    for room in (limits.sequences // 2, limits.sequences * 2):
        yield case.trial(
            f"batch_{room}",
            f"Run at most {room} requests at a time, instead of {limits.sequences}.",
            {"vllm": f"--max-num-seqs {room}", "sglang": f"--max-running-requests {room}"},
            limits=replace(limits, sequences=max(room, 1)),
        )
