"""The watchers themselves: without them every panel looks calm."""

from __future__ import annotations

from dataclasses import replace

from tailscope.alerts.model import Alert, Group, PanelLink, Severity
from tailscope.alerts.queries import LONG, REQUESTS, SHORT
from tailscope.alerts.thresholds import Limits
from tailscope.catalogue.promql import TARGET_LABELS, absent, age, compare, every
from tailscope.catalogue.requests import SECONDS_BUCKETS

_SOURCES = PanelLink("tailscope-triage", 803)
_SOURCE = (*TARGET_LABELS, "source")
_LAST_BOUND = SECONDS_BUCKETS[-1]


def _source_down() -> Alert:
    return Alert(
        name="TailscopeSourceDown",
        severity=Severity.WARNING,
        cause="telemetry",
        # What nobody asked for and is not there, a GPU or an engine, has no `source_up`.
        expr=compare(SHORT.gauge("source_up", _SOURCE), "==", 0),
        lasts="2m",
        labels=_SOURCE,
        summary="The exporter gets nothing from {{ .Labels.source }}",
        description="The source {{ .Labels.source }} of the exporter {{ .Labels.instance }} gave "
        "no data for more than 2 minutes. Its panels and its alerts are silent until it is back.",
        panel=_SOURCES,
    )


def _exporter_down() -> Alert:
    return Alert(
        name="TailscopeExporterDown",
        severity=Severity.CRITICAL,
        cause="telemetry",
        # By what it served, not by the name of the job, which is the user's to choose.
        expr=every(
            compare(SHORT.up(), "==", 0),
            replace(SHORT, window="7d").last("build_info", TARGET_LABELS),
            on=TARGET_LABELS,
        ),
        lasts="2m",
        labels=TARGET_LABELS,
        summary="The exporter {{ .Labels.instance }} does not answer",
        description="Prometheus could not scrape the exporter {{ .Labels.instance }} for more "
        "than 2 minutes. What its servers do is unknown; requests that they send it meanwhile may "
        "be lost.",
        panel=_SOURCES,
    )


def _exporter_absent() -> Alert:
    return Alert(
        name="TailscopeExporterAbsent",
        severity=Severity.CRITICAL,
        cause="telemetry",
        expr=absent(SHORT.vector("build_info")),
        lasts="5m",
        labels=(),
        summary="No Tailscope exporter is scraped",
        description="Prometheus has had no series of any Tailscope exporter for 5 minutes: every "
        "other Tailscope alert is blind.",
        panel=_SOURCES,
    )


def _beyond_buckets(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeTailBeyondBuckets",
        severity=Severity.INFO,
        cause="measurement",
        expr=compare(
            LONG.share_above(_LAST_BOUND, "request_seconds", REQUESTS),
            ">",
            limits.beyond_buckets.value,
        ),
        lasts="15m",
        labels=REQUESTS,
        summary=f"The p99 on {{{{ .Labels.server }}}} is beyond {_LAST_BOUND:g} s",
        description="{{ .Value | humanizePercentage }} of the requests for {{ .Labels.model }} on "
        f"{{{{ .Labels.server }}}} took longer than {_LAST_BOUND:g} s, the last bucket "
        f"(limit {limits.beyond_buckets.percent}). The p99 that is shown is a lower bound.",
        panel=PanelLink("tailscope-triage", 802),
    )


def _source_stale(limits: Limits) -> Alert:
    polled = replace(SHORT, where={"source": "~engine:.*|nvml|dcgm:.*"})
    return Alert(
        name="TailscopeSourceStale",
        severity=Severity.WARNING,
        cause="telemetry",
        # Sources that only receive have nothing to say while nobody sends: theirs may be old.
        expr=every(
            compare(
                age(polled.gauge("source_last_success_timestamp_seconds", _SOURCE)),
                ">",
                limits.source_age.value,
            ),
            compare(polled.gauge("source_up", _SOURCE), "==", 1),
            on=_SOURCE,
        ),
        lasts="2m",
        labels=_SOURCE,
        summary="What {{ .Labels.instance }} says of {{ .Labels.source }} is old",
        description="The exporter {{ .Labels.instance }} last read {{ .Labels.source }} "
        '{{ printf "%.0f" .Value }} s ago and still calls it up '
        f"(limit {limits.source_age.seconds}). Its panels show the past.",
        panel=PanelLink("tailscope-exporter", 105),
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group(
        "tailscope-telemetry",
        (
            _source_down(),
            _source_stale(limits),
            _exporter_down(),
            _exporter_absent(),
            _beyond_buckets(limits),
        ),
    )
