"""1 Queue: how long requests wait, and how many wait."""

from __future__ import annotations

from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import timeseries
from tailscope.dashboards.query import NOW, Series, quantiles
from tailscope.dashboards.style import Unit

ROW = Row(
    300,
    "1 Queue",
    (
        timeseries(
            301,
            "Queue wait",
            "Time in the engine's queue before the first step. If it holds most of the time to "
            "first token: limit what one tenant may send at once, let short requests go first, or "
            "add capacity. All tenants.",
            Unit.SECONDS,
            *quantiles("request_stage_seconds", {"stage": "queue"}),
        ),
        timeseries(
            302,
            "Waiting and running requests (mean)",
            "True means, from samples of every second, whatever the scrape interval. "
            "Waiting above 0 for minutes while running is flat: the batch is full.",
            Unit.COUNT,
            Series("waiting", NOW.time_mean("engine_requests_waiting", ())),
            Series("running", NOW.time_mean("engine_requests_running", ())),
        ),
        timeseries(
            303,
            "Queue depth, p99 of the samples",
            "Depth that the queue of a server exceeded for 1 of 100 seconds: bursts that a gauge "
            "read every 15 s misses. High here and low on the left: bursts; spread the arrivals.",
            Unit.COUNT,
            Series("{{server}}", NOW.quantile(0.99, "engine_requests_waiting", ("server",))),
        ),
    ),
)
