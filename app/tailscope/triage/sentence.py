"""The finding in words, without naming anybody. It never says more than was computed."""

from __future__ import annotations

from tailscope.triage.finding import Finding
from tailscope.triage.neighbours import Neighbourhood, held_by_tenant
from tailscope.triage.phrase import Phrase, row, several, tell, who
from tailscope.triage.quantiles import Quantile
from tailscope.triage.slow import MIN_REQUESTS
from tailscope.triage.stages import STAGES, column, floats
from tailscope.triage.words import moment, percent, seconds

_IN = {
    "frontend": tell("the frontend, before the engine's queue"),
    "queue": tell("the queue"),
    "prefill": tell("prefill"),
    "decode": tell("decode"),
}
_STAGE = {
    "frontend": tell("frontend"),
    "queue": tell("queue"),
    "prefill": tell("prefill"),
    "decode": tell("decode"),
}


def headline(finding: Finding) -> Phrase:
    """The percentiles, over how many requests, since when."""
    window, total = finding.window, finding.latency.total
    if not window.requests:
        return tell("There is no request in this window.")
    since = moment(window.start_ns or 0)
    if total is None:
        return several(
            window.requests,
            "{n} request since {when}, without a total time.",
            "{n} requests since {when}, none with a total time.",
            when=since,
        )
    said = several(
        total.count,
        "p50 {p50}, p99 {p99} over {n} request since {when}.",
        "p50 {p50}, p99 {p99} over {n} requests since {when}.",
        p50=level(total.p50),
        p99=level(total.p99),
        when=since,
    )
    return row([said, _cut(finding)])


def level(found: Quantile) -> str:
    """A percentile in words; ``over`` one of which only that is known."""
    text = seconds(found.value)
    return text if found.bounded else tell("over {time}", time=text)


def _cut(finding: Finding) -> str:
    cut = finding.latency.cut
    if cut is None:
        return ""
    share, at = percent(cut.share), seconds(cut.seconds)
    if cut.level is None:
        return tell(
            "Requests are given up at {at}: {share} of requests end there.", at=at, share=share
        )
    return tell(
        "{level} is cut at {at}: {share} of requests end there.",
        level=cut.level,
        at=at,
        share=share,
    )


def slowness(finding: Finding) -> tuple[Phrase, ...]:
    """Which requests are slow, and in which stage, in sentences."""
    slow = finding.slow
    if not finding.window.requests:
        return ()
    if slow.threshold is None:
        return (_undecided(finding),)
    if not slow.requests:
        return (_none_slow(finding),)
    return (_which(finding), _where(finding))


def _undecided(finding: Finding) -> Phrase:
    if finding.window.requests < MIN_REQUESTS:
        return tell(
            "Fewer than {n} requests are too few to say which are unusually slow.", n=MIN_REQUESTS
        )
    return tell("Without times nothing can be said about slow requests.")


def _none_slow(finding: Finding) -> Phrase:
    limit = seconds(finding.slow.threshold or 0.0)
    if finding.slow.rule.seconds is not None:
        return tell("No request took {limit} or more.", limit=limit)
    return tell("No request took {limit} longer than it would alone: nothing is slow.", limit=limit)


def _which(finding: Finding) -> Phrase:
    slow = finding.slow
    limit = seconds(slow.threshold or 0.0)
    if slow.rule.seconds is not None:
        return several(
            slow.requests,
            "{n} request is slow: {limit} or more.",
            "{n} requests are slow: {limit} or more.",
            limit=limit,
        )
    return several(
        slow.requests,
        "{n} request is slow: at least {limit} longer than it would take alone.",
        "{n} requests are slow: at least {limit} longer than they would take alone.",
        limit=limit,
    )


def _where(finding: Finding) -> Phrase:
    slow = finding.slow
    if not slow.by_stage:
        return tell("No stage times are known, so nobody can say where the slow seconds lie.")
    if slow.stage is None or slow.stage_share is None:
        return tell("They took no longer than they would alone: they are long, not slowed down.")
    return tell(
        "{share} of the slow seconds are in {stage}.",
        share=percent(slow.stage_share),
        stage=_IN[slow.stage],
    )


def stages(around: Neighbourhood) -> Phrase:
    """The times of one request: the whole, then each stage that is known."""
    whole = floats(around.request, "total_seconds")[0]
    known = {stage: floats(around.request, column(stage))[0] for stage in STAGES}
    parts = row(
        (
            tell("{time} {stage}", time=seconds(took), stage=_STAGE[stage])
            for stage, took in known.items()
            if took == took
        ),
        ", ",
    )
    if whole != whole:
        return tell("It took {parts}.", parts=parts) if parts else tell("Its times are not known.")
    if not parts:
        return tell("It took {total}; its stages are not known.", total=seconds(whole))
    return tell("It took {total}: {parts}.", total=seconds(whole), parts=parts)


def beside(around: Neighbourhood) -> str:
    """Whose requests held the batch while one request waited for its place; empty if unknown."""
    waited = sum(floats(around.request, column(stage))[0] for stage in ("frontend", "queue"))
    by_tenant = held_by_tenant(around)
    if not waited > 0 or by_tenant.empty:
        return ""
    held = float(by_tenant["held_waiting_seconds"].iloc[0])
    if not held > 0:
        return tell("No other request held a place in the batch while it waited.")
    return tell(
        "While it waited {time} for its place in the batch, {who} held {places} places on average "
        "(association, not proof).",
        time=seconds(waited),
        who=who(str(by_tenant["tenant"].iloc[0])),
        places=f"{held / waited:.1f}",
    )
