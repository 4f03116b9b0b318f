"""Percentiles of a window over time, with the stretches that are compared and the change."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from tailscope.app.charts import Drawing
from tailscope.app.palette import ACCENT, GREY
from tailscope.app.text import say
from tailscope.triage.stages import floats

BINS = 80
FEWEST = 5
"""Requests of a bin that have percentiles."""

LEVELS = {"p50": 0.5, "p95": 0.95}
_HEIGHT = 220


def percentiles(frame: pd.DataFrame) -> pd.DataFrame:
    """Percentiles of the total time by arrival: ``time``, ``level`` and ``seconds``."""
    total, arrived = floats(frame, "total_seconds"), frame["arrived_ns"].to_numpy(dtype=np.int64)
    known = np.isfinite(total)
    if known.sum() < FEWEST:
        return pd.DataFrame(columns=["time", "level", "seconds"])
    total, arrived = total[known], arrived[known]
    low, high = int(arrived.min()), int(arrived.max())
    width = max((high - low) // BINS, 1)
    rows = pd.DataFrame({"bin": (arrived - low) // width, "seconds": total})
    full = rows.groupby("bin")["seconds"].transform("size") >= FEWEST
    levels = np.array(list(LEVELS.values()))
    found = rows[full].groupby("bin")["seconds"].quantile(levels).reset_index()
    found.columns = pd.Index(["bin", "level", "seconds"])
    names = {level: name for name, level in LEVELS.items()}
    return pd.DataFrame(
        {
            "time": pd.to_datetime(low + found["bin"] * width + width // 2, utc=True),
            "level": found["level"].map(names),
            "seconds": found["seconds"],
        }
    )


def draw(data: pd.DataFrame, marks: Sequence[int], spans: Sequence[tuple[int, int]]) -> Drawing:
    """Draw them.

    Args:
        data: What ``percentiles`` returns.
        marks: When something was changed, UTC nanoseconds: dashes.
        spans: Before and after: shaded.
    """
    x = alt.X(
        "time:T",
        title=say("chart.arrival"),
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(format="%H:%M:%S", tickCount=6, labelOverlap=True),
    )
    layers: list[alt.Chart] = []
    if spans:
        names = [say("comparison.before"), say("comparison.after")]
        shades = pd.DataFrame(
            {
                "time": [pd.Timestamp(low, tz="UTC") for low, _ in spans],
                "until": [pd.Timestamp(high, tz="UTC") for _, high in spans],
                "when": names[: len(spans)],
            }
        )
        layers.append(
            alt.Chart(shades)
            .mark_rect(opacity=0.14)
            .encode(
                x=x,
                x2="until:T",
                color=alt.Color(
                    "when:N",
                    scale=alt.Scale(domain=names, range=[GREY, ACCENT]),
                    legend=alt.Legend(title="", orient="top"),
                ),
            )
        )
    lines = (
        alt.Chart(data)
        .mark_line(strokeWidth=1.8)
        .encode(
            x=x,
            y=alt.Y("seconds:Q", title=say("chart.total_seconds"), axis=alt.Axis(tickCount=5)),
            strokeDash=alt.StrokeDash(
                "level:N",
                scale=alt.Scale(domain=["p95", "p50"], range=[[1, 0], [4, 3]]),
                legend=alt.Legend(title="", orient="top", symbolStrokeColor=GREY),
            ),
            color=alt.value(ACCENT),
            tooltip=[
                alt.Tooltip("level:N", title=say("chart.level")),
                alt.Tooltip("seconds:Q", title=say("chart.total_seconds"), format=",.3f"),
                alt.Tooltip(
                    "time:T", title=say("chart.arrived"), format="%H:%M:%S", formatType="utc"
                ),
            ],
        )
    )
    layers.append(lines)
    if marks:
        rule = pd.DataFrame({"time": [pd.Timestamp(at, tz="UTC") for at in marks]})
        layers.append(
            alt.Chart(rule).mark_rule(strokeDash=[4, 3], strokeWidth=2, color="#D55E00").encode(x=x)
        )
    return alt.layer(*layers).properties(height=_HEIGHT)
