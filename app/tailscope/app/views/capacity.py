"""Capacity: latency against load, the knee, and how much of the load an objective leaves."""

from __future__ import annotations

import altair as alt
import pandas as pd
import streamlit as st

from tailscope.app.charts import Drawing
from tailscope.app.context import Context
from tailscope.app.empty import missing
from tailscope.app.palette import ACCENT, GREY
from tailscope.app.plot import plot
from tailscope.app.text import say
from tailscope.app.verdicts import method
from tailscope.triage.capacity import FACTORS, Capacity
from tailscope.triage.words import seconds


def draw(context: Context) -> None:
    """Draw the page."""
    with context.loaded.lock:
        diagnosis = context.diagnosis
        with st.spinner(say("overview.replaying")):
            studies = diagnosis.attribution.studies
        names = (
            []
            if not studies
            else sorted(
                {studies[0].work.tenants[int(code)] for code in set(studies[0].work.tenant)}
            )
        )
        tenant = _grows(names)
        with st.spinner(say("capacity.playing")):
            found = context.loaded.capacity(context.question, tenant)
    if found is None:
        missing("capacity.why_none")
        method("replay")
        return
    _said(context, found, tenant)
    if found.seen is not None and found.seen < FACTORS[-1]:
        st.caption(say("capacity.unseen", factor=f"{found.seen:g}"))
    plot(_curve(found, context.choice.objective), alt=say("capacity.title"), key="curve")
    st.caption(say("capacity.note", server=studies[0].work.server, most=f"{FACTORS[-1]:g}"))
    method("capacity", "replay")


def _grows(names: list[str]) -> str | None:
    asked = [name for name in st.query_params.get_all("grow") if name not in names]
    return st.selectbox(
        say("capacity.grow"),
        [*names, *(name for name in asked if name in names)],
        index=None,
        placeholder=say("capacity.whole"),
        key="grow",
        bind="query-params",
        width=320,
        help=say("capacity.grow_help"),
    )


def _said(context: Context, found: Capacity, tenant: str | None) -> None:
    with st.grid(3, min_column_width=180, gap="small"):
        st.metric(
            say("capacity.knee"),
            _knee(found),
            border=True,
            height="stretch",
            help=say("capacity.knee_help"),
        )
        headroom = say("overview.no_objective")
        if found.headroom is not None:
            headroom = (
                say("capacity.times", factor=f"{found.headroom:.2f}")
                if found.headroom
                else say("capacity.none_left")
            )
        st.metric(
            say("capacity.headroom"),
            headroom,
            border=True,
            height="stretch",
            help=say("capacity.headroom_help"),
        )
        st.metric(
            say("capacity.now"),
            seconds(found.points[0].p99),
            border=True,
            height="stretch",
            help=say("capacity.now_help"),
        )


def _knee(found: Capacity) -> str:
    if found.saturated:
        return say("capacity.saturated")
    if found.knee is None:
        return say("capacity.no_knee")
    return say("capacity.times", factor=f"{found.knee:.2f}")


def _curve(found: Capacity, objective: float | None) -> Drawing:
    data = pd.DataFrame(
        [
            {"factor": point.factor, "level": name, "seconds": getattr(point, name)}
            for point in found.points
            for name in ("p95", "p99")
        ]
    )
    y = alt.Y("seconds:Q", title=say("chart.total_seconds"))
    lines = (
        alt.Chart(data)
        .mark_line(point={"size": 60, "filled": True}, strokeWidth=2.2)
        .encode(
            x=alt.X(
                "factor:Q",
                title=say("capacity.factor"),
                scale=alt.Scale(zero=False),
                axis=alt.Axis(tickCount=8),
            ),
            y=y,
            color=alt.Color(
                "level:N",
                scale=alt.Scale(domain=["p95", "p99"], range=[GREY, ACCENT]),
                legend=alt.Legend(title="", orient="top"),
            ),
            tooltip=[
                alt.Tooltip("factor:Q", title=say("capacity.factor"), format=".2f"),
                alt.Tooltip("level:N", title=say("chart.level")),
                alt.Tooltip("seconds:Q", title=say("chart.total_seconds"), format=",.2f"),
            ],
        )
    )
    layers: list[alt.Chart] = [lines]
    if found.knee is not None:
        knee = alt.Chart(pd.DataFrame({"factor": [found.knee]}))
        layers.append(knee.mark_rule(strokeDash=[4, 3], color=GREY).encode(x=alt.X("factor:Q")))
    if objective is not None:
        limit = alt.Chart(pd.DataFrame({"seconds": [objective]}))
        layers.append(
            limit.mark_rule(strokeDash=[2, 2], color="#D55E00").encode(y=alt.Y("seconds:Q"))
        )
    return alt.layer(*layers).properties(height=360)
