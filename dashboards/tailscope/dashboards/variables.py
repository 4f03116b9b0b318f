"""The variables of every board, each choosing from what the ones before it leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailscope.catalogue import PREFIX, Metric, metric
from tailscope.catalogue.promql import TARGET_LABELS
from tailscope.catalogue.requests import SECONDS_BUCKETS
from tailscope.dashboards.style import DATASOURCE

_FOUND_IN: Final = {
    "job": ("build_info",),
    "instance": ("build_info",),
    # Engine metrics need no records and records need no engine metrics: either is enough.
    "model": ("engine_requests_running", "requests_total"),
    "server": ("engine_up", "requests_total"),
    "tenant": ("requests_total",),
    "gpu": ("gpu_up",),
}
"""Metrics that tell the values of a variable."""

_EVERYTHING: Final = {"job": ".+", "instance": ".+", "gpu": ".+"}
"""What *All* means. Elsewhere it is ``.*``: a record need not name its server, and still counts."""


def _selector(label: str, chosen: tuple[str, ...]) -> str:
    entries = [metric(name) for name in _FOUND_IN[label]]
    names = "|".join(entry.name for entry in entries)
    named = f'__name__=~"{names}"' if len(entries) > 1 else f'__name__="{names}"'
    common = [before for before in chosen if all(_has(entry, before) for entry in entries)]
    return "{" + ", ".join([named, *(f'{before}=~"${before}"' for before in common)]) + "}"


def _has(entry: Metric, label: str) -> bool:
    return label in TARGET_LABELS or label in entry.labels


def _labels(label: str, title: str, description: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    query = f"label_values({_selector(label, chosen)}, {label})"
    return {
        "type": "query",
        "name": label,
        "label": title,
        "description": description,
        "datasource": DATASOURCE,
        "query": {"qryType": 1, "query": query, "refId": f"{PREFIX}{label}"},
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": _EVERYTHING.get(label, ".*"),
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _custom(
    name: str, label: str, description: str, choices: Mapping[str, str], chosen: str
) -> dict[str, Any]:
    """A variable of fixed choices, the values by their texts."""
    options = [
        {"selected": text == chosen, "text": text, "value": value}
        for text, value in choices.items()
    ]
    return {
        "type": "custom",
        "name": name,
        "label": label,
        "description": description,
        "query": ",".join(
            text if text == value else f"{text} : {value}" for text, value in choices.items()
        ),
        "options": options,
        "multi": False,
        "includeAll": False,
        "current": {"selected": True, "text": chosen, "value": choices[chosen]},
    }


def _scrape_interval() -> dict[str, Any]:
    return _custom(
        "scrape",
        "Scrape interval",
        "How often Prometheus scrapes the exporter. If too short, panels are empty.",
        {choice: choice for choice in ("5s", "15s", "30s", "1m")},
        "15s",
    )


def _bound(seconds: float) -> str:
    """The bound as Prometheus stores it: 2 as ``2``, and as ``2.0`` from version 3 on.

    A dot alone would match any character, and a backslash is doubled on its way through Grafana.
    """
    text = f"{seconds:g}".replace(".", "[.]")
    return text if seconds % 1 else f"{text}|{text}[.]0"


def _slo(name: str, label: str, of: str, chosen: float) -> dict[str, Any]:
    return _custom(
        name,
        label,
        f"Longest {of} that is well. The choices are bounds of the buckets: shares at them are "
        "exact.",
        {f"{bound:g} s": _bound(bound) for bound in SECONDS_BUCKETS if bound >= _LEAST_SLO},
        f"{chosen:g} s",
    )


_LEAST_SLO: Final = 0.1

VARIABLES: Final[tuple[dict[str, Any], ...]] = (
    {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "description": "The Prometheus that scrapes the exporter.",
        "query": "prometheus",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
    },
    _labels("job", "Job", "Scrape job of the exporter.", ()),
    _labels(
        "instance",
        "Exporter",
        "Exporter, host:port: the machine whose engines and GPUs it reads.",
        ("job",),
    ),
    _labels("model", "Model", "Served model.", ("job", "instance")),
    _labels("server", "Server", "Engine instance, host:port.", ("job", "instance", "model")),
    _labels(
        "tenant",
        "Tenant",
        "Filters the panels whose metric knows the tenant: totals, time to first token, Tenants. "
        "Stages and engine panels show all tenants.",
        ("job", "instance", "model", "server"),
    ),
    _scrape_interval(),
)
"""Of every board, so that a link from one to another keeps the choice."""

TRIAGE_APP: Final[dict[str, Any]] = {
    "type": "textbox",
    "name": "triage",
    "label": "Triage app",
    "description": "Address of the triage app, for the links to it.",
    "query": "http://127.0.0.1:8501",
    "current": {"text": "http://127.0.0.1:8501", "value": "http://127.0.0.1:8501"},
}
"""On every board too, behind what the board itself adds."""

GPU: Final = _labels("gpu", "GPU", "GPU by its number on the machine.", ("job", "instance"))

FIRST_TOKEN_SLO: Final = _slo("first", "First token within", "time to first token", 2)
TOTAL_SLO: Final = _slo("within", "Whole within", "time of a whole request", 30)

OFFSET: Final = _custom(
    "offset",
    "Compared with",
    "How far back the past lies that the present is compared with.",
    {"an hour ago": "1h", "a day ago": "1d", "a week ago": "7d"},
    "an hour ago",
)
