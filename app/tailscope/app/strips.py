"""What GPUs and engine did while one request ran: strips under its timeline, on the same axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import altair as alt
import numpy as np
import pandas as pd

from tailscope.app.palette import ACCENT, GREY
from tailscope.app.text import say
from tailscope.app.timeline import LABELS, edges, time_axis

MAX_LINES = 8
"""GPUs, or MIG instances, that are drawn; the busiest."""

MAX_POINTS = 250
"""Points of one line; of more samples than that, means are drawn."""

BESIDE_NS = 15 * 10**9
"""Samples are read from so long before the axis and after it, so that lines reach its edges."""

_HEIGHT = 190
_GAP = 5.0


@dataclass(frozen=True, slots=True)
class Strip:
    """One chart: what it shows, in which unit, and how its values lie between two samples.

    Attributes:
        key: Its name among the texts.
        series: Metric to the name of its line; the last is the one to look at.
        per: Label values that tell lines of one metric apart.
        scale: What a value is multiplied by.
        most: Upper end of the axis; None for as much as is needed.
        between: How the line goes. A share of cycles is the mean since the sample before.
    """

    key: str
    series: Mapping[str, str]
    per: tuple[str, ...]
    scale: float = 1.0
    most: float | None = None
    between: Literal["linear", "step-before"] = "linear"

    @property
    def title(self) -> str:
        """What it is, for people."""
        return say(f"strip.{self.key}")

    @property
    def unit(self) -> str:
        """Unit of its axis."""
        return say(f"strip.{self.key}_unit")


GPU = Strip(
    "gpu",
    MappingProxyType(
        {"tailscope_gpu_sm_active_ratio": "SM", "tailscope_gpu_dram_active_ratio": "DRAM"}
    ),
    ("gpu", "gi"),
    scale=100.0,
    most=100.0,
    between="step-before",
)
QUEUE = Strip(
    "queue",
    MappingProxyType(
        {
            "tailscope_engine_requests_running": "running",
            "tailscope_engine_requests_waiting": "waiting",
        }
    ),
    ("server", "model", "rank"),
)
CACHE = Strip(
    "cache",
    MappingProxyType({"tailscope_engine_kv_cache_usage_ratio": "cache"}),
    ("server", "model", "rank"),
    scale=100.0,
    most=100.0,
)
STRIPS = (GPU, QUEUE, CACHE)
METRICS = tuple(name for strip in STRIPS for name in strip.series)


def span(origin_ns: int, length: float) -> tuple[int, int]:
    """The time of which samples are wanted, UTC nanoseconds.

    Args:
        origin_ns: Arrival of the request.
        length: Its seconds.
    """
    low, high = edges(length)
    return origin_ns + int(low * 1e9) - BESIDE_NS, origin_ns + int(high * 1e9) + BESIDE_NS


def lines(
    samples: pd.DataFrame, strip: Strip, origin_ns: int, length: float, server: str = ""
) -> pd.DataFrame:
    """The points of a strip.

    Args:
        samples: Stored samples.
        strip: What is drawn.
        origin_ns: Where the time axis has its 0.
        length: Seconds of the request.
        server: The engine that is meant; empty for all.

    Returns:
        ``start`` (seconds), ``value``, ``what`` (the line's name), ``whose`` and ``piece``, which
        changes over a gap. Nothing where no sample lies on the axis.
    """
    frame = samples[samples["metric"].isin(list(strip.series))]
    if server and "server" in frame:
        frame = frame[frame["server"] == server]
    start = (frame["time_ns"].to_numpy(dtype=np.int64) - origin_ns) / 1e9
    labels = [frame[name].fillna("") for name in strip.per if name in frame]
    found = pd.DataFrame(
        {
            "start": start,
            "value": frame["value"].to_numpy(dtype=np.float64) * strip.scale,
            "what": frame["metric"].map(dict(strip.series)).to_numpy(),
            "whose": _whose(strip, labels, len(frame)),
        }
    ).sort_values(["what", "whose", "start"], kind="stable")
    found = _cut(found, length)
    if found.empty:
        return found.assign(piece="")
    known = found["whose"].isin(_busiest(found))
    found = found[known].reset_index(drop=True)
    by = found.groupby(["what", "whose"])["start"]
    number = (by.diff() > _GAP).cumsum().astype("str")
    return _thinned(found.assign(piece=found["what"] + found["whose"] + number))


def _whose(strip: Strip, labels: list[pd.Series[str]], size: int) -> list[str]:
    """Name whose line it is: ``GPU 0``, ``GPU 0 instance 3``, or the labels of an engine."""
    if strip is GPU:
        rows = zip(*labels, strict=True) if labels else [("",)] * size
        return [
            say("strip.instance", gpu=first, instance=rest[0])
            if rest and rest[0]
            else f"GPU {first}"
            for first, *rest in rows
        ]
    return [" ".join(filter(None, row)) for row in zip(*labels, strict=True)] or [""] * size


def _cut(found: pd.DataFrame, length: float) -> pd.DataFrame:
    """What lies on the axis, and of each line the next point on either side."""
    low, high = edges(length)
    by = found.groupby(["what", "whose"])["start"]
    inside = (found["start"] >= low) & (found["start"] <= high)
    before = by.shift(-1).between(low, high) & (found["start"] < low)
    after = by.shift(1).between(low, high) & (found["start"] > high)
    # A short request may lie between two samples.
    across = (found["start"] < low) & (by.shift(-1) > high) & (by.diff(-1).abs() <= _GAP)
    across |= (found["start"] > high) & (by.shift(1) < low) & (by.diff() <= _GAP)
    return found[inside | before | after | across]


def _thinned(found: pd.DataFrame) -> pd.DataFrame:
    """Means over parts of the axis, where a line has too many points."""
    if found.groupby(["what", "whose", "piece"]).size().max() <= MAX_POINTS:
        return found
    first, last = found["start"].min(), found["start"].max()
    part = ((found["start"] - first) / (last - first) * (MAX_POINTS - 1)).astype(np.int64)
    by = found.groupby(["what", "whose", "piece", part.rename("part")], sort=True)
    means = by.agg(start=("start", "max"), value=("value", "mean")).reset_index()
    return means.drop(columns="part")


def _busiest(found: pd.DataFrame) -> list[str]:
    mean = found.groupby("whose")["value"].mean().sort_values(ascending=False, kind="stable")
    return list(mean.index[:MAX_LINES])


def draw(data: pd.DataFrame, strip: Strip, length: float) -> alt.LayerChart | alt.FacetChart:
    """Draw the points: one line for each name and each GPU or engine."""
    names = [name for name in strip.series.values() if name in set(data["what"])]
    top = strip.most or max(1.0, 1.05 * float(data["value"].max()))
    several = data["whose"].nunique() > 1
    lines_of = {name: say(f"line.{name}") for name in names}
    chart = (
        alt.Chart(data.assign(what=data["what"].map(lines_of)))
        .mark_line(interpolate=strip.between, clip=True, strokeWidth=1.6, point={"size": 14})
        .encode(
            x=time_axis(length, None),
            y=alt.Y(
                "value:Q",
                # The unit stands in the legend: a title here would move the plot to the right.
                title=None,
                scale=alt.Scale(domain=[0, top]),
                axis=alt.Axis(
                    tickCount=3,
                    minExtent=LABELS,
                    maxExtent=LABELS,
                ),
            ),
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=list(lines_of.values()), range=_colours(strip, names)),
                legend=alt.Legend(
                    title=f"{strip.title} ({strip.unit})",
                    orient="top",
                    titleOrient="left",
                    titleLimit=300,
                    symbolType="stroke",
                    symbolStrokeWidth=3,
                    symbolOpacity=1,
                ),
            ),
            detail=alt.Detail("piece:N"),
            opacity=alt.value(0.55 if several else 0.95),
            tooltip=[
                alt.Tooltip("whose:N", title=say("chart.of")),
                alt.Tooltip("what:N", title=say("chart.what")),
                alt.Tooltip("value:Q", title=strip.unit, format=",.1f"),
                alt.Tooltip("start:Q", title=say("chart.at"), format=",.3f"),
            ],
        )
    )
    marks = alt.Chart(pd.DataFrame({"at": [0.0, length]})).mark_rule(strokeDash=[4, 3], color=GREY)
    return alt.layer(chart, marks.encode(x=alt.X("at:Q"))).properties(height=_HEIGHT)


def _colours(strip: Strip, names: list[str]) -> list[str]:
    """No colour of a tenant: these lines are nobody's."""
    last = list(strip.series.values())[-1]
    return [ACCENT if name == last else GREY for name in names]
