"""Slow seconds over time, by what they are owed to."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from tailscope.app.charts import time_axis
from tailscope.app.palette import CAUSES
from tailscope.app.text import say
from tailscope.triage.ledger import MECHANISMS
from tailscope.triage.study import Study

ENGINE, UNEXPLAINED = "engine", "unexplained"
NAMES = (*MECHANISMS, ENGINE, UNEXPLAINED)

BINS = 60
_HEIGHT = 230


def seconds(
    studies: Sequence[Study],
    origin_ns: int,
    window: tuple[int | None, int | None] = (None, None),
) -> pd.DataFrame:
    """Slow seconds in bins of the arrival.

    Args:
        studies: Engines with slow requests.
        origin_ns: Time 0 of their times, UTC nanoseconds.
        window: Bounds of the bins, UTC nanoseconds; None for the first and the last slow request.

    Returns:
        ``time``, ``cause`` (one of ``NAMES``) and ``seconds``, a row for each bin and cause.
    """
    arrived, parts = [], []
    for one in studies:
        rows = one.booked(one.slow)
        book = one.book
        arrived.append(one.work.arrived[book.rows[rows]])
        owed = book.owed[rows].sum(axis=1)
        parts.append(np.column_stack([owed, book.engine[rows], book.unexplained[rows]]))
    when = np.concatenate(arrived) if arrived else np.zeros(0)
    if not len(when):
        return pd.DataFrame(columns=["time", "cause", "seconds"])
    low, high = (None if bound is None else (bound - origin_ns) / 1e9 for bound in window)
    first = float(when.min()) if low is None else min(low, float(when.min()))
    last = float(when.max()) if high is None else max(high, float(when.max()))
    edges = np.linspace(first, max(last, first + 1.0), BINS + 1)
    held = np.concatenate(parts)
    times = pd.to_datetime(origin_ns + (edges[:-1] * 1e9).astype(np.int64), utc=True)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "time": times,
                    "cause": name,
                    "seconds": np.histogram(when, edges, weights=held[:, column])[0],
                }
            )
            for column, name in enumerate(NAMES)
        ],
        ignore_index=True,
    )


def draw(data: pd.DataFrame) -> alt.Chart | None:
    """Draw them as stacked steps; None if there are none."""
    if data.empty or not data["seconds"].sum() > 0:
        return None
    present = [name for name in NAMES if data.loc[data["cause"] == name, "seconds"].sum() > 0]
    named = {name: say(f"cause.{name}") for name in present}
    shown = data[data["cause"].isin(present)].assign(
        cause=lambda frame: frame["cause"].map(named),
        order=lambda frame: frame["cause"].map(
            {text: at for at, text in enumerate(named.values())}
        ),
    )
    chart: alt.Chart = (
        alt.Chart(shown)
        .mark_area(interpolate="step-after")
        .encode(
            x=time_axis(),
            y=alt.Y("seconds:Q", title=say("chart.slow_seconds"), axis=alt.Axis(tickCount=5)),
            color=alt.Color(
                "cause:N",
                scale=alt.Scale(
                    domain=list(named.values()), range=[CAUSES[name] for name in present]
                ),
                legend=alt.Legend(title="", orient="top", columns=3, labelLimit=240),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("cause:N", title=say("chart.cause")),
                alt.Tooltip("seconds:Q", title=say("chart.slow_seconds"), format=",.2f"),
                alt.Tooltip(
                    "time:T", title=say("chart.arrived"), format="%H:%M:%S", formatType="utc"
                ),
            ],
        )
        .properties(height=_HEIGHT)
    )
    return chart
