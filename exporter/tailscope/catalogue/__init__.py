"""Every metric and every engine mapping of Tailscope, as data. Imports nothing else of ours."""

from __future__ import annotations

from tailscope.catalogue import gateway, gpu, inference, requests, scrape
from tailscope.catalogue.model import (
    PREFIX,
    Across,
    CatalogueError,
    Ignored,
    Kind,
    Metric,
    Unit,
)
from tailscope.catalogue.requests import STAGES
from tailscope.catalogue.spans.model import SpanKind
from tailscope.catalogue.upstream import Engine, Upstream

__all__ = [
    "METRICS",
    "PREFIX",
    "STAGES",
    "Across",
    "CatalogueError",
    "Engine",
    "Ignored",
    "Kind",
    "Metric",
    "SpanKind",
    "Unit",
    "Upstream",
    "metric",
]


def _index(*groups: tuple[Metric, ...]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for group in groups:
        for entry in group:
            if entry.name in found:
                raise CatalogueError(f"{entry.name} is declared twice")
            found[entry.name] = entry
    return found


METRICS: dict[str, Metric] = _index(
    gpu.METRICS, inference.METRICS, gateway.METRICS, requests.METRICS, scrape.METRICS
)
"""Every metric by its full name, in the order of the files."""


def metric(name: str) -> Metric:
    """Return the metric of that name; the prefix ``tailscope_`` may be left out.

    Raises:
        KeyError: If the catalogue has no such metric.
    """
    return METRICS[name if name.startswith(PREFIX) else PREFIX + name]
