"""Tenants: who loads the engines, who waits, and how that changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tailscope.catalogue.promql import difference, filled, ratio, share
from tailscope.dashboards import columns
from tailscope.dashboards.board import Board, Row
from tailscope.dashboards.links import OF_CELL, OF_SERIES
from tailscope.dashboards.panels import table, timeseries
from tailscope.dashboards.query import (
    EARLIER,
    EVERYONE,
    NOW,
    RANGE,
    Series,
)
from tailscope.dashboards.style import FAILURES, Unit
from tailscope.dashboards.variables import FIRST_TOKEN_SLO, OFFSET

_TENANT: Final = ("tenant",)
_SLOTS: Final = "tenant_slot_seconds_total"
_TTFT: Final = "request_time_to_first_token_seconds"
_EARLIER_EVERYONE: Final = replace(EVERYONE, offset=EARLIER.offset)

_SHARE: Final = share(NOW.rate(_SLOTS, _TENANT), EVERYONE.rate(_SLOTS, ()))
_SHARE_EARLIER: Final = share(EARLIER.rate(_SLOTS, _TENANT), _EARLIER_EVERYONE.rate(_SLOTS, ()))
_REQUESTS: Final = NOW.rate("requests_total", _TENANT)
_NOT_OK: Final = NOW.rate("requests_total", _TENANT, {"outcome": "!ok"})

LOAD: Final = Row(
    100,
    "Who loads the engines",
    (
        timeseries(
            101,
            "Share of the batch by tenant",
            "Share of the time that requests held a place in the batch. A load, not a blame: open "
            "the tenant's requests in the triage app before you limit it.",
            Unit.RATIO,
            Series("{{tenant}}", _SHARE),
            stacked=True,
            top=1,
            links=OF_SERIES,
            width=12,
        ),
        timeseries(
            102,
            "Share now less share before",
            "Whose part grew since the chosen time before. The tenant that grew when the queue did "
            "is where to start; one that was always large is not news.",
            Unit.RATIO,
            Series("{{tenant}}", difference(_SHARE, _SHARE_EARLIER)),
            top=1,
            lowest=-1,
            links=OF_SERIES,
            width=12,
        ),
        timeseries(
            103,
            "Requests by tenant",
            "Requests that ended. A jump in requests is a burst; a jump in share without one is "
            "longer work for each request.",
            Unit.REQUESTS_PER_SECOND,
            Series("{{tenant}}", _REQUESTS),
            stacked=True,
            links=OF_SERIES,
        ),
        timeseries(
            104,
            "Input tokens by tenant",
            "Prompt tokens. A jump here that the queue wait follows is a burst of long prompts: "
            "give that tenant a limit of tokens, not of requests.",
            Unit.TOKENS_PER_SECOND,
            Series("{{tenant}}", NOW.rate("tenant_input_tokens_total", _TENANT)),
            stacked=True,
            links=OF_SERIES,
        ),
        timeseries(
            105,
            "Output tokens by tenant",
            "Generated tokens. They hold a place in the batch for longest: cap max_tokens where "
            "one tenant has most of them.",
            Unit.TOKENS_PER_SECOND,
            Series("{{tenant}}", NOW.rate("tenant_output_tokens_total", _TENANT)),
            stacked=True,
            links=OF_SERIES,
        ),
    ),
)

HARM: Final = Row(
    200,
    "Who waits",
    (
        timeseries(
            201,
            "Time to first token by tenant, p99",
            "A tenant that is slow alone sends other prompts than the rest: cap or cache them. "
            "All slow together share a queue: look above for whoever fills it.",
            Unit.SECONDS,
            Series("{{tenant}}", NOW.quantile(0.99, _TTFT, _TENANT), exemplars=True),
            links=OF_SERIES,
            width=12,
        ),
        timeseries(
            202,
            "Total time by tenant, p99",
            "From arrival to the last token. It grows with the length of the output: compare it "
            "with the output tokens above before you act.",
            Unit.SECONDS,
            Series("{{tenant}}", NOW.quantile(0.99, "request_seconds", _TENANT), exemplars=True),
            links=OF_SERIES,
            width=12,
        ),
        timeseries(
            203,
            "First token within ${first:text}",
            "Share of each tenant's requests whose first token came in the chosen time: exact, at "
            "a bound of the buckets. The lowest curve is the tenant to help first.",
            Unit.RATIO,
            Series("{{tenant}}", NOW.share_within("$first", _TTFT, _TENANT)),
            top=1,
            links=OF_SERIES,
        ),
        timeseries(
            204,
            "Requests that did not end well, by tenant",
            "Share of each tenant's requests that ended in anything but ok. One tenant alone: its "
            "client is at fault. All of them: the service is.",
            Unit.RATIO,
            Series("{{tenant}}", ratio(filled(_NOT_OK, _REQUESTS), _REQUESTS)),
            limits=FAILURES,
            top=1,
            links=OF_SERIES,
        ),
        timeseries(
            205,
            "Retries for each request, by tenant",
            "Attempts after the first, for each request. Above 0.2 the tenant's client feeds the "
            "queue: its timeout is too short, or it does not back off.",
            Unit.FACTOR,
            Series("{{tenant}}", ratio(NOW.rate("request_retries_total", _TENANT), _REQUESTS)),
            links=OF_SERIES,
        ),
    ),
)

TABLE: Final = Row(
    300,
    "Over the time range",
    (
        table(
            301,
            "Tenants over the time range",
            "One line a tenant, largest share first; click a name for its requests. Much batch "
            "time a request: long work, to be given a queue of its own.",
            _TENANT,
            columns.BATCH_SHARE,
            columns.REQUESTS,
            (
                Series(
                    "Batch time a request",
                    ratio(RANGE.rate(_SLOTS, _TENANT), RANGE.rate("requests_total", _TENANT)),
                ),
                Unit.SECONDS,
            ),
            columns.INPUT_TOKENS,
            columns.OUTPUT_TOKENS,
            columns.FIRST_TOKEN_P99,
            columns.TOTAL_P99,
            links={"tenant": OF_CELL},
        ),
    ),
)

BOARD = Board(
    uid="tailscope-tenants",
    title="Tailscope / 6 Tenants",
    description="Whose load it is, who waits for it, and what changed. Needs request records.",
    rows=(LOAD, HARM, TABLE),
    variables=(FIRST_TOKEN_SLO, OFFSET),
)
