"""The latency heatmap: arrivals by time and by seconds, in bins, of which some can be boxed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from tailscope.app.box import Box
from tailscope.app.charts import HEIGHT, time_axis, value_axis
from tailscope.app.text import say
from tailscope.triage.stages import Flags, floats

TIME_BINS, VALUE_BINS = 120, 40
"""4,800 marks at most."""

SELECTION = "box"
_SLIVER = 1e-3


def counted(frame: pd.DataFrame, mine: Flags, measure: str) -> pd.DataFrame:
    """The bins of some requests; nothing if none of them has the measure.

    Args:
        frame: Requests.
        mine: Those that are judged.
        measure: Column of the seconds.
    """
    values = floats(frame, measure)
    known = mine & (values > 0)
    if not known.any():
        return pd.DataFrame()
    return bins(frame["arrived_ns"].to_numpy(dtype=np.int64)[known], values[known])


def draw(data: pd.DataFrame, measure: str) -> alt.Chart:
    """Draw the bins.

    Args:
        data: What ``counted`` returns.
        measure: Column of the seconds.
    """
    chart: alt.Chart = (
        alt.Chart(data)
        .mark_rect()
        .encode(
            x=time_axis(),
            x2=alt.X2("until:T"),
            y=value_axis(measure, data["seconds"].to_numpy(), always_log=True),
            y2=alt.Y2("to:Q"),
            color=alt.Color(
                "requests:Q",
                scale=alt.Scale(type="log"),
                legend=alt.Legend(
                    title=say("chart.requests"),
                    titleOrient="left",
                    orient="top",
                    gradientThickness=8,
                    gradientLength=160,
                    format=",d",
                    tickCount=3,
                ),
            ),
            tooltip=[
                alt.Tooltip("requests:Q", title=say("chart.requests"), format=","),
                alt.Tooltip("seconds:Q", title=say("chart.from"), format=".3g"),
                alt.Tooltip("to:Q", title=say("chart.to"), format=".3g"),
            ],
        )
        .add_params(alt.selection_interval(name=SELECTION, encodings=["x", "y"]))
        .properties(height=HEIGHT)
    )
    return chart


def bins(arrived_ns: Any, values: Any) -> pd.DataFrame:
    """Counts of the bins that hold any: ``time``, ``until``, ``seconds``, ``to``, ``requests``."""
    logs = np.log10(values)
    # Of one request, or many of one time, the bin has some height and width all the same.
    low, high = float(logs.min()) - _SLIVER, float(logs.max()) + _SLIVER
    first, last = float(arrived_ns.min()), float(arrived_ns.max())
    spread = max(last - first, 1e9)
    counts, times, edges = np.histogram2d(
        arrived_ns.astype(np.float64),
        logs,
        (TIME_BINS, VALUE_BINS),
        ((first, first + spread), (low, high)),
    )
    column, row = np.nonzero(counts)
    when = pd.to_datetime(times.astype(np.int64), utc=True)
    return pd.DataFrame(
        {
            "time": when[column],
            "until": when[column + 1],
            "seconds": 10 ** edges[row],
            "to": 10 ** edges[row + 1],
            "requests": counts[column, row].astype(np.int64),
        }
    )


def boxed(event: Mapping[str, Any], measure: str) -> Box | None:
    """What was boxed in the browser; None if nothing is.

    Args:
        event: The chart's state.
        measure: Column of the seconds.
    """
    chosen = (event.get("selection") or {}).get(SELECTION) or {}
    times, seconds = chosen.get("time"), chosen.get("seconds")
    if not times or not seconds:
        return None
    # The browser tells times in milliseconds.
    return Box(int(min(times) * 1e6), int(max(times) * 1e6), min(seconds), max(seconds), measure)
