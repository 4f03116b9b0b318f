"""Tenants: whose load it is, and who waits. A load is not a blame: that is for the triage app."""

from __future__ import annotations

from tailscope.catalogue.promql import share
from tailscope.dashboards import columns
from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import table, timeseries
from tailscope.dashboards.query import EVERYONE, NOW, RANGE, Series
from tailscope.dashboards.style import Unit

_TENANT = ("tenant",)
_SLOTS = "tenant_slot_seconds_total"
_TTFT = "request_time_to_first_token_seconds"

ROW = Row(
    600,
    "Tenants",
    (
        timeseries(
            601,
            "Share of the batch by tenant",
            "Share of the time that requests held a place in the batch. A tenant above half whose "
            "share just grew, while others wait, is where to start: see its requests in the triage "
            "app before you limit it.",
            Unit.RATIO,
            Series("{{tenant}}", share(NOW.rate(_SLOTS, _TENANT), EVERYONE.rate(_SLOTS, ()))),
            stacked=True,
            top=1,
            width=12,
        ),
        timeseries(
            602,
            "Input tokens by tenant",
            "Prompt tokens that each tenant sent, a second. A jump here that the queue wait "
            "follows is a burst of long prompts.",
            Unit.TOKENS_PER_SECOND,
            Series("{{tenant}}", NOW.rate("tenant_input_tokens_total", _TENANT)),
            stacked=True,
            width=12,
        ),
        timeseries(
            603,
            "Time to first token by tenant, p99",
            "Who waits. A tenant that is slow alone sends other prompts than the rest; all slow "
            "together share a queue.",
            Unit.SECONDS,
            Series("{{tenant}}", NOW.quantile(0.99, _TTFT, _TENANT), exemplars=True),
            width=12,
        ),
        timeseries(
            604,
            "Requests by outcome",
            "Requests that ended, by how. Aborted and timed-out requests are slow ones that the "
            "curves above do not show in full.",
            Unit.REQUESTS_PER_SECOND,
            Series("{{outcome}}", NOW.rate("requests_total", ("outcome",))),
            stacked=True,
            width=12,
        ),
        table(
            605,
            "Tenants over the time range",
            "The same for the whole time range of the board. A tenant with far more of the batch "
            "than of the requests sends long prompts or outputs: offer it a queue of its own.",
            _TENANT,
            columns.BATCH_SHARE,
            columns.REQUESTS,
            columns.INPUT_TOKENS,
            columns.OUTPUT_TOKENS,
            (Series("First token p50", RANGE.quantile(0.5, _TTFT, _TENANT)), Unit.SECONDS),
            columns.FIRST_TOKEN_P99,
            columns.TOTAL_P99,
        ),
    ),
)
