"""Where the time of some requests goes, stage by stage, against the rest and against no load."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from tailscope.app.palette import STAGES as COLOURS
from tailscope.app.text import say
from tailscope.triage.stages import STAGES, Flags, Floats, column, floats

GROUPS = ("cohort", "alone", "rest")
"""The chosen requests; the same, had they been alone; all others."""


def means(frame: pd.DataFrame, excess: Floats, chosen: Flags) -> pd.DataFrame:
    """Mean seconds by group and stage, where they are known.

    Args:
        frame: Requests.
        excess: Their excess by stage, shape (n, 4); NaN where unknown.
        chosen: Which of them are the cohort.

    Returns:
        ``group``, ``stage`` and ``seconds``.
    """
    found = []
    for at, stage in enumerate(STAGES):
        took = floats(frame, column(stage))
        alone = np.maximum(took - excess[:, at], 0.0)
        for group, values in (
            ("cohort", took[chosen]),
            ("alone", alone[chosen]),
            ("rest", took[~chosen]),
        ):
            known = values[np.isfinite(values)]
            if len(known):
                found.append({"group": group, "stage": stage, "seconds": float(known.mean())})
    return pd.DataFrame(found, columns=["group", "stage", "seconds"])


def draw(data: pd.DataFrame) -> alt.Chart | None:
    """Draw one bar for each group; None if no stage is known."""
    if data.empty:
        return None
    stages = [stage for stage in STAGES if stage in set(data["stage"])]
    groups = [say(f"waterfall.{group}") for group in GROUPS]
    begin = data.groupby("group")["seconds"].cumsum() - data["seconds"]
    shown = data.assign(
        begin=begin,
        end=begin + data["seconds"],
        group=data["group"].map(dict(zip(GROUPS, groups, strict=True))),
        stage=data["stage"].map({stage: say(f"stage.{stage}") for stage in stages}),
    )
    chart: alt.Chart = (
        alt.Chart(shown)
        .mark_bar(height={"band": 0.62})
        .encode(
            x=alt.X("begin:Q", title=say("chart.mean_seconds"), axis=alt.Axis(tickCount=8)),
            x2=alt.X2("end:Q"),
            y=alt.Y(
                "group:N",
                sort=groups,
                title=None,
                axis=alt.Axis(labelLimit=220, labelOverlap=False),
            ),
            color=alt.Color(
                "stage:N",
                scale=alt.Scale(
                    domain=[say(f"stage.{stage}") for stage in stages],
                    range=[COLOURS[stage] for stage in stages],
                ),
                legend=alt.Legend(title="", orient="top"),
            ),
            tooltip=[
                alt.Tooltip("group:N", title=say("chart.group")),
                alt.Tooltip("stage:N", title=say("chart.stage")),
                alt.Tooltip("seconds:Q", title=say("chart.mean_seconds"), format=",.3f"),
            ],
        )
        .properties(height=190)
    )
    return chart
