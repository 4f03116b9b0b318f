"""The variables of every board, each choosing from what the ones before it leave."""

from __future__ import annotations

from typing import Any, Final

from tailscope.catalogue import PREFIX, Metric, metric
from tailscope.dashboards.style import DATASOURCE

_FOUND_IN: Final = {
    "job": ("build_info",),
    # Engine metrics need no records and records need no engine metrics: either is enough.
    "model": ("engine_requests_running", "requests_total"),
    "server": ("engine_up", "requests_total"),
    "tenant": ("requests_total",),
}
"""Metrics that tell the values of a variable."""

_EVERYTHING: Final = {"job": ".+"}
"""What *All* means. Elsewhere it is ``.*``: a record need not name its server, and still counts."""


def _selector(label: str, chosen: tuple[str, ...]) -> str:
    entries = [metric(name) for name in _FOUND_IN[label]]
    names = "|".join(entry.name for entry in entries)
    named = f'__name__=~"{names}"' if len(entries) > 1 else f'__name__="{names}"'
    common = [before for before in chosen if all(_has(entry, before) for entry in entries)]
    return "{" + ", ".join([named, *(f'{before}=~"${before}"' for before in common)]) + "}"


def _has(entry: Metric, label: str) -> bool:
    return label == "job" or label in entry.labels


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


def _scrape_interval() -> dict[str, Any]:
    choices = ("5s", "15s", "30s", "1m")
    return {
        "type": "custom",
        "name": "scrape",
        "label": "Scrape interval",
        "description": "How often Prometheus scrapes the exporter. If too short, panels are empty.",
        "query": ",".join(choices),
        "options": [
            {"selected": choice == "15s", "text": choice, "value": choice} for choice in choices
        ],
        "multi": False,
        "includeAll": False,
        "current": {"selected": True, "text": "15s", "value": "15s"},
    }


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
    _labels("model", "Model", "Served model.", ("job",)),
    _labels("server", "Server", "Engine instance, host:port.", ("job", "model")),
    _labels(
        "tenant",
        "Tenant",
        "Filters the panels whose metric knows the tenant: totals, time to first token, Tenants. "
        "Stages and engine panels show all tenants.",
        ("job", "model", "server"),
    ),
    _scrape_interval(),
)
