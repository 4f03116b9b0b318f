"""The finding in words, without naming anybody. It never says more than was computed."""

from __future__ import annotations

from tailscope.triage.finding import Finding
from tailscope.triage.neighbours import Neighbourhood, held_by_tenant
from tailscope.triage.quantiles import Quantile
from tailscope.triage.slow import MIN_REQUESTS
from tailscope.triage.stages import STAGES, column, floats
from tailscope.triage.words import moment, percent, plural, seconds

_STAGE = {
    "frontend": "the frontend, before the engine's queue",
    "queue": "the queue",
    "prefill": "prefill",
    "decode": "decode",
}


def headline(finding: Finding) -> str:
    """The percentiles, over how many requests, since when."""
    window, total = finding.window, finding.latency.total
    if not window.requests:
        return "There is no request in this window."
    since = f"since {moment(window.start_ns)}" if window.start_ns is not None else ""
    if total is None:
        return f"{plural(window.requests, 'request')} {since}, none with a total time."
    return (
        f"p50 {level(total.p50)}, p99 {level(total.p99)} "
        f"over {plural(total.count, 'request')} {since}." + _cut(finding)
    )


def level(found: Quantile) -> str:
    """A percentile in words; ``over`` one of which only that is known."""
    return seconds(found.value) if found.bounded else f"over {seconds(found.value)}"


def _cut(finding: Finding) -> str:
    cut = finding.latency.cut
    if cut is None:
        return ""
    ends = f"{percent(cut.share)} of requests end there."
    if cut.level is None:
        return f" Requests are given up at {seconds(cut.seconds)}: {ends}"
    return f" {cut.level} is cut at {seconds(cut.seconds)}: {ends}"


def slowness(finding: Finding) -> tuple[str, ...]:
    """Which requests are slow, and in which stage, in sentences."""
    slow = finding.slow
    if not finding.window.requests:
        return ()
    if slow.threshold is None:
        return (_undecided(finding),)
    if not slow.requests:
        return (_none_slow(finding),)
    return (_which(finding), _where(finding))


def _undecided(finding: Finding) -> str:
    if finding.window.requests < MIN_REQUESTS:
        return f"Fewer than {MIN_REQUESTS} requests are too few to say which are unusually slow."
    return "Without times nothing can be said about slow requests."


def _none_slow(finding: Finding) -> str:
    limit = seconds(finding.slow.threshold or 0.0)
    if finding.slow.rule.seconds is not None:
        return f"No request took {limit} or more."
    return f"No request took {limit} longer than it would alone: nothing is slow."


def _which(finding: Finding) -> str:
    slow = finding.slow
    limit = seconds(slow.threshold or 0.0)
    verb, each = ("is", "it") if slow.requests == 1 else ("are", "they")
    if slow.rule.seconds is not None:
        return f"{plural(slow.requests, 'request')} {verb} slow: {limit} or more."
    return (
        f"{plural(slow.requests, 'request')} {verb} slow: at least {limit} longer than {each} "
        "would take alone."
    )


def _where(finding: Finding) -> str:
    slow = finding.slow
    if not slow.by_stage:
        return "No stage times are known, so nobody can say where the slow seconds lie."
    if slow.stage is None or slow.stage_share is None:
        return "They took no longer than they would alone: they are long, not slowed down."
    return f"{percent(slow.stage_share)} of the slow seconds are in {_STAGE[slow.stage]}."


def stages(around: Neighbourhood) -> str:
    """The times of one request: the whole, then each stage that is known."""
    whole = floats(around.request, "total_seconds")[0]
    known = {stage: floats(around.request, column(stage))[0] for stage in STAGES}
    parts = ", ".join(f"{seconds(v)} {stage}" for stage, v in known.items() if v == v)
    if whole != whole:
        return f"It took {parts}." if parts else "Its times are not known."
    return f"It took {seconds(whole)}" + (f": {parts}." if parts else "; its stages are not known.")


def beside(around: Neighbourhood) -> str:
    """Whose requests held the batch while one request waited for its place; empty if unknown."""
    waited = sum(floats(around.request, column(stage))[0] for stage in ("frontend", "queue"))
    by_tenant = held_by_tenant(around)
    if not waited > 0 or by_tenant.empty:
        return ""
    held = float(by_tenant["held_waiting_seconds"].iloc[0])
    if not held > 0:
        return "No other request held a place in the batch while it waited."
    name = str(by_tenant["tenant"].iloc[0])
    who = "requests without a tenant" if name == "unknown" else f"tenant {name}"
    return (
        f"While it waited {seconds(waited)} for its place in the batch, {who} held "
        f"{held / waited:.1f} places on average (association, not proof)."
    )
