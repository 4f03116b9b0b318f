"""Which server? One slow server among many hardly moves the curves of all."""

from __future__ import annotations

from tailscope.catalogue.promql import engine_wait
from tailscope.dashboards.board import Row
from tailscope.dashboards.links import OF_SERVER
from tailscope.dashboards.panels import table
from tailscope.dashboards.query import RANGE, Series
from tailscope.dashboards.style import Unit

_SERVER = ("server",)
_PACE = "request_time_per_output_token_seconds"
_TTFT = "request_time_to_first_token_seconds"

ROW = Row(
    900,
    "Which server?",
    (
        table(
            901,
            "Servers over the time range",
            "The slowest first. One line apart from the others: that server is the cause, or what "
            "is sent to it; click its name for its queue, its prefill and its decode. All alike: "
            "it is the load. The wait and what stands behind it are the engine's own.",
            _SERVER,
            (Series("First token p99", RANGE.quantile(0.99, _TTFT, _SERVER)), Unit.SECONDS),
            (Series("Total p99", RANGE.quantile(0.99, "request_seconds", _SERVER)), Unit.SECONDS),
            (Series("Per output token p99", RANGE.quantile(0.99, _PACE, _SERVER)), Unit.SECONDS),
            (Series("Requests", RANGE.rate("requests_total", _SERVER)), Unit.REQUESTS_PER_SECOND),
            (Series("Queue wait", engine_wait(RANGE, _SERVER)), Unit.SECONDS),
            (Series("Waiting", RANGE.time_mean("engine_requests_waiting", _SERVER)), Unit.COUNT),
            (Series("Running", RANGE.time_mean("engine_requests_running", _SERVER)), Unit.COUNT),
            (
                Series("Cache in use", RANGE.time_mean("engine_kv_cache_usage_ratio", _SERVER)),
                Unit.RATIO,
            ),
            (
                Series("Preemptions", RANGE.rate("engine_preemptions_total", _SERVER)),
                Unit.PER_SECOND,
            ),
            links={"server": OF_SERVER},
            height=6,
        ),
    ),
)
