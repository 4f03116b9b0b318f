"""Headroom: how near a server is to what it can do, and when it will be there.

No engine tells its capacity. The batch is full when requests wait for it, so the largest batch
that was seen while some waited is its limit; until that happened once, there is none to compare
with. The key-value cache tells its own share.
"""

from __future__ import annotations

from typing import Final

from tailscope.alerts.model import Alert, Group, PanelLink, Recording, Severity
from tailscope.alerts.queries import ENGINE, SHORT, recorded
from tailscope.alerts.thresholds import Limits
from tailscope.catalogue.promql import compare, every, ratio

_RUNNING: Final = SHORT.time_mean("engine_requests_running")
_WAITING: Final = SHORT.time_mean("engine_requests_waiting")
_FULL: Final = "server:tailscope_engine_full_batch:requests_rate5m"
_USED: Final = "server:tailscope_engine_utilisation:ratio_rate5m"
_AHEAD: Final = "30m"
_LABELS: Final = (*ENGINE, "resource")
_PANEL: Final = PanelLink("tailscope-queue", 102)


def _recordings(limits: Limits) -> tuple[Recording, ...]:
    return (
        Recording(
            _FULL,
            every(_RUNNING, compare(_WAITING, ">", limits.full_batch_waiting.value), on=ENGINE),
            "Running requests while others waited: the batch was as large as it can be.",
            ENGINE,
        ),
        Recording(
            _USED,
            ratio(_RUNNING, recorded(_FULL, "7d", over="max_over_time")),
            "Running requests over the largest full batch of 7 days.",
            ENGINE,
            {"resource": "batch"},
        ),
        Recording(
            _USED,
            SHORT.time_mean("engine_kv_cache_usage_ratio"),
            "Share of the key-value cache in use, over 5 minutes.",
            ENGINE,
            {"resource": "cache"},
        ),
    )


def _low(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeHeadroomLow",
        severity=Severity.WARNING,
        cause="headroom",
        expr=compare(_USED, ">", limits.utilisation.value),
        lasts="15m",
        lingers="10m",
        labels=_LABELS,
        summary="{{ .Labels.server }} has little room left in its {{ .Labels.resource }}",
        description="{{ .Value | humanizePercentage }} of the {{ .Labels.resource }} of "
        "{{ .Labels.server }} ({{ .Labels.model }}) is in use "
        f"(limit {limits.utilisation.percent}). From here a little more load makes a much longer "
        "wait.",
        panel=_PANEL,
    )


def _shrinking(limits: Limits) -> Alert:
    ahead = f"predict_linear({_USED}[{_AHEAD}], {limits.utilisation_ahead.value:g})"
    minutes = f"{limits.utilisation_ahead.value / 60:g} minutes"
    return Alert(
        name="TailscopeHeadroomShrinking",
        severity=Severity.INFO,
        cause="headroom",
        expr=every(
            compare(ahead, ">", limits.utilisation.value),
            compare(_USED, ">", limits.utilisation_floor.value),
            compare(_USED, "<=", limits.utilisation.value),
            on=_LABELS,
        ),
        lasts="10m",
        labels=_LABELS,
        summary=f"{{{{ .Labels.server }}}} will have little room left in {minutes}",
        description=f"In {minutes}, as it grew in the last 30, "
        "{{ .Value | humanizePercentage }} of the {{ .Labels.resource }} of "
        "{{ .Labels.server }} ({{ .Labels.model }}) will be in use "
        f"(limit {limits.utilisation.percent}).",
        panel=_PANEL,
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group("tailscope-capacity", (_low(limits), _shrinking(limits)), _recordings(limits))
