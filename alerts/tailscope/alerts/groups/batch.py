"""The batch: prefills that hold up decodes, a batch that swings, prompts of uneven length."""

from __future__ import annotations

from typing import Final

from tailscope.alerts.model import Alert, Group, PanelLink, Severity
from tailscope.alerts.queries import ENGINE, LONG, STEADY
from tailscope.alerts.thresholds import Limits
from tailscope.catalogue.promql import Query, compare, every, ratio

_GAP: Final = "engine_inter_token_latency_seconds"
_TTFT: Final = "engine_time_to_first_token_seconds"
_RUNNING: Final = "engine_requests_running"


def _spread(query: Query, metric: str, high: float) -> str:
    return ratio(query.quantile(high, metric), query.quantile(0.5, metric))


def _interference(limits: Limits) -> Alert:
    return Alert(
        name="TailscopePrefillInterference",
        severity=Severity.WARNING,
        cause="interference",
        # Gaps alone may have another cause; together with uneven steps it is the prefills.
        expr=every(
            compare(_spread(LONG, _GAP, 0.99), ">", limits.stutter.value),
            compare(_spread(LONG, "engine_step_tokens", 0.99), ">", limits.step_spread.value),
            compare(LONG.rate(_GAP, suffix="_count"), ">", limits.least_outputs.value),
            on=ENGINE,
        ),
        lasts="10m",
        labels=ENGINE,
        summary="Long prompts hold up the tokens of others on {{ .Labels.server }}",
        description='The slowest gaps between tokens are {{ printf "%.1f" .Value }} times the '
        "usual ones for {{ .Labels.model }} on {{ .Labels.server }} over 10 minutes "
        f"(limit {limits.stutter.value:g}), and its batch steps are as uneven: some carry "
        "prompts.",
        panel=PanelLink("tailscope-decode", 201),
    )


def _swinging(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeBatchSpread",
        severity=Severity.INFO,
        cause="batch_spread",
        expr=every(
            compare(_spread(STEADY, _RUNNING, 0.95), ">", limits.batch_spread.value),
            compare(STEADY.quantile(0.95, _RUNNING), ">", limits.batch_floor.value),
            on=ENGINE,
        ),
        lasts="15m",
        labels=ENGINE,
        summary="The batch of {{ .Labels.server }} swings, and with it everybody's pace",
        description='The p95 of the running requests is {{ printf "%.1f" .Value }} times their '
        "p50 on {{ .Labels.server }} ({{ .Labels.model }}) over 15 minutes "
        f"(limit {limits.batch_spread.value:g}). The time for a token swings alike.",
        panel=PanelLink("tailscope-decode", 301),
    )


def _uneven(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeInputLengthSpread",
        severity=Severity.INFO,
        cause="input_length",
        expr=every(
            compare(
                _spread(STEADY, "engine_request_input_tokens", 0.95),
                ">",
                limits.input_spread.value,
            ),
            compare(STEADY.mean(_TTFT), ">", limits.slow_first_token.value),
            compare(STEADY.rate(_TTFT, suffix="_count"), ">", limits.least_traffic.value),
            on=ENGINE,
        ),
        lasts="15m",
        labels=ENGINE,
        summary="Prompts of very different lengths share {{ .Labels.server }}",
        description='The p95 of the input tokens is {{ printf "%.1f" .Value }} times their p50 '
        "for {{ .Labels.model }} on {{ .Labels.server }} over 15 minutes "
        f"(limit {limits.input_spread.value:g}), and the mean time to first token is above "
        f"{limits.slow_first_token.seconds}.",
        panel=PanelLink("tailscope-prefill", 202),
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group("tailscope-batch", (_interference(limits), _swinging(limits), _uneven(limits)))
