"""The panel shapes of the house: stat, series over time, heatmap and table; there are no others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, Final

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from tailscope.catalogue import Metric, gpu, inference, requests
from tailscope.dashboards.grid import Place
from tailscope.dashboards.legacy import current_panel
from tailscope.dashboards.links import APP, AROUND, Link
from tailscope.dashboards.query import Series
from tailscope.dashboards.style import (
    BY_NAME,
    DATASOURCE,
    FINISHED,
    NEUTRAL,
    SERIES,
    Limits,
    Unit,
    fixed_colour,
    right_axis,
    thresholds,
)

_NO_RIGHT: Final[Mapping[str, Unit]] = MappingProxyType({})
_NO_LINKS: Final[Mapping[str, Sequence[Link]]] = MappingProxyType({})

NO_RECORDS: Final = (
    "No requests in this time, or no records of them here. Do those of the server or the gateway "
    "reach the exporter?"
)
NO_GPU: Final = "No such reading here. Does the exporter see a GPU, and does the GPU have it?"
NO_ENGINE: Final = (
    "No requests in this time, or no such reading here. Does the engine have it, and does "
    "Prometheus scrape the exporter?"
)
NO_PAST: Final = "Nothing to compare. Does Prometheus have the earlier time, and any data now?"
NO_DATA: Final = "No data here. Does Prometheus scrape the exporter?"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel that has a size, and no place yet.

    Attributes:
        core: What grafanalib makes of it.
        width: Columns of the grid, of 24.
        height: Units of 30 pixels.
    """

    core: Any
    width: int
    height: int

    def json(self, place: Place) -> dict[str, Any]:
        """Return Grafana's form of it, without what no present Grafana reads."""
        found = json.loads(json.dumps(self.core.to_json_data(), cls=DashboardEncoder))
        found["gridPos"] = {"x": place.x, "y": place.y, "w": place.w, "h": place.h}
        return current_panel(found)


def row(id: int, title: str, hidden: Sequence[dict[str, Any]] = ()) -> Panel:
    """A heading; the panels after it belong to it, or, if it is closed, those that it hides."""
    made = core.RowPanel(id=id, title=title, collapsed=bool(hidden), panels=list(hidden))
    return Panel(made, 24, 1)


def stat(
    id: int,
    title: str,
    description: str,
    unit: Unit,
    series: Series,
    *,
    limits: Limits = NEUTRAL,
    state: bool = False,
    width: int = 4,
    height: int = 4,
) -> Panel:
    """One number, the latest, over its own curve.

    Args:
        id: Number that never changes: links from alerts go by it.
        title: What is shown.
        description: What it means, and what to do.
        unit: Unit of the number.
        series: Its query.
        limits: Values from which it is coloured.
        state: It is what holds now, or nothing, and has no curve: the last value of a curve that
            ended would look like the present.
        width: Columns of the grid.
        height: Units of 30 pixels.
    """
    made = core.Stat(
        **_common(id, title, description, [series], instant=state),
        format=unit,
        graphMode="none" if state else "area",
        reduceCalc="lastNotNull",
        noValue="-",
        color={"mode": "thresholds"},
        thresholds=thresholds(limits)["steps"],
        extraJson={"options": {"wideLayout": True, "showPercentChange": False}},
    )
    return Panel(made, width, height)


def timeseries(
    id: int,
    title: str,
    description: str,
    unit: Unit,
    *series: Series,
    stacked: bool = False,
    limits: Limits = NEUTRAL,
    top: float | None = None,
    lowest: float | None = 0,
    right: Mapping[str, Unit] = _NO_RIGHT,
    links: Sequence[Link] = (),
    width: int = 8,
) -> Panel:
    """Curves over time; stacked only where the sum of the curves means something.

    Args:
        id: Number that never changes: links from alerts go by it.
        title: What is shown.
        description: What it means, and what to do.
        unit: Unit of the values.
        series: One or more queries; exemplars only on the first.
        stacked: Draw each series on top of the one before it.
        limits: Values from which the ground is coloured.
        top: Fixed upper end of the axis, for shares.
        lowest: Fixed lower end of the axis; none for what may be negative.
        right: Unit of the series whose legend matches an expression; they get an axis of their own.
        links: Where a click on a point may go, before the links of every panel.
        width: Columns of the grid.
    """
    made = core.TimeSeries(
        **_common(id, title, description, series),
        unit=unit,
        fillOpacity=60 if stacked else 8,
        lineWidth=1,
        showPoints="never",
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        thresholdsStyleMode="dashed" if limits else "off",
        tooltipMode="multi",
        tooltipSort="desc",
        legendCalcs=["lastNotNull"],
        overrides=[
            *(fixed_colour(name) for name in _coloured(series)),
            *(right_axis(pattern, unit) for pattern, unit in right.items()),
        ],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "color": {"mode": BY_NAME},
                    "min": lowest,
                    "max": top,
                    "links": [*links, AROUND, APP],
                    "noValue": _when_empty(series),
                    "thresholds": thresholds(limits),
                    "custom": {"axisColorMode": "text", "axisCenteredZero": False},
                }
            },
            "options": {"legend": {"showLegend": True}},
        },
    )
    return Panel(made, width, 8)


def heatmap(
    id: int, title: str, description: str, unit: Unit, expr: str, *, width: int = 12
) -> Panel:
    """The buckets of one histogram over time."""
    # Rows sort by bound only where the legend is the bound; see grafana/grafana#55535.
    series = Series("{{le}}", expr, exemplars=True)
    made = core.Heatmap(
        **_common(id, title, description, [series], "heatmap"),
        options={
            "calculate": False,
            "cellGap": 1,
            "cellValues": {},
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "fill": "dark-orange",
                "scale": "exponential",
                "exponent": 0.5,
                "steps": 64,
                "reverse": False,
            },
            "exemplars": {"color": "rgba(49,130,189,0.9)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
        },
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "unit": unit,
                    "noValue": _when_empty([series]),
                    "links": [AROUND, APP],
                    "custom": {
                        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
                        "scaleDistribution": {"type": "linear"},
                    },
                },
                "overrides": [],
            }
        },
    )
    return Panel(made, width, 8)


def table(
    id: int,
    title: str,
    description: str,
    labels: Sequence[str],
    *columns: tuple[Series, Unit],
    links: Mapping[str, Sequence[Link]] = _NO_LINKS,
    width: int = 24,
    height: int = 8,
) -> Panel:
    """The latest values: a line for each set of labels, a column for each query, largest first.

    Args:
        id: Number that never changes: links from alerts go by it.
        title: What is shown.
        description: What it means, and what to do.
        labels: Labels that the queries keep, in the order of their columns.
        columns: Queries, each with its unit; lines are sorted by the first. A query without a name
            gives only its labels.
        links: Where a click on the value of a label may go, by label.
        width: Columns of the grid.
        height: Units of 30 pixels.
    """
    series = [one for one, _ in columns]
    names = {f"Value #{ref}": one.name for ref, one in zip(ascii_uppercase, series, strict=False)}
    hidden = [field for field, name in names.items() if not name]
    order = ["Time", *labels, *names]
    made = core.Table(
        **_common(id, title, description, series, "table", instant=True),
        overrides=[
            {
                "matcher": {"id": "byName", "options": one.name},
                "properties": [{"id": "unit", "value": unit}],
            }
            for one, unit in columns
            if one.name
        ]
        + [
            {
                "matcher": {"id": "byName", "options": _heading(label)},
                "properties": [{"id": "links", "value": list(targets)}],
            }
            for label, targets in links.items()
        ],
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(["Time", *hidden], True),
                    "indexByName": {name: place for place, name in enumerate(order)},
                    "renameByName": {label: _heading(label) for label in labels} | names,
                },
            },
        ],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "noValue": "-",
                    "custom": {"cellOptions": {"type": "auto"}, "inspect": False},
                }
            },
            "options": {
                "cellHeight": "sm",
                "sortBy": [{"displayName": series[0].name, "desc": True}],
            },
        },
    )
    return Panel(made, width, height)


def _heading(label: str) -> str:
    return label.replace("_", " ").capitalize()


def _common(
    id: int,
    title: str,
    description: str,
    series: Sequence[Series],
    format: str = "time_series",
    *,
    instant: bool = False,
) -> dict[str, Any]:
    if any(one.exemplars for one in series[1:]):
        # Grafana asks for the exemplars of one series of a panel: the first.
        raise ValueError(f"{title}: exemplars belong to the first series")
    return {
        "id": id,
        "title": title,
        "description": description,
        "dataSource": DATASOURCE,
        "maxDataPoints": None,
        "targets": [
            one.target(ref, instant=instant, format=format)
            for ref, one in zip(ascii_uppercase, series, strict=False)
        ],
    }


def _coloured(series: Sequence[Series]) -> list[str]:
    """Names that have a colour: legends as they are, and the values of a legend that is a label."""
    labels = {"{{stage}}": requests.STAGES, "{{outcome}}": tuple(SERIES), "{{reason}}": FINISHED}
    names = [name for one in series for name in labels.get(one.name, (one.name,))]
    return [name for name in dict.fromkeys(names) if name in SERIES]


def _when_empty(series: Sequence[Series]) -> str:
    def asks(metrics: Sequence[Metric]) -> bool:
        return any(entry.name in one.expr for entry in metrics for one in series)

    if all(" offset $" in one.expr for one in series):
        return NO_PAST
    if asks(requests.METRICS):
        return NO_RECORDS
    if asks(gpu.METRICS):
        return NO_GPU
    return NO_ENGINE if asks(inference.METRICS) else NO_DATA
