"""What the exporter says of itself and of its sources."""

from __future__ import annotations

from tailscope.catalogue.model import PREFIX, Across, Kind, Metric, Unit

METRICS: tuple[Metric, ...] = (
    Metric(
        f"{PREFIX}build_info",
        Kind.GAUGE,
        "Version of the exporter; the value is always 1.",
        ("version", "python"),
        across=Across.MAX,
    ),
    Metric(
        f"{PREFIX}source_up",
        Kind.GAUGE,
        "Whether the last read of a source worked (1) or failed (0).",
        ("source",),
    ),
    Metric(
        f"{PREFIX}source_state",
        Kind.GAUGE,
        "Present state of a source; 1 for the reason that holds.",
        ("source", "reason"),
    ),
    Metric(
        f"{PREFIX}source_last_success_timestamp_seconds",
        Kind.GAUGE,
        "When a source was last read without an error, as Unix time.",
        ("source",),
        Unit.SECONDS,
        Across.MAX,
    ),
    Metric(
        f"{PREFIX}source_read_seconds",
        Kind.GAUGE,
        "How long the last read of a source took.",
        ("source",),
        Unit.SECONDS,
        Across.MAX,
    ),
    Metric(
        f"{PREFIX}source_errors_total",
        Kind.COUNTER,
        "Reads of a source that failed.",
        ("source",),
    ),
    Metric(
        f"{PREFIX}source_resets_total",
        Kind.COUNTER,
        "Times that a source's counters went back, as they do when an engine restarts.",
        ("source",),
    ),
    Metric(
        f"{PREFIX}source_unmapped_families",
        Kind.GAUGE,
        "Families of a source that the catalogue neither maps nor ignores.",
        ("source",),
    ),
    Metric(
        f"{PREFIX}records_total",
        Kind.COUNTER,
        "Request records that were accepted.",
        ("source",),
    ),
    Metric(
        f"{PREFIX}records_rejected_total",
        Kind.COUNTER,
        "Request records that were left out, by reason.",
        ("source", "reason"),
    ),
    Metric(
        f"{PREFIX}records_clamped_total",
        Kind.COUNTER,
        "Negative stage times that were set to 0.",
        ("source",),
    ),
    Metric(
        f"{PREFIX}store_pending_records",
        Kind.GAUGE,
        "Records that wait to be written to the store.",
    ),
    Metric(
        f"{PREFIX}store_commits_total",
        Kind.COUNTER,
        "Group commits of the store.",
    ),
    Metric(
        f"{PREFIX}store_commit_seconds_total",
        Kind.COUNTER,
        "Time that the store spent in group commits.",
        unit=Unit.SECONDS,
    ),
    Metric(
        f"{PREFIX}store_up",
        Kind.GAUGE,
        "Whether the last write to the store worked (1) or failed (0).",
    ),
)
