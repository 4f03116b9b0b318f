"""Lines over the time of a window: one for each name, in a given colour."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from tailscope.app.text import say

HEIGHT = 220
_POINTS = 40
"""Of lines with more points, these are not marked."""


def draw(
    data: pd.DataFrame,
    colours: Mapping[str, str],
    *,
    by: str,
    value: str,
    title: str,
    window: tuple[int, int],
    named: Mapping[str, str] | None = None,
) -> alt.Chart:
    """Draw lines.

    Args:
        data: ``time``, the column ``by`` and the column ``value``.
        colours: Colour of each name, in the order of the legend.
        by: Column of the names.
        value: Column of the values.
        title: Title of the vertical axis, with its unit.
        window: Ends of the time axis, UTC nanoseconds.
        named: What is shown for a name; the name itself if left out.
    """
    told = {name: (named or {}).get(name, name) for name in colours}
    shown = data[data[by].isin(list(colours))].assign(
        line=lambda frame: frame[by].map(told).astype("str")
    )
    few = len(shown) <= _POINTS * len(colours)
    domain = [pd.Timestamp(at, tz="UTC").isoformat() for at in window]
    chart: alt.Chart = (
        alt.Chart(shown[["time", "line", value]])
        .mark_line(strokeWidth=1.6, point={"size": 12} if few else False)
        .encode(
            x=alt.X(
                "time:T",
                title=say("chart.time"),
                scale=alt.Scale(type="utc", domain=domain),
                axis=alt.Axis(format="%H:%M:%S", tickCount=5, labelOverlap=True),
            ),
            y=alt.Y(f"{value}:Q", title=title, axis=alt.Axis(tickCount=5)),
            color=alt.Color(
                "line:N",
                scale=alt.Scale(domain=list(told.values()), range=list(colours.values())),
                legend=alt.Legend(
                    title="", orient="top", columns=4, labelLimit=150, symbolOpacity=1
                ),
            ),
            tooltip=[
                alt.Tooltip("line:N", title=say("chart.what")),
                alt.Tooltip(f"{value}:Q", title=title, format=",.3~g"),
                alt.Tooltip("time:T", title=say("chart.time"), format="%H:%M:%S", formatType="utc"),
            ],
        )
        .properties(height=HEIGHT)
    )
    return chart
