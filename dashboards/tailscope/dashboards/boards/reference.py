"""Reference: every metric of the catalogue, one panel each, made from the catalogue itself."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tailscope.catalogue import METRICS, PREFIX, Kind, Metric
from tailscope.catalogue import Unit as Base
from tailscope.catalogue.promql import age
from tailscope.dashboards.board import Board, Row
from tailscope.dashboards.panels import Panel, timeseries
from tailscope.dashboards.query import NOW, SCOPE, Series
from tailscope.dashboards.style import Unit
from tailscope.dashboards.variables import GPU

_QUERY: Final = replace(NOW, where=MappingProxyType({**SCOPE, "gpu": "~$gpu"}))
_SEVERAL: Final = 1000
"""Numbers of panels begin here; those of rows lie below."""

_UNITS: Final = MappingProxyType(
    {
        Base.SECONDS: Unit.SECONDS,
        Base.BYTES: Unit.BYTES,
        Base.RATIO: Unit.RATIO,
        Base.CELSIUS: Unit.CELSIUS,
        Base.WATTS: Unit.WATTS,
        Base.JOULES: Unit.JOULES,
        Base.HERTZ: Unit.HERTZ,
        Base.BYTES_PER_SECOND: Unit.BYTES_PER_SECOND,
        Base.TOKENS: Unit.TOKENS,
        Base.NONE: Unit.COUNT,
    }
)
_RATES: Final = MappingProxyType(
    {
        Base.SECONDS: Unit.RATIO,
        Base.BYTES: Unit.BYTES_PER_SECOND,
        Base.JOULES: Unit.WATTS,
        Base.TOKENS: Unit.TOKENS_PER_SECOND,
    }
)
"""Unit of the rate of a counter; seconds a second are a share, or a mean number."""

_REQUESTS: Final = "Requests, from the records"
_OTHERS: Final = "Exporter"
_GROUPS: Final = MappingProxyType(
    {
        "request": _REQUESTS,
        "requests": _REQUESTS,
        "tenant": _REQUESTS,
        "engine": "Engine",
        "gpu": "GPU",
    }
)
"""Heading by the first word of a metric's name."""

_OMITTED: Final = frozenset({"uuid", "model_name", "gi", "profile", "engine", "rank"})
"""Labels that tell the same thing again, or split finer than a glance wants."""


def _number(metric: Metric) -> int:
    """A number that stays when others come and go."""
    return _SEVERAL + zlib.crc32(metric.name.encode()) % 1_000_000_000


def _kept(metric: Metric) -> tuple[str, ...]:
    return tuple(label for label in metric.labels if label not in _OMITTED)


def _legend(labels: Sequence[str], prefix: str = "") -> str:
    return " ".join([*([prefix] if prefix else []), *(f"{{{{{label}}}}}" for label in labels)])


def _description(metric: Metric, shown: str) -> str:
    labels = ", ".join(metric.labels) or "none"
    return f"{metric.help} Shown: {shown}. Type {metric.kind}, labels: {labels}."


def _panel(metric: Metric) -> Panel:
    name = metric.name
    if metric.kind is Kind.HISTOGRAM:
        shown, unit = "p99 and the mean, all series together", _UNITS[metric.unit]
        series = tuple(_distribution(metric))
    elif metric.kind is Kind.COUNTER:
        labels = _kept(metric)
        shown, unit = "its rate", _rate_unit(metric)
        series = (Series(_legend(labels) or "rate", _QUERY.rate(metric, labels)),)
    elif name.endswith("_timestamp_seconds"):
        labels = _kept(metric)
        shown, unit = "time since then", Unit.SECONDS
        series = (Series(_legend(labels), age(_QUERY.gauge(metric, labels))),)
    else:
        labels = _kept(metric)
        shown, unit = "its last value", _UNITS[metric.unit]
        series = (Series(_legend(labels) or "value", _QUERY.gauge(metric, labels)),)
    return timeseries(_number(metric), name, _description(metric, shown), unit, *series)


def _rate_unit(metric: Metric) -> Unit:
    if metric.unit is Base.SECONDS and not metric.integral_of.endswith("_ratio"):
        return Unit.COUNT
    return _RATES.get(metric.unit, Unit.PER_SECOND)


def _distribution(metric: Metric) -> Iterator[Series]:
    by = () if metric.buckets else ("engine",)
    yield Series(
        _legend(by, "p99"), _QUERY.quantile(0.99, metric, by), exemplars=_group(metric) == _REQUESTS
    )
    yield Series("mean", _QUERY.mean(metric, ()))


def _group(metric: Metric) -> str:
    """Heading that a metric belongs under, by the first word of its name."""
    return _GROUPS.get(metric.name.removeprefix(PREFIX).split("_")[0], _OTHERS)


def _rows() -> Iterator[Row]:
    headings = [*dict.fromkeys(_GROUPS.values()), _OTHERS]
    for number, heading in enumerate(headings, 1):
        panels = tuple(_panel(entry) for entry in METRICS.values() if _group(entry) == heading)
        yield Row(100 * number, heading, panels, closed=True)


BOARD = Board(
    uid="tailscope-reference",
    title="Tailscope / 9 Reference",
    description="Every metric that the exporter can publish, one panel each. For looking one up; "
    "the other boards are for finding out.",
    rows=tuple(_rows()),
    variables=(GPU,),
)
