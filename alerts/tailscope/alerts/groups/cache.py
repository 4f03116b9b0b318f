"""Caches: the key-value cache too small for what runs at once, or a prefix cache that fell."""

from __future__ import annotations

from typing import Any, Final

from tailscope.alerts.model import Alert, Group, PanelLink, Recording, Severity
from tailscope.alerts.queries import ENGINE, LONG, SHORT, STEADY, recorded
from tailscope.alerts.thresholds import Limits, Threshold
from tailscope.catalogue.promql import compare, every, ratio, times

_USAGE: Final = "engine_kv_cache_usage_ratio"
_LOOKED_UP: Final = "engine_prefix_cache_query_tokens_total"
_PREEMPTED: Final = ratio(
    SHORT.rate("engine_preemptions_total"), SHORT.rate("engine_requests_finished_total")
)
_TWICE: Final = (
    "{{ .Value | humanizePercentage }} as many preemptions as requests ended on "
    "{{ .Labels.server }} ({{ .Labels.model }}) over 5 minutes"
)

HITS: Final = Recording(
    "server:tailscope_engine_prefix_cache_hit:ratio_rate15m",
    ratio(STEADY.rate("engine_prefix_cache_hit_tokens_total"), STEADY.rate(_LOOKED_UP)),
    "Share of the looked-up prompt tokens that were in the prefix cache, over 15 minutes.",
    ENGINE,
)
_PAST: Final = recorded(HITS.name, "6h", "1h")


def _pressure(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeCachePressure",
        severity=Severity.WARNING,
        cause="kv_cache",
        expr=every(
            compare(LONG.time_mean(_USAGE), ">", limits.cache_full.value),
            compare(LONG.time_mean("engine_requests_waiting"), ">", limits.cache_waiting.value),
            on=ENGINE,
        ),
        lasts="10m",
        lingers="5m",
        labels=ENGINE,
        summary="The key-value cache of {{ .Labels.server }} is full, and requests wait for it",
        description="{{ .Value | humanizePercentage }} of the key-value cache of "
        "{{ .Labels.server }} ({{ .Labels.model }}) was in use on average over 10 minutes "
        f"(limit {limits.cache_full.percent}), and more than {limits.cache_waiting.value:g} "
        "request waited for a place.",
        panel=PanelLink("tailscope-decode", 401),
    )


def _preempted(limits: Limits, over: Threshold, **alert: Any) -> Alert:
    """Preemptions for each request above a limit, while the cache is full."""
    return Alert(
        cause="kv_cache",
        expr=every(
            compare(_PREEMPTED, ">", over.value),
            compare(SHORT.time_mean(_USAGE), ">", limits.cache_usage.value),
            on=ENGINE,
        ),
        lingers="5m",
        labels=ENGINE,
        **alert,
    )


def _preempting(limits: Limits) -> Alert:
    return _preempted(
        limits,
        limits.preemptions,
        name="TailscopeCachePreempting",
        severity=Severity.WARNING,
        lasts="5m",
        summary="{{ .Labels.server }} computes requests twice: its key-value cache is full",
        description=f"{_TWICE} (limit {limits.preemptions.percent}), with more than "
        f"{limits.cache_usage.percent} of the cache in use. A preempted request starts over.",
        panel=PanelLink("tailscope-triage", 505),
    )


def _storm(limits: Limits) -> Alert:
    return _preempted(
        limits,
        limits.preemption_storm,
        name="TailscopePreemptionStorm",
        severity=Severity.CRITICAL,
        lasts="3m",
        summary="{{ .Labels.server }} spends its time on requests that it computed before",
        description=f"{_TWICE} (limit {limits.preemption_storm.percent}). Each throws computed "
        "tokens away, and the load that it makes preempts the next.",
        panel=PanelLink("tailscope-decode", 402),
    )


def _collapse(limits: Limits) -> Alert:
    return Alert(
        name="TailscopePrefixCacheCollapse",
        severity=Severity.WARNING,
        cause="prefix_cache",
        expr=every(
            compare(HITS.name, "<", times(limits.prefix_fall.value, _PAST)),
            compare(_PAST, ">", limits.prefix_past.value),
            compare(LONG.rate(_LOOKED_UP), ">", limits.least_lookups.value),
            on=ENGINE,
        ),
        lasts="10m",
        labels=ENGINE,
        summary="The prefix cache of {{ .Labels.server }} hits far less than it did",
        description="{{ .Value | humanizePercentage }} of the looked-up prompt tokens of "
        "{{ .Labels.model }} on {{ .Labels.server }} were in the prefix cache over 15 minutes, "
        f"less than {limits.prefix_fall.percent} of its mean of the 6 hours before the last one. "
        "The rest has to be computed again.",
        panel=PanelLink("tailscope-prefill", 301),
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group(
        "tailscope-cache",
        (_pressure(limits), _preempting(limits), _storm(limits), _collapse(limits)),
        (HITS,),
    )
