"""The cause of the slow requests, in one word of the field, with its evidence as numbers.

The order is that of certainty: an accused engine, an accused tenant, then what the seconds say
without a culprit. What nothing accounts for is called unexplained: that is an answer, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tailscope.triage.lift import CACHE_DROP
from tailscope.triage.verdict import Attribution, Suspect

_UNEXPLAINED = 0.5
_OWN_SIZE = 0.75
"""Share of the time of the longest requests that their own size takes: long, not slow."""


class Cause(StrEnum):
    """Causes of slow requests."""

    QUEUE = "queueing"
    INTERFERENCE = "prefill and decode in the same steps"
    BATCH = "batch spread"
    LENGTH = "long prompts or answers"
    CACHE = "prefix cache misses"
    TENANT = "another tenant's load"
    ENGINE = "engine slow without load"
    OUTSIDE = "outside of the engine"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Finding:
    """The cause and what speaks for it.

    Attributes:
        cause: The cause.
        share: Part of the slow excess that it stands for.
        evidence: Short sentences with numbers.
    """

    cause: Cause
    share: float
    evidence: tuple[str, ...]


_BY_MECHANISM = {
    "queue": Cause.QUEUE,
    "contention": Cause.INTERFERENCE,
    "interference": Cause.INTERFERENCE,
    "batch": Cause.BATCH,
}


def cause(found: Attribution, outside_seconds: float = 0.0) -> Finding | None:
    """Name the cause of the slow requests; None if none is slow.

    Args:
        found: The attribution.
        outside_seconds: Seconds of the same requests that clients saw and the engine did not.
    """
    if not found.slow or found.excess_seconds <= 0:
        return None
    excess = found.excess_seconds
    if outside_seconds > excess:
        share = outside_seconds / (outside_seconds + excess)
        text = f"clients waited {outside_seconds:.1f} s more than the engine knows of"
        return Finding(Cause.OUTSIDE, share, (text,))
    for suspect in found.accused:
        return _of_suspect(found, suspect)
    own = own_size(found)
    if own >= _OWN_SIZE:
        text = f"{own:.0%} of the time of the longest requests is what their own size takes"
        return Finding(Cause.LENGTH, own, (text,))
    if found.unexplained_seconds >= _UNEXPLAINED * excess:
        share = found.unexplained_seconds / excess
        text = f"no work of others accounts for {share:.0%} of the excess"
        return Finding(Cause.UNEXPLAINED, share, (text,))
    return _of_mechanism(found)


def own_size(found: Attribution) -> float:
    """Share of the longest requests' time that each would take alone: the longest twentieth."""
    time, alone = 0.0, 0.0
    for one in found.studies:
        total = one.work.total
        long_ = total >= np.quantile(total, 0.95)
        time += float(total[long_].sum())
        alone += float(one.costing.alone.total[long_].sum())
    return alone / time if time > 0 else 0.0


def pattern(suspect: Suspect) -> str:
    """What a tenant did differently in its stretch, in words; empty if nothing stands out."""
    change = suspect.change
    if change is None:
        return ""
    parts = []
    if change.requests >= 1.5:
        parts.append(f"{change.requests:.1f} times as many requests")
    if change.input >= 1.5:
        parts.append(f"prompts {change.input:.1f} times as long")
    if change.output >= 1.5:
        parts.append(f"answers {change.output:.1f} times as long")
    if change.cached <= CACHE_DROP:
        parts.append(f"{-change.cached:.0%} less of the prompts from the cache")
    return ", ".join(parts)


def _of_suspect(found: Attribution, suspect: Suspect) -> Finding:
    saved = f"without it {suspect.removal_share:.0%} of the excess would not have been"
    if suspect.kind == "engine":
        share = max(suspect.removal_share, suspect.ledger_share)
        slow = max(one.residual.worst for one in found.studies if one.residual.found)
        steps = f"its steps took up to {slow:.1f} times what their work explains"
        return Finding(Cause.ENGINE, share, (steps, saved))
    held = f"its work held the engine for {suspect.ledger_share:.0%} of the excess of the others"
    did = pattern(suspect)
    changed = f"{suspect.name} sent {did}" if did else f"the load of {suspect.name} rose"
    lost = suspect.change is not None and suspect.change.lost_cache
    name = Cause.CACHE if lost else Cause.TENANT
    return Finding(name, suspect.removal_share, (changed, held, saved))


def _of_mechanism(found: Attribution) -> Finding:
    sums: dict[Cause, float] = {}
    for mechanism, seconds in found.mechanisms.items():
        name = _BY_MECHANISM[mechanism]
        sums[name] = sums.get(name, 0.0) + seconds
    name = max(sums, key=lambda one: sums[one])
    share = sums[name] / found.excess_seconds
    evidence = [f"{share:.0%} of the excess"]
    if found.suspects:
        first = found.suspects[0]
        evidence.append(f"{first.name} is the largest user; not accused: {first.spared}")
    return Finding(name, share, tuple(evidence))
