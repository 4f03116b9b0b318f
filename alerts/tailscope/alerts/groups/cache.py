"""The key-value cache: too small for what runs at once."""

from __future__ import annotations

from tailscope.alerts import thresholds
from tailscope.alerts.model import Alert, Group, PanelLink, Severity
from tailscope.alerts.queries import ENGINE, SHORT
from tailscope.catalogue.promql import compare, every, ratio

PREEMPTING = Alert(
    name="TailscopeCachePreempting",
    severity=Severity.WARNING,
    cause="kv_cache",
    expr=every(
        compare(
            ratio(
                SHORT.rate("engine_preemptions_total"),
                SHORT.rate("engine_requests_finished_total"),
            ),
            ">",
            thresholds.PREEMPTIONS.value,
        ),
        compare(SHORT.time_mean("engine_kv_cache_usage_ratio"), ">", thresholds.CACHE_USAGE.value),
        on=ENGINE,
    ),
    lasts="5m",
    lingers="5m",
    labels=ENGINE,
    summary="{{ .Labels.server }} computes requests twice: its key-value cache is full",
    description="{{ .Value | humanizePercentage }} as many preemptions as requests ended on "
    "{{ .Labels.server }} ({{ .Labels.model }}) over 5 minutes "
    f"(limit {thresholds.PREEMPTIONS.percent}), with more than "
    f"{thresholds.CACHE_USAGE.percent} of the cache in use. A preempted request starts over.",
    panel=PanelLink("tailscope-triage", 505),
)

GROUP = Group("tailscope-cache", (PREEMPTING,))
