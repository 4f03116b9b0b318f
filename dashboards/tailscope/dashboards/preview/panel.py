"""One panel of a board's JSON, drawn with the data that its queries give."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from tailscope.dashboards.preview import chart
from tailscope.dashboards.preview.chart import Frame, Line, Look
from tailscope.dashboards.preview.prometheus import Curve, Prometheus, QueryError
from tailscope.dashboards.preview.units import text
from tailscope.dashboards.preview.variables import legend, put, step
from tailscope.dashboards.style import Colour

_PALETTE: Final = (
    "#3182BD", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8B6BC7", "#A9A11D",
    "#8A949E",
)  # fmt: skip
_LEGENDS: Final = 6
"""Names below a chart; the rest is counted."""
_HEAD: Final = 26
_LEGEND: Final = 20


@dataclass(frozen=True, slots=True)
class Span:
    """The time range that is shown, and what the variables stand for in it."""

    start: float
    end: float
    scrape: float
    variables: Mapping[str, str]

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return step(self.end - self.start, self.scrape)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A panel as HTML, and whether its queries gave anything."""

    html: str
    empty: bool


def draw(
    panel: Mapping[str, Any], source: Prometheus, span: Span, width: int, height: int
) -> Drawn:
    """Draw a panel of any of the house's shapes.

    Raises:
        UsageError: If Prometheus does not answer.
    """
    try:
        answers = [_answer(target, source, span) for target in panel["targets"]]
    except QueryError as error:
        return Drawn(f'<p class="wrong">{escape(str(error))}</p>', True)
    if not any(answers):
        none = panel["fieldConfig"]["defaults"].get("noValue", "-")
        return Drawn(f'<p class="none">{escape(none)}</p>', True)
    frame = Frame(width, height - _HEAD, span.start, span.end, span.step)
    return Drawn(_SHAPES[panel["type"]](panel, answers, frame), False)


def _answer(target: Mapping[str, Any], source: Prometheus, span: Span) -> list[Curve]:
    expr = put(target["expr"], span.variables)
    if target["instant"]:
        return source.at(expr, span.end)
    return source.over(expr, span.start, span.end, span.step)


def _timeseries(panel: Mapping[str, Any], answers: Sequence[Sequence[Curve]], frame: Frame) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    steps = defaults["thresholds"]["steps"][1:]
    look = Look(
        defaults["unit"],
        defaults.get("min"),
        defaults.get("max"),
        defaults["custom"]["stacking"]["mode"] == "normal",
        [(step["value"], step["color"]) for step in steps],
    )
    found = list(_lines(panel, answers))
    taken = _LEGEND * _legend_lines(found, frame.width)
    smaller = Frame(frame.width, frame.height - taken, frame.start, frame.end, frame.step)
    return chart.lines(found, look, smaller) + _legend(found, taken)


def _lines(panel: Mapping[str, Any], answers: Sequence[Sequence[Curve]]) -> Iterator[Line]:
    taken: set[str] = set()
    for target, curves in zip(panel["targets"], answers, strict=True):
        for curve in curves:
            name = legend(target["legendFormat"], curve.labels).strip()
            properties = dict(_overrides(panel, name))
            colour = properties.get("color", {}).get("fixedColor")
            if colour is None:
                colour = _by_name(name, taken)
                taken.add(colour)
            unit = properties.get("unit", panel["fieldConfig"]["defaults"]["unit"])
            yield Line(
                name,
                curve,
                colour,
                unit,
                "custom.lineStyle" in properties,
                properties.get("custom.axisPlacement") == "right",
            )


def _by_name(name: str, taken: Collection[str]) -> str:
    """The same colour for a name on every panel, but for one that another name has already."""
    first = zlib.crc32(name.encode()) % len(_PALETTE)
    inorder = (*_PALETTE[first:], *_PALETTE[:first])
    return next((colour for colour in inorder if colour not in taken), inorder[0])


def _overrides(panel: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    for override in panel["fieldConfig"].get("overrides", ()):
        matcher = override["matcher"]
        hit = (
            re.search(matcher["options"], name)
            if matcher["id"] == "byRegexp"
            else matcher["options"] == name
        )
        if hit:
            yield from ((each["id"], each["value"]) for each in override["properties"])


def _legend_lines(found: Sequence[Line], width: int) -> int:
    """One line, or up to three where the names need them; about six pixels a letter."""
    shown = found[:_LEGENDS]
    letters = sum(len(each.name) + len(text(each.curve.last, each.unit)) + 6 for each in shown)
    return min(1 + 6 * letters // width, 3)


def _legend(found: Sequence[Line], height: int) -> str:
    names = "".join(
        f'<span><i style="background:{each.colour}"></i>{escape(each.name)} '
        f"<b>{escape(text(each.curve.last, each.unit))}</b></span>"
        for each in found[:_LEGENDS]
    )
    rest = len(found) - _LEGENDS
    more = f"<span>and {rest} more</span>" if rest > 0 else ""
    return f'<div class="legend" style="height:{height}px">{names}{more}</div>'


def _heatmap(panel: Mapping[str, Any], answers: Sequence[Sequence[Curve]], frame: Frame) -> str:
    return chart.heatmap(answers[0], panel["fieldConfig"]["defaults"]["unit"], frame)


def _stat(panel: Mapping[str, Any], answers: Sequence[Sequence[Curve]], frame: Frame) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    curve = answers[0][0]
    steps = defaults["thresholds"]["steps"]
    colour = [step["color"] for step in steps if (step["value"] or 0) <= curve.last][-1:]
    below = Frame(frame.width, frame.height - 40, frame.start, frame.end, frame.step)
    shade = colour[0] if colour else Colour.SKY
    value = escape(text(curve.last, defaults["unit"]))
    drawn = f'<div class="value" style="color:{shade}">{value}</div>'
    return drawn + chart.sparkline(curve, shade, below) if len(curve.points) > 1 else drawn


def _table(panel: Mapping[str, Any], answers: Sequence[Sequence[Curve]], frame: Frame) -> str:
    options = panel["transformations"][1]["options"]
    names = options["renameByName"]
    labels = [name for name in options["indexByName"] if name != "Time" and "Value #" not in name]
    columns = [names[f"Value #{target['refId']}"] for target in panel["targets"]]
    lines: dict[tuple[str, ...], dict[str, float]] = {}
    extra: dict[tuple[str, ...], tuple[str, ...]] = {}
    for column, curves in zip(columns, answers, strict=True):
        for curve in curves:
            full = tuple(curve.labels.get(name, "") for name in labels)
            key = next((known for known in lines if _same(known, full)), full)
            extra[key] = tuple(a or b for a, b in zip(extra.get(key, full), full, strict=True))
            lines.setdefault(key, {})[column] = curve.last
    shown = [column for column in columns if column]
    ordered = sorted(lines, key=lambda key: -lines[key].get(columns[0], 0))
    head = "".join(f"<th>{escape(name)}</th>" for name in (*(names[n] for n in labels), *shown))
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(label)}</td>" for label in extra[key])
        + "".join(f"<td>{_cell(panel, column, lines[key])}</td>" for column in shown)
        + "</tr>"
        for key in ordered
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two sets of labels say the same, as far as both say anything."""
    return all(not a or not b or a == b for a, b in zip(one, other, strict=True))


def _cell(panel: Mapping[str, Any], column: str, line: Mapping[str, float]) -> str:
    if column not in line:
        return ""
    unit = dict(_overrides(panel, column)).get("unit", "short")
    return escape(text(line[column], unit))


_SHAPES: Final = {
    "timeseries": _timeseries,
    "heatmap": _heatmap,
    "stat": _stat,
    "table": _table,
}
