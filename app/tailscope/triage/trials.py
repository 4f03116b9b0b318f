"""The changes that are played: what each does to the load or to the engine.

Each is one variable. What a trial cannot know (how a client reacts, what a router does) is left as
it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tailscope.triage import recipes
from tailscope.triage.calibration import Engine, delayed, most, most_tokens
from tailscope.triage.lift import CACHE_DROP, Change
from tailscope.triage.phrase import tell, who
from tailscope.triage.simulator import Load, load
from tailscope.triage.step import UNLIMITED, Limits
from tailscope.triage.words import percent, seconds
from tailscope.triage.work import Flags, Floats, Work

_AGEING = 20.0
"""Seconds of waiting that outweigh a second of own work, where short jobs go first."""

_OUTPUT, _INPUT = 512, 4096
"""Tokens that an answer and a prompt may have at most, unless many have more."""

_HIT = 0.9
"""A cap on tokens leaves this part of the requests alone that are not the suspect's."""

_HEDGED = 0.95
"""Requests that wait longer for their first token than this part of all are sent again."""

NOBODY = tell("nobody")
_LONGEST = tell("the longest tenth of the prompts")

_GENERATION = 0.98
"""Share of the generations that a timeout lets through."""


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
        paying: Requests whose owner pays for the change; those that give up come on top.
        payers: Who that is, in words.
        cut: Requests that are cut short, or refused.
        hedge: Seconds after which a request without a first token is sent to another engine, too.
    """

    name: str
    change: str
    config: dict[str, str]
    sent: Load
    limits: Limits
    kept: Flags
    paying: Flags
    payers: str = NOBODY
    cut: int = 0
    hedge: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What the trials of one engine share.

    Attributes:
        work: Requests that the engine was calibrated on.
        engine: The calibrated engine.
        suspect: The tenant whose load is in question, if there is one.
        change: How its load changed.
        replicas: Engines of this model that are known, this one included.
        repeated: Which requests are a second or later attempt; None if that is not known.
    """

    work: Work
    engine: Engine
    suspect: int | None = None
    change: Change | None = None
    replicas: int = 1
    repeated: Flags | None = None

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

    @property
    def room(self) -> int:
        """Places in the batch: the engine's limit, or the most that were taken."""
        return min(self.engine.limits.sequences, most(self.work))

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
        payers: str = NOBODY,
        cut: int = 0,
        hedge: float | None = None,
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
            hedge,
        )


def trials(case: Case) -> Iterator[Trial]:
    """Every change that the load allows for."""
    if case.suspect is not None:
        yield from _of_tenant(case, case.suspect)
    yield from _of_order(case)
    yield from _of_time(case)
    yield from _of_size(case)
    yield from _of_limits(case)
    yield from _of_retries(case)
    yield _one_more(case)
    yield from _of_hedging(case)


def _of_tenant(case: Case, suspect: int) -> Iterator[Trial]:
    name, own = case.work.tenants[suspect], case.suspected
    yield case.trial(
        "separate",
        tell("Give {who} an instance of its own.", who=who(name)),
        recipes.separate(name),
        kept=~own,
        paying=own,
        payers=tell("{who}, which moves", who=who(name)),
    )
    if (room := case.room) >= 4:
        cap = room // 4
        group = own.astype(np.int64).tolist()
        yield case.trial(
            "tenant_cap",
            tell(
                "Let {who} have at most {n} requests in the batch at a time.", who=who(name), n=cap
            ),
            recipes.tenant_cap(name, cap),
            sent=replace(case.sent, group=group, caps={1: cap}),
            paying=own,
            payers=who(name),
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
        tell(
            "Let the prompts of {who} begin with the same text again, and route them to the same "
            "instance: {share} of their tokens used to come from the cache.",
            who=who(work.tenants[suspect]),
            share=percent(share),
        ),
        recipes.cache(),
        sent=replace(case.sent, cached=cached.tolist(), computed=computed.tolist()),
    )


def _of_order(case: Case) -> Iterator[Trial]:
    """Both go by the length of the prompt: how much of it is cached, no sender knows."""
    work = case.work
    per_token = _AGEING * case.engine.cost.per_prefill
    longest = float(np.quantile(work.context, 0.9))
    long_ = np.asarray(work.context > longest)
    yield case.trial(
        "short_first",
        tell("Let short prompts go first; a long one gains on them as it waits."),
        recipes.short_first(1000.0 * per_token),
        sent=replace(case.sent, rank=(work.arrived + per_token * work.context).tolist()),
        paying=long_,
        payers=_LONGEST,
    )
    if (room := case.room) >= 4:
        cap = room // 2
        yield case.trial(
            "lanes",
            tell(
                "Keep half of the batch for short prompts: at most {n} long ones at a time.", n=cap
            ),
            recipes.lanes(cap, int(longest)),
            sent=replace(case.sent, group=long_.astype(np.int64).tolist(), caps={1: cap}),
            paying=long_,
            payers=_LONGEST,
        )


def _of_size(case: Case) -> Iterator[Trial]:
    work, others = case.work, ~case.suspected
    most = _cap(work.output[others], _OUTPUT)
    long_ = np.asarray(work.output > most)
    if long_.any():
        yield case.trial(
            "output_cap",
            tell("Allow at most {n} tokens of answer.", n=most),
            recipes.output_cap(most),
            sent=replace(case.sent, output=_whole(np.minimum(work.output, most))),
            paying=long_,
            payers=tell("the requests with longer answers, which are cut"),
            cut=int(long_.sum()),
        )
    most = _cap(work.context[others], _INPUT)
    large = np.asarray(work.context > most)
    if large.any():
        yield case.trial(
            "input_cap",
            tell("Allow at most {n} tokens of prompt.", n=most),
            recipes.input_cap(most),
            kept=~large,
            paying=large,
            payers=tell("the requests with longer prompts, which are refused"),
            cut=int(large.sum()),
        )


def _cap(tokens: Floats, least: int) -> int:
    """A power of two, this or more, that few of the requests pass."""
    usual = float(np.quantile(tokens, _HIT)) if len(tokens) else 0.0
    return max(least, 1 << math.ceil(math.log2(max(usual, 1.0))))


def _of_limits(case: Case) -> Iterator[Trial]:
    limits = case.engine.limits
    for tokens in (limits.tokens // 4, limits.tokens // 2, limits.tokens * 2):
        name = "longer_steps" if tokens > limits.tokens else "step_tokens"
        yield case.trial(
            f"{name}_{tokens}",
            tell(
                "Compute at most {n} tokens a step, instead of {was} (inferred).",
                n=tokens,
                was=limits.tokens,
            ),
            recipes.step_tokens(tokens),
            limits=replace(limits, tokens=max(tokens, 1)),
        )
    if limits.sequences >= UNLIMITED:
        return
    was, held = limits.sequences, most_tokens(case.work)
    yield case.trial(
        f"batch_{max(was // 2, 1)}",
        tell(
            "Run at most {n} requests at a time, instead of {was} (inferred).",
            n=max(was // 2, 1),
            was=was,
        ),
        recipes.batch(max(was // 2, 1)),
        limits=replace(limits, sequences=max(was // 2, 1)),
    )
    yield case.trial(
        f"wider_batch_{2 * was}",
        tell(
            "Run at most {n} requests at a time, instead of {was} (inferred). The cache then has "
            "to hold about {tokens} tokens; it held {held} at most.",
            n=2 * was,
            was=was,
            tokens=f"{2 * held:,.0f}",
            held=f"{held:,.0f}",
        ),
        recipes.batch(2 * was),
        limits=replace(limits, sequences=2 * was),
    )


def _of_time(case: Case) -> Iterator[Trial]:
    """Timeouts in two layers: one for the queue, one for the generation."""
    work = case.work
    played = case.engine.play
    waits, prefill = played.start - work.arrived, played.first - played.start
    patience = max(float(np.quantile(waits, 0.95)) * 0.5, 1.0)
    if float(waits.max()) > patience:
        yield case.trial(
            "queue_timeout",
            tell(
                "Give up waiting after {time}, and tell the client to come back later.",
                time=seconds(patience),
            ),
            recipes.queue_timeout(patience, float(np.quantile(prefill, _GENERATION))),
            sent=replace(case.sent, patience=patience),
            payers=tell("the requests that give up"),
        )
    decode = played.done - played.first
    longest = max(float(np.quantile(decode, _GENERATION)), 1.0)
    late = decode > longest
    if late.any():
        pace = work.output / np.maximum(decode, 1e-9)
        output = np.where(late, np.minimum(pace * longest, work.output), work.output)
        yield case.trial(
            "generation_timeout",
            tell("End a generation after {time}.", time=seconds(longest)),
            recipes.generation_timeout(
                longest, float(np.quantile(played.first - work.arrived, _GENERATION))
            ),
            sent=replace(case.sent, output=_whole(output)),
            paying=late,
            payers=tell("the requests that generate for longer, which are cut"),
            cut=int(late.sum()),
        )


def _of_retries(case: Case) -> Iterator[Trial]:
    if case.repeated is not None and case.repeated.any():
        yield case.trial(
            "no_retries",
            tell(
                "Do not send a request again that was only slow; wait longer, with a growing pause."
            ),
            recipes.no_retries(),
            kept=~case.repeated,
            paying=case.repeated,
            payers=tell("the second attempts, which are not sent"),
        )


def _one_more(case: Case) -> Trial:
    """Of n engines, each gives every (n+1)-th of its requests away; all have the same load then."""
    count = case.replicas
    change = tell("Add an engine of the same kind, and let both take requests in turn.")
    if count > 1:
        change = tell(
            "Add an engine of the same kind to the {n} there are, and let all take requests in "
            "turn.",
            n=count,
        )
    return case.trial(
        "replica",
        change,
        recipes.replica(),
        kept=np.arange(len(case.work)) % (count + 1) < count,
        payers=tell("whoever pays for the hardware"),
    )


def _of_hedging(case: Case) -> Iterator[Trial]:
    wait = case.engine.play.first - case.work.arrived
    delay = float(np.quantile(wait, _HEDGED))
    if case.replicas > 1 and (wait > delay).any():
        yield case.trial(
            "hedging",
            tell(
                "Send a request without a first token after {time} to another engine, too, and "
                "take the answer that comes first.",
                time=seconds(delay),
            ),
            recipes.hedging(delay),
            hedge=delay,
            payers=tell("all, by the work that is done twice"),
        )


def _whole(tokens: Floats) -> list[int]:
    found: list[int] = np.maximum(tokens, 1.0).astype(np.int64).tolist()
    return found
