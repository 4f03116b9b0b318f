"""Retries and timeouts: work that is done again, or for nobody. From request records."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from tailscope.alerts.model import Alert, Group, PanelLink, Recording, Severity
from tailscope.alerts.queries import LONG, REQUESTS, SHORT
from tailscope.alerts.thresholds import Limits
from tailscope.catalogue.promql import compare, either, every, ratio, times

_SHORT: Final = replace(SHORT, by=REQUESTS)
_LONG: Final = replace(LONG, by=REQUESTS)
_REQUESTS: Final = "requests_total"
_TIMEOUT: Final = "layer:tailscope_timeout:seconds"
_LAYERS: Final = ("client", "gateway", "engine")
"""Outermost first: each must outlive the next."""


def _recordings(limits: Limits) -> tuple[Recording, ...]:
    return tuple(
        Recording(
            _TIMEOUT,
            f"vector({getattr(limits.timeouts, layer).value:g})",
            f"When the {layer} gives up, as thresholds.yaml has it.",
            (),
            {"layer": layer},
        )
        for layer in _LAYERS
    )


def _retries(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeRetryStorm",
        severity=Severity.CRITICAL,
        cause="retries",
        expr=every(
            compare(
                ratio(_SHORT.rate("request_retries_total"), _SHORT.rate(_REQUESTS)),
                ">",
                limits.retries.value,
            ),
            compare(_SHORT.rate(_REQUESTS), ">", limits.least_traffic.value),
            on=REQUESTS,
        ),
        lasts="5m",
        lingers="5m",
        labels=REQUESTS,
        summary="Clients of {{ .Labels.server }} try again and again",
        description="{{ .Value | humanizePercentage }} as many retries as requests came to "
        "{{ .Labels.model }} on {{ .Labels.server }} over 5 minutes "
        f"(limit {limits.retries.percent}). Retries fill the queue that makes clients retry.",
        panel=PanelLink("tailscope-queue", 401),
    )


def _given_up(limits: Limits) -> Alert:
    lost = _LONG.rate(_REQUESTS, match={"outcome": "~aborted|queue_timeout|generation_timeout"})
    return Alert(
        name="TailscopeRequestsGivenUp",
        severity=Severity.WARNING,
        cause="timeouts",
        expr=every(
            compare(ratio(lost, _LONG.rate(_REQUESTS)), ">", limits.given_up.value),
            compare(_LONG.rate(_REQUESTS), ">", limits.least_traffic.value),
            on=REQUESTS,
        ),
        lasts="10m",
        labels=REQUESTS,
        summary="Many requests to {{ .Labels.server }} end before their answer",
        description="{{ .Value | humanizePercentage }} of the requests for {{ .Labels.model }} on "
        "{{ .Labels.server }} were aborted or timed out over 10 minutes "
        f"(limit {limits.given_up.percent}). Their work was for nobody.",
        panel=PanelLink("tailscope-queue", 403),
    )


def _near(limits: Limits) -> Alert:
    shortest = times(limits.near_timeout.value, f"scalar(min ({_TIMEOUT}))")
    return Alert(
        name="TailscopeLatencyNearTimeout",
        severity=Severity.WARNING,
        cause="timeouts",
        expr=every(
            compare(_LONG.quantile(0.99, "request_seconds"), ">", shortest),
            compare(
                _LONG.rate("request_seconds", suffix="_count"), ">", limits.least_traffic.value
            ),
            on=REQUESTS,
        ),
        lasts="10m",
        labels=REQUESTS,
        summary="The slowest requests of {{ .Labels.server }} will soon time out",
        description='The p99 of the total time is {{ printf "%.0f" .Value }} s for '
        "{{ .Labels.model }} on {{ .Labels.server }} over 10 minutes, above "
        f"{limits.near_timeout.percent} of the shortest timeout.",
        panel=PanelLink("tailscope-queue", 405),
    )


def _layers() -> Alert:
    def largest(layer: str) -> str:
        return f'max ({_TIMEOUT}{{layer="{layer}"}})'

    def smallest(layer: str) -> str:
        return f'min ({_TIMEOUT}{{layer="{layer}"}})'

    return Alert(
        name="TailscopeTimeoutLayers",
        severity=Severity.WARNING,
        cause="timeouts",
        expr=either(
            *(compare(largest(inner), ">=", smallest(outer)) for outer, inner in pairwise(_LAYERS))
        ),
        lasts="5m",
        labels=(),
        summary="An inner timeout is not shorter than the one around it",
        description='A timeout of {{ printf "%.0f" .Value }} s is not shorter than that of the '
        "layer around it. When the outer one ends, the inner one goes on for nobody.",
        panel=PanelLink("tailscope-queue", 404),
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group(
        "tailscope-outcomes",
        (_retries(limits), _given_up(limits), _near(limits), _layers()),
        _recordings(limits),
    )
