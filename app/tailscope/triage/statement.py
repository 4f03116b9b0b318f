"""Who, or what, made the requests slow: in words that say no more than the numbers carry."""

from __future__ import annotations

from tailscope.triage.cause import Cause, Explanation, pattern
from tailscope.triage.reckoning import VICTIMS
from tailscope.triage.verdict import Attribution, Suspect
from tailscope.triage.words import clock, percent, seconds

GRADES = {
    "A": "a replay of the records is within 5 % of them, and the ledger agrees",
    "B": "a replay is near the records, or ledger and order of admission agree",
    "C": "suspicion: times are inferred, a model fits poorly or tenants are missing",
    "D": "association in time only: too few requests, or only their total times are known",
}
"""What a grade means."""


_MADE = {
    "A": "made them slow",
    "B": "made them slow",
    "C": "is suspected to have made them slow",
    "D": "was busy when they were slow (association, not proof)",
}


def verdict(found: Attribution, cause: Explanation | None, origin_ns: int) -> str:
    """Who made them slow, in one or two sentences with the grade; empty where nothing is slow.

    Args:
        found: The attribution.
        cause: Its explanation.
        origin_ns: Time 0 of the attribution, UTC nanoseconds.
    """
    if cause is None:
        return ""
    if cause.suspect is not None:
        text = _ACCUSED[cause.suspect.kind](found, cause, cause.suspect, origin_ns)
        return f"{text} Grade {cause.suspect.grade}."
    if found.slow < VICTIMS:
        return f"Fewer than {VICTIMS} slow requests are too few to say whose load it was."
    return f"{_nobody(found, cause)} Grade {found.grade}."


def _tenant(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> str:
    by = "by replay" if one.replayed else "by the order of admission"
    share = f"{percent(one.removal_share)}{_range(one)}"
    text = (
        f"Tenant {one.name} {_MADE[one.grade]}: without it {share} of the slow seconds of the "
        f"others would not have been ({seconds(one.removal_seconds)}, {by})."
    )
    return text + _change(one, origin_ns) + _more(found, one)


def _range(one: Suspect) -> str:
    """Where the true share may lie, if that is far from the told one."""
    if one.grade in "AB":
        return ""
    low, high = one.removal_range
    return f" (from {percent(low)} to {percent(high)})"


def _change(one: Suspect, origin_ns: int) -> str:
    if one.change is None:
        return ""
    begin, end = (clock(origin_ns + int(at * 1e9)) for at in (one.change.begin, one.change.end))
    did = pattern(one)
    how = f": {did}" if did else ""
    return f" From {begin} to {end} UTC its work was {one.change.lift:.1f} times its usual{how}."


def _more(found: Attribution, one: Suspect) -> str:
    others = [other.name for other in found.accused if other is not one and other.kind == "tenant"]
    return f" So did {', '.join(others)}." if others else ""


def _engine(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> str:
    return (
        f"The engine {one.name} itself was slow, whatever its load: {cause.evidence[0].fact}. "
        f"That is {percent(cause.share)} of the slow seconds."
    )


def _gpu(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> str:
    return (
        f"{one.name} was in trouble while the engine was slow: {cause.evidence[0].fact}. That is "
        f"{percent(cause.share)} of the slow seconds (coincidence in time: which GPU served a "
        "request is not recorded)."
    )


def _outside(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> str:
    return (
        f"Most of the time was lost outside of the engine: {cause.evidence[0].fact}, "
        f"{percent(cause.share)} of what they lost."
    )


_ACCUSED = {"tenant": _tenant, "engine": _engine, "gpu": _gpu, "outside": _outside}


def _nobody(found: Attribution, cause: Explanation) -> str:
    if cause.cause is Cause.LENGTH:
        return f"They are long rather than slowed down: {cause.evidence[0].fact}."
    if cause.cause is Cause.UNEXPLAINED:
        return f"The cause is not known, and nobody is accused: {cause.evidence[0].fact}."
    what = f"Mostly {cause.cause.value}, {percent(cause.share)} of the slow seconds."
    tenants = [one for one in found.suspects if one.kind == "tenant"]
    if not tenants:
        return f"{what} No tenant stands out."
    first = tenants[0]
    return (
        f"{what} The largest part, {percent(first.ledger_share)}, is owed to {_name(first)}; "
        f"without it {percent(max(first.removal_share, 0.0))} would not have been. It is not "
        f"accused: {first.spared}."
    )


def _name(one: Suspect) -> str:
    return "requests without a tenant" if one.name == "unknown" else f"tenant {one.name}"
