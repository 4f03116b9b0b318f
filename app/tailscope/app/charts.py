"""Charts of a window. Never more than 5,000 marks go to the browser."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd

from tailscope.app.access import single
from tailscope.app.palette import ACCENT, GREY, OTHERS, UNKNOWN, TenantColours
from tailscope.app.text import say
from tailscope.app.text import tenant as named_so
from tailscope.triage.finding import Finding
from tailscope.triage.identity import keys
from tailscope.triage.stages import STAGES, Flags, Floats, floats, named, rows
from tailscope.triage.words import percent, seconds

Drawing = alt.LayerChart | alt.FacetChart

MAX_MARKS = 5_000
_TIME_BINS, _VALUE_BINS = 120, 40
HEIGHT = 280
"""Pixels of a chart over time."""


def latency(
    mine: pd.DataFrame,
    finding: Finding,
    measure: str,
    colours: TenantColours,
    tenants: list[str],
) -> Drawing | None:
    """Latency over time: one mark per request, or bins with the slowest requests on top.

    Args:
        mine: The requests that are judged.
        finding: Which of them are slow.
        measure: One of ``MEASURES``, the columns that can be drawn over time.
        colours: Colours of the tenants.
        tenants: Those that are told apart.

    Returns:
        None if no request has the measure.
    """
    values = floats(mine, measure)
    known = values > 0
    if not known.any():
        return None
    y = value_axis(measure, values[known])
    slow = _points(rows(mine, known & _slowest(mine, finding)), measure, tenants)
    encoding = {"x": time_axis(), "y": y, "tooltip": _tooltip(measure)}
    if known.sum() + len(slow) > MAX_MARKS:
        ground = _heat(mine["arrived_ns"].to_numpy()[known], values[known], y)
        shown = slow
    else:
        shown = _points(rows(mine, known), measure, tenants)
        ground = (
            alt.Chart(shown)
            .mark_circle(size=34, opacity=0.75)
            .encode(**encoding, color=_tenant(colours, shown, tenants))
        )
    rings = alt.Chart(slow).mark_point(size=110, filled=False, strokeWidth=1.6)
    return alt.layer(
        ground, rings.encode(**encoding, color=_tenant(colours, shown, tenants))
    ).properties(height=HEIGHT)


def _slowest(mine: pd.DataFrame, finding: Finding) -> Flags:
    """Which rows are among the slow requests that are listed."""
    wanted = {request.key: request.arrived_ns for request in finding.slow.slowest}
    found = mine["arrived_ns"].isin(list(wanted.values())).to_numpy(copy=True)
    found[found] = keys(mine[found]).isin(list(wanted)).to_numpy()
    return found


def _points(frame: pd.DataFrame, measure: str, tenants: list[str]) -> pd.DataFrame:
    tenant = named(frame, "tenant")
    return pd.DataFrame(
        {
            "time": pd.to_datetime(frame["arrived_ns"], utc=True),
            "seconds": floats(frame, measure),
            "tenant": tenant.where(tenant.isin([*tenants, UNKNOWN]), OTHERS).map(named_so),
            "name": tenant.map(named_so),
            "request": frame["request_id"].fillna(frame["span_id"]).fillna(say("chart.no_id")),
            "input_tokens": frame["input_tokens"].where(single(frame)),
            "output_tokens": frame["output_tokens"].where(single(frame)),
        }
    )


def time_axis() -> alt.X:
    """The axis of arrivals."""
    return alt.X(
        "time:T",
        title=say("chart.arrival"),
        scale=alt.Scale(type="utc", padding=8),
        axis=alt.Axis(format="%H:%M:%S", tickCount=6, labelOverlap=True),
    )


def value_axis(measure: str, values: Floats, *, always_log: bool = False) -> alt.Y:
    """The axis of seconds; logarithmic where they differ much, or always.

    Args:
        measure: Column of the seconds.
        values: What is drawn.
        always_log: Whether it is logarithmic in any case.
    """
    low, high = float(values.min()), float(values.max())
    wide = always_log or high > 10 * low
    return alt.Y(
        "seconds:Q",
        title=say(f"chart.{measure}"),
        scale=alt.Scale(type="log", nice=False) if wide else alt.Scale(zero=True),
        axis=alt.Axis(format="~g", values=_ticks(low, high) if wide else alt.Undefined),
    )


def _ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 and their tenfolds between two values; without 2 and 5 where they are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [step * 10.0**power for power in powers for step in steps]


def _tenant(colours: TenantColours, data: pd.DataFrame, tenants: list[str]) -> alt.Color:
    present = set(data["tenant"])
    names = [name for name in (*sorted({*tenants, OTHERS}), UNKNOWN) if named_so(name) in present]
    domain, scale = colours.scale(names)
    return alt.Color(
        "tenant:N",
        scale=alt.Scale(domain=domain, range=scale),
        legend=alt.Legend(title="", orient="top", columns=4, labelLimit=150, symbolOpacity=1),
    )


def _tooltip(measure: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("request:N", title=say("chart.request")),
        alt.Tooltip("name:N", title=say("chart.tenant")),
        alt.Tooltip("time:T", title=say("chart.arrived"), format="%H:%M:%S.%L", formatType="utc"),
        alt.Tooltip("seconds:Q", title=say(f"chart.{measure}"), format=".3f"),
        alt.Tooltip("input_tokens:Q", title=say("chart.tokens_in"), format=","),
        alt.Tooltip("output_tokens:Q", title=say("chart.tokens_out"), format=","),
    ]


def _heat(arrived_ns: Floats, values: Floats, y: alt.Y) -> alt.Chart:
    counts, times, logs = np.histogram2d(
        arrived_ns.astype(np.float64), np.log10(values), (_TIME_BINS, _VALUE_BINS)
    )
    column, row = np.nonzero(counts)
    when = pd.to_datetime(times.astype(np.int64), utc=True)
    bins = pd.DataFrame(
        {
            "time": when[column],
            "until": when[column + 1],
            "seconds": 10 ** logs[row],
            "to": 10 ** logs[row + 1],
            "requests": counts[column, row].astype(np.int64),
        }
    )
    chart: alt.Chart = (
        alt.Chart(bins)
        .mark_rect(color=GREY)
        .encode(
            x=time_axis(),
            x2=alt.X2("until:T"),
            y=y,
            y2=alt.Y2("to:Q"),
            opacity=alt.Opacity(
                "requests:Q", scale=alt.Scale(type="log", range=[0.12, 1.0]), legend=None
            ),
            tooltip=[
                alt.Tooltip("requests:Q", title=say("chart.requests"), format=","),
                alt.Tooltip("seconds:Q", title=say("chart.from"), format=".3g"),
                alt.Tooltip("to:Q", title=say("chart.to"), format=".3g"),
            ],
        )
    )
    return chart


def slow_seconds(finding: Finding) -> Drawing | None:
    """Slow seconds by stage, in the order in which one looks; None if no stage is known."""
    held = finding.slow.by_stage
    if not finding.slow.requests or not held:
        return None
    whole = sum(held.values()) or 1.0
    data = pd.DataFrame(
        {
            "stage": [say(f"stage.{stage}") for stage in held],
            "seconds": list(held.values()),
            "label": [f"{seconds(value)} · {percent(value / whole)}" for value in held.values()],
        }
    )
    stages = [stage for stage in STAGES if stage in held]
    order = [say(f"stage.{stage}") for stage in stages]
    room = 1.7 * max(held.values())  # for the labels beside the bars
    base = alt.Chart(data).encode(
        y=alt.Y("stage:N", sort=order, title=None),
        x=alt.X(
            "seconds:Q",
            title=say("chart.above"),
            scale=alt.Scale(domain=[0, room or 1.0]),
            axis=alt.Axis(tickCount=4),
        ),
        tooltip=[
            alt.Tooltip("stage:N", title=say("chart.stage")),
            alt.Tooltip("seconds:Q", title=say("chart.slow_seconds"), format=",.2f"),
        ],
    )
    colour = alt.Color(
        "stage:N",
        scale=alt.Scale(
            domain=order,
            range=[ACCENT if stage == finding.slow.stage else GREY for stage in stages],
        ),
        legend=None,
    )
    bars = base.mark_bar(cornerRadiusEnd=3, height={"band": 0.6}).encode(color=colour)
    labels = base.mark_text(align="left", dx=5, color=GREY).encode(text=alt.Text("label:N"))
    return alt.layer(bars, labels).properties(height=HEIGHT)
