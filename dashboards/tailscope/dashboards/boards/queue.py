"""Queue, admission and retries: why a request does not start at once."""

from __future__ import annotations

from typing import Final

from tailscope.catalogue.promql import engine_wait, filled, ratio
from tailscope.dashboards.board import Board, Row
from tailscope.dashboards.links import OF_SERIES
from tailscope.dashboards.panels import heatmap, timeseries
from tailscope.dashboards.query import NOW, Series, quantiles
from tailscope.dashboards.style import FAILURES, Unit
from tailscope.dashboards.variables import TOTAL_SLO

_STAGE: Final = "request_stage_seconds"
_QUEUE: Final = {"stage": "queue"}
_TTFT: Final = "request_time_to_first_token_seconds"
_SERVER: Final = ("server",)
_FELT: Final = 1.0
_GIVEN_UP: Final = ("aborted", "queue_timeout", "generation_timeout")

_ALL: Final = NOW.rate("requests_total", ())
_REQUESTS: Final = NOW.rate("requests_total", _SERVER)


def _share_of(outcome: str) -> str:
    """Share of the requests that ended so: 0, not nothing, where none did."""
    return ratio(filled(NOW.rate("requests_total", (), {"outcome": outcome}), _ALL), _ALL)


LOAD: Final = Row(
    100,
    "Load: what waits and what runs",
    (
        timeseries(
            101,
            "Waiting requests by server (mean)",
            "True means, from samples of every second. One server waits and others do not: the "
            "router spreads badly. All wait: there is too little capacity, or one tenant too many.",
            Unit.COUNT,
            Series("{{server}}", NOW.time_mean("engine_requests_waiting", _SERVER)),
        ),
        timeseries(
            102,
            "Running requests by server (mean)",
            "Requests that hold a place in the batch. Flat while others wait: the batch is full. "
            "Falling while others wait: the engine got slower, or its cache is full.",
            Unit.COUNT,
            Series("{{server}}", NOW.time_mean("engine_requests_running", _SERVER)),
        ),
        timeseries(
            103,
            "Waiting requests by reason",
            "Why the engine lets them wait: capacity means that the batch or the cache is full; "
            "deferred means that a constraint of the request holds it. Not every engine says why.",
            Unit.COUNT,
            Series("{{reason}}", NOW.gauge("engine_requests_waiting_by_reason", ("reason",))),
            stacked=True,
        ),
        timeseries(
            104,
            "Running requests, counted twice",
            "Once from the engine's gauge, and once from the records, as seconds in prefill and "
            "decode a second. If the records lie far below, they miss requests: see board 8.",
            Unit.COUNT,
            Series("by the engine", NOW.time_mean("engine_requests_running", ())),
            Series(
                "by the records",
                NOW.rate(_STAGE, (), {"stage": "~prefill|decode"}, "_sum"),
            ),
            width=12,
        ),
        heatmap(
            105,
            "Depth of the queue, every second",
            "Each cell counts the seconds in which the queue was that deep. A thin line high up is "
            "a burst that a mean hides: spread the arrivals of whoever sends it.",
            Unit.COUNT,
            NOW.buckets("engine_requests_waiting_sampled", ()),
        ),
    ),
)

WAIT: Final = Row(
    200,
    "Queue wait",
    (
        timeseries(
            201,
            "Queue wait",
            "Time in the engine's queue before the first step. A p99 far above p50: a few wait "
            "behind long ones; let short requests go first. All high: admit less. All tenants.",
            Unit.SECONDS,
            *quantiles(_STAGE, _QUEUE),
        ),
        heatmap(
            202,
            "Queue wait, all requests",
            "Each cell counts the requests that waited so long. A band that rises is a queue that "
            "grows; it needs less load, not more patience. All tenants.",
            Unit.SECONDS,
            NOW.buckets(_STAGE, (), _QUEUE),
            width=8,
        ),
        timeseries(
            203,
            f"Requests that waited more than {_FELT:g} s",
            "Share of the requests, exact and not interpolated. Above a few percent users notice: "
            "look for the server that stands out. All tenants.",
            Unit.RATIO,
            Series("{{server}}", NOW.share_above(_FELT, _STAGE, _SERVER, _QUEUE)),
            limits=FAILURES,
            top=1,
        ),
        timeseries(
            204,
            "Queue share of the time to first token",
            "Share of all time to first token that is waiting. Above a half, a faster prefill "
            "would not help: only less load or more capacity does. The engine's own count leaves "
            "out the time before its queue.",
            Unit.RATIO,
            Series(
                "{{server}}",
                ratio(
                    NOW.rate(_STAGE, _SERVER, _QUEUE, "_sum"),
                    NOW.rate(_TTFT, _SERVER, None, "_sum"),
                ),
            ),
            Series(
                "{{server}}, by the engine",
                ratio(
                    NOW.rate("engine_queue_seconds", _SERVER, None, "_sum"),
                    NOW.rate("engine_time_to_first_token_seconds", _SERVER, None, "_sum"),
                ),
            ),
            top=1,
            width=12,
        ),
        timeseries(
            205,
            "Queue wait by the engine (mean)",
            "From the engine's own histogram, so it needs no records; where it has none, what "
            "waits over what ends in a second. It should agree with the records above: if not, "
            "see board 8.",
            Unit.SECONDS,
            Series("{{server}}", engine_wait(NOW, _SERVER)),
            width=12,
        ),
    ),
)

ADMISSION: Final = Row(
    300,
    "Admission",
    (
        timeseries(
            301,
            "Refused at the door",
            "Requests that the engine refused, by the limit that they met. A refusal at once is "
            "better than a timeout later; many of them mean that clients do not back off.",
            Unit.REQUESTS_PER_SECOND,
            Series("{{reason}}", NOW.rate("engine_admission_rejections_total", ("reason",))),
            stacked=True,
        ),
        timeseries(
            302,
            "max_tokens asked for, and tokens made (mean)",
            "What clients allow, and what they get. A limit far above what is made lets the engine "
            "plan for output that never comes: ask for a realistic one.",
            Unit.TOKENS,
            Series("asked for", NOW.mean("engine_request_max_tokens", ())),
            Series("made", NOW.mean("engine_request_output_tokens", ())),
        ),
        timeseries(
            303,
            "Requests by outcome",
            "Requests that ended, by how. Rejected and timed-out ones are slow requests that no "
            "latency shows in full.",
            Unit.REQUESTS_PER_SECOND,
            Series("{{outcome}}", NOW.rate("requests_total", ("outcome",))),
            stacked=True,
        ),
    ),
)

RETRIES: Final = Row(
    400,
    "Retries and timeouts",
    (
        timeseries(
            401,
            "Retries for each request",
            "Attempts after the first, for each request that ended. Above 0.2 retries feed the "
            "queue that causes them: lengthen the client's timeout and its wait between attempts.",
            Unit.FACTOR,
            Series("{{server}}", ratio(NOW.rate("request_retries_total", _SERVER), _REQUESTS)),
        ),
        timeseries(
            402,
            "Retries by tenant",
            "Whose clients try again. A tenant that retries more than others has a shorter timeout "
            "than the rest: talk to it before you limit it.",
            Unit.PER_SECOND,
            Series("{{tenant}}", NOW.rate("request_retries_total", ("tenant",))),
            stacked=True,
            links=OF_SERIES,
        ),
        timeseries(
            403,
            "Requests that were given up",
            "Share of the requests that the client aborted or that ran into a timeout: work that "
            "nobody reads. Let inner timeouts be shorter than outer ones, so that it stops.",
            Unit.RATIO,
            *(Series(outcome, _share_of(outcome)) for outcome in _GIVEN_UP),
            limits=FAILURES,
            top=1,
        ),
        timeseries(
            404,
            "Requests that ended within ${within:text}",
            "Share of the requests up to the chosen time, by server: exact, because the choices "
            "are bounds of the buckets. Set it to your shortest timeout and see how near it is.",
            Unit.RATIO,
            Series("{{server}}", NOW.share_within("$within", "request_seconds", _SERVER)),
            top=1,
            width=12,
        ),
        timeseries(
            405,
            "Total time by server, p99",
            "What a timeout has to leave room for. Keep every timeout above it, the client's "
            "longest, the engine's shortest.",
            Unit.SECONDS,
            Series("{{server}}", NOW.quantile(0.99, "request_seconds", _SERVER), exemplars=True),
            width=12,
        ),
    ),
)

GATEWAY: Final = Row(
    500,
    "Gateway in front of the engines",
    (
        timeseries(
            501,
            "Requests at the gateway",
            "What the gateway has taken, and what it holds back in a queue of its own. Held back "
            "while the engines' queues are short: its limits are too tight, or it sees too few "
            "servers.",
            Unit.COUNT,
            Series("in flight at {{server}}", NOW.gauge("gateway_requests_in_flight", _SERVER)),
            Series("held back by {{server}}", NOW.gauge("gateway_requests_waiting", _SERVER)),
            Series("servers of {{server}}", NOW.gauge("gateway_endpoints_ready", _SERVER)),
        ),
        timeseries(
            502,
            "Time in the gateway (mean)",
            "In its queue, in its own work, and waiting for the server. A mean is exact, however "
            "wide the gateway's buckets. Its own work above some milliseconds: give it more cores.",
            Unit.SECONDS,
            Series("queue of {{server}}", NOW.mean("gateway_queue_seconds", _SERVER)),
            Series("own work of {{server}}", NOW.mean("gateway_overhead_seconds", _SERVER)),
            Series("servers of {{server}}", NOW.mean("gateway_upstream_seconds", _SERVER)),
        ),
        timeseries(
            503,
            "Answers of the gateway by status",
            "429 and 503 are requests that it refused. Many of them mean that clients do not back "
            "off, or that a tenant's limit is too low.",
            Unit.REQUESTS_PER_SECOND,
            Series("{{code}}", NOW.rate("gateway_responses_total", ("code",))),
            stacked=True,
        ),
        timeseries(
            504,
            "Errors of the gateway by reason",
            "Requests that it could not serve, in its own words. Compare with the engines' errors: "
            "what is only here never reached an engine.",
            Unit.REQUESTS_PER_SECOND,
            Series("{{reason}}", NOW.rate("gateway_request_errors_total", ("reason",))),
            stacked=True,
            width=12,
        ),
        timeseries(
            505,
            "Requests that left the gateway's queue",
            "What became of what was held back. Evicted or timed-out ones waited for nothing: let "
            "the gateway refuse them at once.",
            Unit.REQUESTS_PER_SECOND,
            Series("{{outcome}}", NOW.rate("gateway_queue_outcomes_total", ("outcome",))),
            stacked=True,
            width=12,
        ),
    ),
)

BOARD = Board(
    uid="tailscope-queue",
    title="Tailscope / 2 Queue, admission, retries",
    description="When the queue holds the time: what waits, why it is not admitted, and whether "
    "retries feed the queue that causes them.",
    rows=(LOAD, WAIT, ADMISSION, RETRIES, GATEWAY),
    variables=(TOTAL_SLO,),
)
