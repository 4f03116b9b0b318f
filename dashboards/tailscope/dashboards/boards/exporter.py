"""Exporter health: whether the numbers of the other boards can be trusted."""

from __future__ import annotations

from typing import Final

from tailscope.catalogue.promql import compare, ratio, total
from tailscope.dashboards import columns
from tailscope.dashboards.board import Board, Row
from tailscope.dashboards.panels import stat, table, timeseries
from tailscope.dashboards.query import NOW, Series
from tailscope.dashboards.style import ANY, Unit

_SOURCE: Final = ("instance", "source")
_NAME: Final = "{{instance}} {{source}}"

STATE: Final = Row(
    100,
    "Is everything read?",
    (
        stat(
            101,
            "Exporters scraped",
            "Exporters that answer Prometheus. Fewer than you run: the rest is down or not in the "
            "scrape configuration. If it is empty, check the data source above.",
            Unit.COUNT,
            Series("exporters", total(NOW.gauge("build_info", ("job", "instance")))),
            state=True,
            width=6,
        ),
        stat(
            102,
            "Sources down",
            "Sources that gave no data in their last three intervals. Above 0, the table below "
            "says which and why.",
            Unit.COUNT,
            Series("down", total(compare(NOW.vector("source_up"), "== bool", 0))),
            state=True,
            limits=ANY,
            width=6,
        ),
        stat(
            103,
            "Stores that cannot be written",
            "Exporters whose last write to the store failed. Above 0: see its disk; new records "
            "are not kept until it works.",
            Unit.COUNT,
            Series("failed", total(compare(NOW.vector("store_up"), "== bool", 0))),
            state=True,
            limits=ANY,
            width=6,
        ),
        stat(
            104,
            "Families that are not understood",
            "Metric families of the engines that the catalogue neither maps nor ignores. Above 0: "
            "the engine is newer than this exporter; nothing known is lost.",
            Unit.COUNT,
            Series("families", total(NOW.gauge("source_unmapped_families", ("source",)))),
            state=True,
            width=6,
        ),
        table(
            105,
            "Sources",
            "Reason: ok, or why the source gives nothing. An old last good read is right for a "
            "source that only receives, and had nothing to receive.",
            columns.SOURCE_LABELS,
            *columns.SOURCES,
            width=16,
        ),
        table(
            106,
            "Versions",
            "Exporters and what they run on. Different versions read the same engine differently: "
            "bring them to one.",
            ("instance", "version", "python"),
            (
                Series("", NOW.gauge("build_info", ("instance", "version", "python"))),
                Unit.COUNT,
            ),
            width=8,
        ),
    ),
)

READS: Final = Row(
    200,
    "Reading",
    (
        timeseries(
            201,
            "Time of a read",
            "How long the last read of a source took. Near its interval of a second samples are "
            "lost: the engine is overloaded, or the network between is slow.",
            Unit.SECONDS,
            Series(_NAME, NOW.gauge("source_read_seconds", _SOURCE)),
        ),
        timeseries(
            202,
            "Failed reads",
            "Reads that failed, a second. Now and then is nothing; steadily is a source at its "
            "limit: the exporter's own page tells the message.",
            Unit.PER_SECOND,
            Series(_NAME, NOW.rate("source_errors_total", _SOURCE)),
        ),
        timeseries(
            203,
            "Counters that went back",
            "An engine that restarted. Many in an hour: it crashes; read its log, and see board 5 "
            "for XID events.",
            Unit.COUNT,
            Series(_NAME, NOW.increase("source_resets_total", _SOURCE)),
        ),
        timeseries(
            204,
            "Failed calls to the GPU library",
            "Calls that failed, by name and code; what a GPU does not support is not counted. "
            "Steadily above 0: the driver is in trouble, see board 5.",
            Unit.PER_SECOND,
            Series("{{call}} {{code}}", NOW.rate("gpu_call_errors_total", ("call", "code"))),
            width=24,
        ),
    ),
)

RECORDS: Final = Row(
    300,
    "Request records and their store",
    (
        timeseries(
            301,
            "Records kept",
            "Request records taken, by source. None while requests run: the server's traces do "
            "not arrive; check its --otlp-traces-endpoint.",
            Unit.PER_SECOND,
            Series("{{source}}", NOW.rate("records_total", ("source",))),
            stacked=True,
        ),
        timeseries(
            302,
            "Records left out",
            "By reason. Many without a tenant or a time: the sender's attributes have other names "
            "than those that are known; docs/records.md lists them.",
            Unit.PER_SECOND,
            Series(
                "{{source}} {{reason}}", NOW.rate("records_rejected_total", ("source", "reason"))
            ),
            stacked=True,
        ),
        timeseries(
            303,
            "Stage times that were negative",
            "Set to 0, because clocks of two machines disagree. Steadily above 0: synchronise "
            "the clocks, or the stages mislead.",
            Unit.PER_SECOND,
            Series("{{source}}", NOW.rate("records_clamped_total", ("source",))),
        ),
        timeseries(
            304,
            "Records that wait to be written",
            "Records taken and not yet on disk. A number that grows is a disk that does not keep "
            "up: give the store a faster one.",
            Unit.COUNT,
            Series("{{instance}}", NOW.gauge("store_pending_records", ("instance",))),
            width=12,
        ),
        timeseries(
            305,
            "Time of a commit (mean)",
            "How long the store takes to make a group of records safe on disk. Above a tenth of a "
            "second senders of traces wait: look for a busy disk.",
            Unit.SECONDS,
            Series(
                "{{instance}}",
                ratio(
                    NOW.rate("store_commit_seconds_total", ("instance",)),
                    NOW.rate("store_commits_total", ("instance",)),
                ),
            ),
            width=12,
        ),
    ),
)

BOARD = Board(
    uid="tailscope-exporter",
    title="Tailscope / 8 Exporter",
    description="Whether the other boards can be trusted: what is read, what is left out, what is "
    "kept.",
    rows=(STATE, READS, RECORDS),
)
