"""Requests that wait, and engines that do not work.

From the engine's own metrics, so that they hold without request records. The means are exact,
however wide the engine's buckets are; quantiles would not be.
"""

from __future__ import annotations

from tailscope.alerts.model import Alert, Group, PanelLink, Severity
from tailscope.alerts.queries import ENGINE, LONG, SHORT
from tailscope.alerts.thresholds import Limits
from tailscope.catalogue.promql import compare, engine_wait, every, ratio, times

_WAITING = SHORT.time_mean("engine_requests_waiting")
_RUNNING = SHORT.time_mean("engine_requests_running")
_TTFT = "engine_time_to_first_token_seconds"


def _saturated(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeQueueSaturated",
        severity=Severity.CRITICAL,
        cause="queue",
        # Depth alone is noise when arrivals are bursty; depth and wait together harm users.
        expr=every(
            compare(engine_wait(SHORT), ">", limits.queue_wait.value),
            compare(_WAITING, ">", times(limits.queue_depth.value, _RUNNING)),
            on=ENGINE,
        ),
        lasts="3m",
        lingers="5m",
        labels=ENGINE,
        summary="Requests wait for a place in the batch of {{ .Labels.server }}",
        description="Requests for {{ .Labels.model }} on {{ .Labels.server }} waited "
        '{{ printf "%.1f" .Value }} s in the queue on average over 5 minutes '
        f"(limit {limits.queue_wait.seconds}), and the queue is longer than "
        f"{limits.queue_depth.percent} of the batch.",
        panel=PanelLink("tailscope-queue", 205),
    )


def _dominates(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeQueueDominatesFirstToken",
        severity=Severity.WARNING,
        cause="queue",
        expr=every(
            compare(
                ratio(
                    LONG.rate("engine_queue_seconds", suffix="_sum"),
                    LONG.rate(_TTFT, suffix="_sum"),
                ),
                ">",
                limits.queue_share.value,
            ),
            compare(LONG.mean(_TTFT), ">", limits.slow_first_token.value),
            compare(LONG.rate(_TTFT, suffix="_count"), ">", limits.least_traffic.value),
            on=ENGINE,
        ),
        lasts="10m",
        labels=ENGINE,
        summary="Most of the time to first token on {{ .Labels.server }} is waiting",
        description="{{ .Value | humanizePercentage }} of the time to first token of "
        "{{ .Labels.model }} on {{ .Labels.server }} was spent in the queue over 10 minutes "
        f"(limit {limits.queue_share.percent}). A faster prefill would not help.",
        panel=PanelLink("tailscope-queue", 204),
    )


def _stalled(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeEngineStalled",
        severity=Severity.CRITICAL,
        cause="engine",
        # A queue that nothing leaves is in no latency: histograms count requests that ended.
        expr=every(
            compare(f"{_RUNNING} + {_WAITING}", ">", limits.stalled_load.value),
            compare(SHORT.rate("engine_generation_tokens_total"), "==", 0),
            compare(SHORT.rate("engine_prompt_tokens_total"), "==", 0),
            on=ENGINE,
        ),
        lasts="2m",
        labels=ENGINE,
        summary="{{ .Labels.server }} has requests and makes no tokens",
        description='{{ printf "%.1f" .Value }} requests on average were in {{ .Labels.server }} '
        "({{ .Labels.model }}) over 5 minutes, and no token was read or written.",
        panel=PanelLink("tailscope-triage", 302),
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group("tailscope-queue", (_saturated(limits), _dominates(limits), _stalled(limits)))
