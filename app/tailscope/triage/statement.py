"""Who, or what, made the requests slow: in words that say no more than the numbers carry."""

from __future__ import annotations

from tailscope.triage.cause import Cause, Explanation, pattern, times
from tailscope.triage.phrase import Phrase, first_upper, row, tell, who
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
    "A": tell("made them slow"),
    "B": tell("likely made them slow"),
    "C": tell("is suspected to have made them slow"),
    "D": tell("was busy when they were slow (association, not proof)"),
}
_PATTERNS = {
    Cause.QUEUE: tell("queueing"),
    Cause.INTERFERENCE: tell("prefill and decode in the same steps"),
    Cause.BATCH: tell("batch spread"),
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
        return row([text, tell("Grade {grade}.", grade=cause.suspect.grade)])
    if found.slow < VICTIMS:
        return tell("Fewer than {n} slow requests are too few to say whose load it was.", n=VICTIMS)
    return row([_nobody(found, cause), tell("Grade {grade}.", grade=found.grade)])


def _tenant(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> Phrase:
    by = tell("by replay") if one.replayed else tell("by the order of admission")
    text = tell(
        "{who} {made}: without it {share} of the slow seconds of the others would not have been "
        "({time}, {by}).",
        who=first_upper(one.name),
        made=_MADE[one.grade],
        share=_share(one),
        time=seconds(one.removal_seconds),
        by=by,
    )
    return row([text, _change(one, origin_ns), _more(found, one)])


def _share(one: Suspect) -> str:
    """The share, and where the true one may lie if that is far from it."""
    share = percent(one.removal_share)
    if one.grade in "AB":
        return share
    low, high = map(percent, one.removal_range)
    return tell("{share} (from {low} to {high})", share=share, low=low, high=high)


def _change(one: Suspect, origin_ns: int) -> str:
    if one.change is None:
        return ""
    begin, end = (clock(origin_ns + int(at * 1e9)) for at in (one.change.begin, one.change.end))
    lift, did = times(one.change.lift), pattern(one)
    if not did:
        return tell(
            "From {begin} to {end} UTC its work was {lift} times its usual.",
            begin=begin,
            end=end,
            lift=lift,
        )
    return tell(
        "From {begin} to {end} UTC its work was {lift} times its usual: {did}.",
        begin=begin,
        end=end,
        lift=lift,
        did=did,
    )


def _more(found: Attribution, one: Suspect) -> str:
    others = [other.name for other in found.accused if other is not one and other.kind == "tenant"]
    return tell("So did {names}.", names=", ".join(others)) if others else ""


def _engine(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> Phrase:
    return row(
        [
            tell(
                "The engine {name} itself was slow, whatever its load: {fact}.",
                name=one.name,
                fact=cause.evidence[0].fact,
            ),
            tell("That is {share} of the slow seconds.", share=percent(cause.share)),
        ]
    )


def _gpu(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> Phrase:
    return row(
        [
            tell(
                "{name} was in trouble while the engine was slow: {fact}.",
                name=one.name,
                fact=cause.evidence[0].fact,
            ),
            tell(
                "That is {share} of the slow seconds (coincidence in time: which GPU served a "
                "request is not recorded).",
                share=percent(cause.share),
            ),
        ]
    )


def _outside(found: Attribution, cause: Explanation, one: Suspect, origin_ns: int) -> Phrase:
    return tell(
        "Most of the time was lost outside of the engine: {fact}, {share} of what they lost.",
        fact=cause.evidence[0].fact,
        share=percent(cause.share),
    )


_ACCUSED = {"tenant": _tenant, "engine": _engine, "gpu": _gpu, "outside": _outside}


def _nobody(found: Attribution, cause: Explanation) -> Phrase:
    if cause.cause is Cause.LENGTH:
        fact = cause.evidence[0].fact
        return tell("They are long rather than slowed down: {fact}.", fact=fact)
    if cause.cause is Cause.UNEXPLAINED:
        fact = cause.evidence[0].fact
        return tell("The cause is not known, and nobody is accused: {fact}.", fact=fact)
    what = tell(
        "Mostly {what}, {share} of the slow seconds.",
        what=_PATTERNS[cause.cause],
        share=percent(cause.share),
    )
    tenants = [one for one in found.suspects if one.kind == "tenant"]
    if not tenants:
        return row([what, tell("No tenant stands out.")])
    first = tenants[0]
    largest = tell(
        "The largest part, {share}, is owed to {who}; without it {saved} would not have been.",
        share=percent(first.ledger_share),
        who=who(first.name),
        saved=percent(max(first.removal_share, 0.0)),
    )
    return row([what, largest, tell("It is not accused: {why}.", why=first.spared)])
