"""Can the numbers be trusted? The sources, and how many requests stand behind a p99."""

from __future__ import annotations

from tailscope.catalogue.requests import SECONDS_BUCKETS
from tailscope.dashboards import columns
from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import table, timeseries
from tailscope.dashboards.query import NOW, Series
from tailscope.dashboards.style import Unit

_LAST = SECONDS_BUCKETS[-1]

ROW = Row(
    800,
    "Can the numbers be trusted?",
    (
        table(
            803,
            "Sources of the exporter",
            "Reason: ok, or why the source gives nothing. Up: 1, or 0 after three intervals "
            "without data. An old last good read is right for a source that only receives, and "
            "had nothing to receive.",
            columns.SOURCE_LABELS,
            *columns.SOURCES,
            width=12,
        ),
        timeseries(
            801,
            "Requests behind each point",
            "Requests that one point of the curves is made of. Below 100, a p99 is the slowest "
            "request and no more: choose a longer time range.",
            Unit.COUNT,
            Series("requests", NOW.increase("request_seconds", (), suffix="_count")),
            width=12,
        ),
        timeseries(
            802,
            f"Requests beyond {_LAST:g} s",
            f"Share of the requests above the last bucket. Above 1 %, the p99 of the total time "
            f"is at least {_LAST:g} s, however far beyond.",
            Unit.RATIO,
            Series("beyond", NOW.share_above(_LAST, "request_seconds", ())),
            width=12,
        ),
        timeseries(
            805,
            "Records kept and left out",
            "Request records that the exporter took, and those that it left out, by reason. "
            "If there are none, the server's traces do not arrive.",
            Unit.PER_SECOND,
            Series("kept: {{source}}", NOW.rate("records_total", ("source",))),
            Series(
                "left out: {{source}}, {{reason}}",
                NOW.rate("records_rejected_total", ("source", "reason")),
            ),
            width=12,
        ),
    ),
)
