"""The cause of the slow requests, in one word of the field, with its evidence as numbers.

The order is that of certainty: an accused engine or GPU, an accused tenant, then what the seconds
say without a culprit. What nothing accounts for is called unexplained: that is an answer, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tailscope.triage.lift import CACHE_DROP, NEW
from tailscope.triage.phrase import row, tell
from tailscope.triage.verdict import Attribution, Suspect
from tailscope.triage.words import percent, seconds

_UNEXPLAINED = 0.5
_OWN_SIZE = 0.75
"""Share of the slow requests' time that their own size takes: long, not slow."""

_RANK = ("outside", "gpu", "engine", "tenant")
"""Of several that are accused, the one that is nearest to the root of it."""


class Cause(StrEnum):
    """Causes of slow requests."""

    QUEUE = "queueing"
    INTERFERENCE = "prefill and decode in the same steps"
    BATCH = "batch spread"
    LENGTH = "long prompts or answers"
    CACHE = "prefix cache misses"
    TENANT = "another tenant's load"
    ENGINE = "engine slow without load"
    GPU = "GPU in trouble"
    OUTSIDE = "outside of the engine"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact.

    Attributes:
        fact: As a sentence, with its number.
        value: The number.
        unit: Its unit: ``seconds``, ``share`` or ``times``.
    """

    fact: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause and what speaks for it.

    Attributes:
        cause: The cause.
        share: Part of the slow seconds that it stands for.
        evidence: Facts with their numbers.
        suspect: Who is accused; None if nobody is.
    """

    cause: Cause
    share: float
    evidence: tuple[Evidence, ...]
    suspect: Suspect | None = None


_BY_MECHANISM = {
    "queue": Cause.QUEUE,
    "contention": Cause.INTERFERENCE,
    "interference": Cause.INTERFERENCE,
    "batch": Cause.BATCH,
}


def explain(found: Attribution, suspects: Sequence[Suspect]) -> Explanation | None:
    """Name the cause of the slow requests; None if none is slow.

    Args:
        found: The attribution.
        suspects: Its suspects and those beyond engine and tenants.
    """
    accused = sorted(
        (one for one in suspects if one.accused),
        key=lambda one: (_RANK.index(one.kind), -one.removal_share),
    )
    if accused and accused[0].kind == "outside":
        return _outside(accused[0])
    if not found.slow or found.excess_seconds <= 0:
        return None
    if accused:
        return _of_suspect(found, accused[0])
    own = own_size(found)
    if own >= _OWN_SIZE:
        text = tell("{share} of their time is what their own size takes", share=percent(own))
        return Explanation(Cause.LENGTH, own, (Evidence(text, own, "share"),))
    if found.unexplained_seconds >= _UNEXPLAINED * found.excess_seconds:
        share = found.unexplained_seconds / found.excess_seconds
        text = tell(
            "no work of others accounts for {share} of the slow seconds", share=percent(share)
        )
        return Explanation(Cause.UNEXPLAINED, share, (Evidence(text, share, "share"),))
    return _of_mechanism(found)


def own_size(found: Attribution) -> float:
    """Share of the slow requests' time that each would take alone."""
    time, alone = 0.0, 0.0
    for one in found.studies:
        time += float(one.work.total[one.slow].sum())
        alone += float(one.costing.alone.total[one.slow].sum())
    return alone / time if time > 0 else 0.0


def times(lift: float) -> str:
    """How many times its usual something was; a lift that is cut says so."""
    return tell("at least {n}", n=f"{NEW:.0f}") if lift >= NEW else f"{lift:.1f}"


def pattern(suspect: Suspect) -> str:
    """What a tenant did differently in its stretch, in words; empty if nothing stands out."""
    change = suspect.change
    if change is None:
        return ""
    parts = []
    if change.requests >= 1.5:
        parts.append(tell("{n} times as many requests", n=times(change.requests)))
    if change.input >= 1.5:
        parts.append(tell("prompts {n} times as long", n=f"{change.input:.1f}"))
    if change.output >= 1.5:
        parts.append(tell("answers {n} times as long", n=f"{change.output:.1f}"))
    if change.cached <= CACHE_DROP:
        less = percent(-change.cached)
        parts.append(tell("{share} less of the prompts from the cache", share=less))
    return row(parts, ", ") if parts else ""


def _outside(suspect: Suspect) -> Explanation:
    text = tell(
        "clients waited {time} more than the engine knows of", time=seconds(suspect.ledger_seconds)
    )
    evidence = Evidence(text, suspect.ledger_seconds, "seconds")
    return Explanation(Cause.OUTSIDE, suspect.ledger_share, (evidence,), suspect)


def _of_suspect(found: Attribution, suspect: Suspect) -> Explanation:
    saved = Evidence(
        tell(
            "without it {share} of the slow seconds of the others would not have been",
            share=percent(suspect.removal_share),
        ),
        suspect.removal_share,
        "share",
    )
    if suspect.kind in ("engine", "gpu"):
        share = max(suspect.removal_share, suspect.ledger_share)
        slow = max((one.residual.worst for one in found.studies if one.residual.found), default=1.0)
        steps = tell(
            "the engine's steps took up to {n} times what their work explains", n=f"{slow:.1f}"
        )
        cause = Cause.ENGINE if suspect.kind == "engine" else Cause.GPU
        facts = [Evidence(steps, slow, "times"), saved]
        if cause is Cause.GPU:
            text = tell(
                "{name} was in trouble in {share} of that time",
                name=suspect.name,
                share=percent(suspect.overlap),
            )
            facts[1] = Evidence(text, suspect.overlap, "share")
        if any(one.residual.lasting for one in found.studies):
            text = tell(
                "it was still so at the end: an engine that does not recover, or another "
                "configuration from then on"
            )
            facts.append(Evidence(text, slow, "times"))
        return Explanation(cause, share, tuple(facts), suspect)
    held = Evidence(
        tell(
            "its work held the engine for {share} of the slow seconds of the others",
            share=percent(suspect.ledger_share),
        ),
        suspect.ledger_share,
        "share",
    )
    did = pattern(suspect)
    lift = suspect.lift or 1.0
    text = (
        tell("{name} sent {did}", name=suspect.name, did=did)
        if did
        else tell("the load of {name} rose", name=suspect.name)
    )
    usual = tell("{text}: {lift} times its usual work", text=text, lift=times(lift))
    changed = Evidence(usual, lift, "times")
    lost = suspect.change is not None and suspect.change.lost_cache
    name = Cause.CACHE if lost else Cause.TENANT
    return Explanation(name, suspect.removal_share, (changed, held, saved), suspect)


def _of_mechanism(found: Attribution) -> Explanation:
    sums: dict[Cause, float] = {}
    for mechanism, held in found.mechanisms.items():
        name = _BY_MECHANISM[mechanism]
        sums[name] = sums.get(name, 0.0) + held
    name = max(sums, key=lambda one: sums[one])
    share = sums[name] / found.excess_seconds
    evidence = [Evidence(tell("{share} of the slow seconds", share=percent(share)), share, "share")]
    tenants = [one for one in found.suspects if one.kind == "tenant"]
    if tenants:
        first = tenants[0]
        text = tell(
            "{name} is the largest user; not accused: {why}", name=first.name, why=first.spared
        )
        evidence.append(Evidence(text, first.removal_share, "share"))
    return Explanation(name, share, tuple(evidence))
