"""The finding in words. It never says more than was computed."""

from __future__ import annotations

from tailscope.triage.contrast import stands_out
from tailscope.triage.finding import Finding
from tailscope.triage.gpusentence import suspicions
from tailscope.triage.loads import TenantLoad
from tailscope.triage.neighbours import Neighbourhood, held_by_tenant
from tailscope.triage.slow import MIN_REQUESTS
from tailscope.triage.stages import STAGES, column, floats
from tailscope.triage.words import moment, percent, plural, seconds

MIN_SLOW = 8
"""With fewer slow requests than this no tenant is named beside them."""

_STAGE = {
    "frontend": "the frontend, before the engine's queue",
    "queue": "the queue",
    "prefill": "prefill",
    "decode": "decode",
}
_WHILE = {
    "frontend": "while they waited",
    "queue": "while they waited",
    "prefill": "during their prefill",
    "decode": "while they decoded",
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
        f"p50 {seconds(total.p50.value)}, p99 {seconds(total.p99.value)} "
        f"over {plural(total.count, 'request')} {since}."
    )


def verdict(finding: Finding) -> tuple[str, ...]:
    """Which requests are slow, in which stage, and whose load was beside them, in sentences."""
    slow = finding.slow
    if not finding.window.requests:
        return ()
    if slow.threshold is None:
        return (_undecided(finding),)
    if not slow.requests:
        return (_none_slow(finding),)
    said = [_which(finding), _where(finding)]
    if slow.stage and finding.tenants:
        said.append(_beside(finding, finding.tenants[0]))
    return tuple(filter(None, said))


def sentence(finding: Finding) -> str:
    """The whole finding as one paragraph."""
    return " ".join([headline(finding), *verdict(finding), *suspicions(finding.gpus)])


def _undecided(finding: Finding) -> str:
    if finding.window.requests < MIN_REQUESTS:
        return f"Fewer than {MIN_REQUESTS} requests are too few to say which are unusually slow."
    return "Without times nothing can be said about slow requests."


def _none_slow(finding: Finding) -> str:
    limit = seconds(finding.slow.threshold or 0.0)
    if finding.slow.rule.seconds is not None:
        return f"No request took {limit} or more."
    return f"No request took {limit} longer than is usual for its size: nothing is slow."


def _which(finding: Finding) -> str:
    slow = finding.slow
    limit = seconds(slow.threshold or 0.0)
    verb = "is" if slow.requests == 1 else "are"
    if slow.rule.seconds is not None:
        return f"{plural(slow.requests, 'request')} {verb} slow: {limit} or more."
    return (
        f"{plural(slow.requests, 'request')} {verb} slow: at least {limit} longer than is usual "
        "for the size."
    )


def _where(finding: Finding) -> str:
    slow = finding.slow
    if not slow.by_stage:
        if finding.latency.stages:
            return "No ordinary request is comparable, so nobody can say what they lost where."
        return "No stage times are known, so nobody can say where the slow seconds lie."
    if slow.stage is None or slow.stage_share is None:
        return "They took no longer than is usual for their size: they are long, not slowed down."
    return f"{percent(slow.stage_share)} of the slow seconds are in {_STAGE[slow.stage]}."


def _beside(finding: Finding, top: TenantLoad) -> str:
    slow = finding.slow
    if slow.requests < MIN_SLOW:
        return f"Fewer than {MIN_SLOW} slow requests are too few to name a tenant beside them."
    if top.slot_share_slow is None or top.slot_share is None or slow.stage is None:
        return ""
    shares = f"{percent(top.slot_share)} over the whole window"
    if not stands_out(top.slot_share_slow, top.slot_share):
        who = "those without one" if top.name == "unknown" else top.name
        return (
            f"No tenant stood out {_WHILE[slow.stage]}: the largest, {who}, held "
            f"{percent(top.slot_share_slow)} of the batch, {shares}."
        )
    who = "Requests without a tenant" if top.name == "unknown" else f"Tenant {top.name}"
    own = f"; {top.slow:,} of the {slow.requests:,} are its own" if top.slow else ""
    return (
        f"{who} held {percent(top.slot_share_slow)} of the batch {_WHILE[slow.stage]}, "
        f"{shares}{own} (association, not proof)."
    )


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
