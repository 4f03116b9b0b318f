"""Curves over time and heatmaps, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tailscope.dashboards.preview.prometheus import Curve
from tailscope.dashboards.preview.scale import Axis, moments, ticks
from tailscope.dashboards.preview.svg import element, label, path
from tailscope.dashboards.preview.units import text

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 8, 20
_RIGHT_AXIS: Final = 52
_GRID: Final = "#e6e9ee"
_INK: Final = "#5b6472"


@dataclass(frozen=True, slots=True)
class Frame:
    """Where and when a chart is drawn: pixels, Unix seconds."""

    width: int
    height: int
    start: float
    end: float
    step: float


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with what it looks like."""

    name: str
    curve: Curve
    colour: str
    unit: str
    dashed: bool = False
    right: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """How the values of a chart are shown.

    Attributes:
        unit: Of the left axis.
        lowest: Fixed lower end, or none.
        highest: Fixed upper end, or none.
        stacked: Whether each curve stands on the one before it.
        limits: Values that are marked, and their colours.
    """

    unit: str
    lowest: float | None
    highest: float | None
    stacked: bool
    limits: Sequence[tuple[float, str]]


def lines(curves: Sequence[Line], look: Look, frame: Frame) -> str:
    """Draw curves over time."""
    left = [each for each in curves if not each.right]
    right = [each for each in curves if each.right]
    edge = frame.width - (_RIGHT_AXIS if right else _RIGHT)
    times = Axis(frame.start, frame.end, _LEFT, edge)
    floors = _stack(left) if look.stacked else [{} for _ in left]
    values, marks = _values(left, floors, look, frame)
    parts = [_grid(values, marks, look.unit, times, frame)]
    parts += [_limit(value, colour, values, times) for value, colour in look.limits]
    for each, floor in zip(left, floors, strict=True):
        parts.append(_curve(each, floor, values, times, frame, filled=look.stacked))
    if right:
        unit = right[0].unit
        own, steps = _values(right, [{} for _ in right], Look(unit, 0, None, False, ()), frame)
        parts += [label(edge + 6, own.at(mark) + 4, text(mark, unit), fill=_INK) for mark in steps]
        parts += [_curve(each, {}, own, times, frame, filled=False) for each in right]
    return _svg(parts, frame)


def _stack(curves: Sequence[Line]) -> list[dict[float, float]]:
    """For each curve the height of those below it, by time."""
    height: dict[float, float] = {}
    floors = []
    for each in curves:
        floors.append(dict(height))
        for at, value in each.curve.points:
            height[at] = height.get(at, 0) + value
    return floors


def _values(
    curves: Sequence[Line], floors: Sequence[Mapping[float, float]], look: Look, frame: Frame
) -> tuple[Axis, list[float]]:
    found = [
        value + floor.get(at, 0)
        for each, floor in zip(curves, floors, strict=True)
        for at, value in each.curve.points
    ] or [0.0]
    low = min(found) if look.lowest is None else look.lowest
    high = max(found) if look.highest is None else look.highest
    marks = ticks(low, high if high > low else low + (abs(low) or 1), unit=look.unit)
    low = marks[0] if look.lowest is None else look.lowest
    high = marks[-1] if look.highest is None else look.highest
    return Axis(low, high, frame.height - _BOTTOM, _TOP), [m for m in marks if low <= m <= high]


def _grid(values: Axis, marks: Sequence[float], unit: str, times: Axis, frame: Frame) -> str:
    parts = []
    for mark in marks:
        y = values.at(mark)
        parts.append(element("path", d=f"M{times.start} {y}H{times.end}", stroke=_GRID))
        parts.append(label(_LEFT - 6, y + 4, text(mark, unit), "end", fill=_INK))
    for at, name in moments(frame.start, frame.end, max(2, frame.width // 110)):
        x = times.at(at)
        parts.append(element("path", d=f"M{x} {_TOP}V{frame.height - _BOTTOM}", stroke=_GRID))
        parts.append(label(x, frame.height - 5, name, "middle", fill=_INK))
    return "".join(parts)


def _limit(value: float, colour: str, values: Axis, times: Axis) -> str:
    if not values.low < value < values.high:
        return ""
    d = f"M{times.start} {values.at(value)}H{times.end}"
    return element("path", d=d, stroke=colour, stroke_dasharray="6 4", opacity=0.7)


def _curve(
    each: Line,
    floor: Mapping[float, float],
    values: Axis,
    times: Axis,
    frame: Frame,
    *,
    filled: bool,
) -> str:
    upper = [(times.at(at), values.at(value + floor.get(at, 0))) for at, value in each.curve.points]
    gap = (times.at(frame.start + 3 * frame.step) - times.start) + 1
    parts = []
    if filled:
        lower = [(times.at(at), values.at(floor.get(at, 0))) for at, _ in each.curve.points]
        around = path(upper) + path(reversed(lower)).replace("M", "L", 1) + "Z"
        parts.append(element("path", d=around, fill=each.colour, fill_opacity=0.55))
    parts.append(
        element(
            "path",
            d=path(upper, gap),
            fill="none",
            stroke=each.colour,
            stroke_width=1.4,
            stroke_dasharray="6 4" if each.dashed else None,
        )
    )
    if len(upper) == 1:
        parts.append(element("circle", cx=upper[0][0], cy=upper[0][1], r=2.5, fill=each.colour))
    return "".join(parts)


def heatmap(buckets: Sequence[Curve], unit: str, frame: Frame) -> str:
    """Draw the buckets of a histogram: a row for each bound, darker where there are more."""
    rows = _rows(buckets)
    used = [number for number, row in enumerate(rows) if any(row[1].values())]
    first, last = max(min(used, default=0) - 1, 0), max(used, default=0)
    shown = rows[first : last + 1]
    most = max((count for _, row in shown for count in row.values()), default=0) or 1
    times = Axis(frame.start, frame.end, _LEFT, frame.width - _RIGHT)
    height = (frame.height - _TOP - _BOTTOM) / max(len(shown), 1)
    width = max(times.at(frame.start + frame.step) - times.start, 1)
    parts = []
    for number, (bound, row) in enumerate(reversed(shown)):
        y = _TOP + number * height
        if len(shown) <= 12 or number % (len(shown) // 8) == 0:
            name = "more" if bound == float("inf") else text(bound, unit)
            parts.append(label(_LEFT - 6, y + height / 2 + 4, name, "end", fill=_INK))
        parts += [
            element(
                "rect",
                x=max(times.at(at) - width, _LEFT),
                y=round(y, 1),
                width=min(width, times.at(at) - _LEFT),
                height=round(height - 0.5, 1),
                fill="#D55E00",
                fill_opacity=round(0.08 + 0.92 * (count / most) ** 0.5, 3),
            )
            for at, count in row.items()
            if count > 0 and at > frame.start
        ]
    for at, name in moments(frame.start, frame.end, max(2, frame.width // 110)):
        parts.append(label(times.at(at), frame.height - 5, name, "middle", fill=_INK))
    return _svg(parts, frame)


def _rows(buckets: Sequence[Curve]) -> list[tuple[float, dict[float, float]]]:
    """What lies between each bound and the one below it; the buckets of Prometheus add up."""
    ordered = sorted(buckets, key=lambda bucket: float(bucket.labels["le"]))
    below: dict[float, float] = {}
    found = []
    for bucket in ordered:
        counts = dict(bucket.points)
        found.append(
            (
                float(bucket.labels["le"]),
                {at: max(count - below.get(at, 0), 0) for at, count in counts.items()},
            )
        )
        below = counts
    return found


def sparkline(curve: Curve, colour: str, frame: Frame) -> str:
    """Draw the course of one number, without axes."""
    values = [value for _, value in curve.points]
    times = Axis(frame.start, frame.end, 0, frame.width)
    heights = Axis(min(0.0, *values), max(1e-9, *values), frame.height, 4)
    points = [(times.at(at), heights.at(value)) for at, value in curve.points]
    floor = f"L{points[-1][0]:g} {frame.height}L{points[0][0]:g} {frame.height}Z"
    area = element("path", d=path(points) + floor, fill=colour, fill_opacity=0.15)
    return _svg([area, element("path", d=path(points), fill="none", stroke=colour)], frame)


def _svg(parts: Sequence[str], frame: Frame) -> str:
    return element(
        "svg",
        "".join(parts),
        width=frame.width,
        height=frame.height,
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
    )
