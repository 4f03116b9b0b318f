"""Offline jobs: their own distribution, what stands out in it, and what moving them would give."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from tailscope.app.context import REQUEST, Context
from tailscope.app.empty import missing
from tailscope.app.palette import OTHERS, TenantColours
from tailscope.app.plot import plot
from tailscope.app.text import plain, say, translated
from tailscope.app.text import tenant as named_so
from tailscope.app.verdicts import method
from tailscope.triage.diagnosis import Diagnosis, Offline
from tailscope.triage.identity import keys
from tailscope.triage.stages import floats, named
from tailscope.triage.words import percent, seconds

BINS = 60
_LISTED = 100

CHOICES = 8
"""Tenants that are a click away, the largest first."""


def draw(context: Context) -> None:
    """Draw the page."""
    names = context.choice.offline
    if not names:
        missing("offline.none")
        _choose([load.name for load in context.finding.tenants][:CHOICES])
        return
    with context.loaded.lock:
        diagnosis = context.diagnosis
        if not diagnosis.checked:
            with st.spinner(say("overview.replaying")):
                diagnosis.attribution  # noqa: B018 - to be computed
        found = diagnosis.offline
        if found is None:
            missing("offline.none")
            return
        _relief(found)
        method("removal", "offline", "replay")
        _distribution(diagnosis.frame, names, context.colours)
        _outliers(context, diagnosis, found)


def _choose(names: list[str]) -> None:
    with st.container(horizontal=True):
        for name in names:
            st.button(
                say("offline.mark", name=plain(name)),
                key=f"offline-{name}",
                on_click=_mark,
                args=(name,),
                icon=":material/bedtime:",
            )


def _mark(name: str) -> None:
    st.session_state["offline"] = [name]


def _relief(found: Offline) -> None:
    st.header(say("offline.relief"), help=say("term.removal"))
    if not found.relief:
        st.caption(say("offline.no_relief"))
    for name, share in found.relief.items():
        st.markdown(
            say("offline.gives", name=plain(named_so(name)), share=percent(max(share, 0.0)))
        )


def _distribution(frame: pd.DataFrame, names: tuple[str, ...], colours: TenantColours) -> None:
    st.header(say("offline.distribution"))
    tenant, total = named(frame, "tenant"), floats(frame, "total_seconds")
    known = tenant.isin(names).to_numpy(dtype=np.bool_) & (total > 0)
    if not known.any():
        st.caption(say("offline.no_times"))
        return
    logs = np.log10(total[known])
    edges = np.linspace(logs.min() - 1e-3, logs.max() + 1e-3, BINS + 1)
    parts = [
        pd.DataFrame(
            {
                "low": 10 ** edges[:-1],
                "high": 10 ** edges[1:],
                "tenant": named_so(name),
                "requests": np.histogram(logs[tenant[known].eq(name)], edges)[0],
            }
        )
        for name in names
    ]
    data = pd.concat(parts, ignore_index=True)
    domain, scale = colours.scale(list(names))
    chart = (
        alt.Chart(data[data["requests"] > 0])
        .mark_rect()
        .encode(
            x=alt.X("low:Q", title=say("chart.total_seconds"), scale=alt.Scale(type="log")),
            x2=alt.X2("high:Q"),
            y=alt.Y("requests:Q", title=say("chart.requests")),
            y2=alt.datum(0),
            color=alt.Color(
                "tenant:N",
                scale=alt.Scale(domain=domain, range=scale),
                legend=alt.Legend(title="", orient="top"),
            ),
            tooltip=[
                alt.Tooltip("tenant:N", title=say("column.tenant")),
                alt.Tooltip("low:Q", title=say("chart.from"), format=".3g"),
                alt.Tooltip("high:Q", title=say("chart.to"), format=".3g"),
                alt.Tooltip("requests:Q", title=say("chart.requests"), format=","),
            ],
        )
        .properties(height=260)
    )
    plot(chart, alt=say("offline.distribution"), key="offline-times")


def _outliers(context: Context, diagnosis: Diagnosis, found: Offline) -> None:
    st.header(say("offline.outliers"), help=say("offline.outliers_help"))
    shown = [one for one in found.outliers if one.tenant != OTHERS][:_LISTED]
    if not shown:
        st.caption(say("offline.no_outliers"))
        return
    frame = diagnosis.frame.iloc[[one.row for one in shown]]
    st.dataframe(
        pd.DataFrame(
            {
                "request": frame["request_id"].fillna(keys(frame)).tolist(),
                "tenant": [named_so(one.tenant) for one in shown],
                "seconds": [one.seconds for one in shown],
                "usual": [one.usual for one in shown],
                "why": [translated(one.reason) for one in shown],
            }
        ),
        column_config={
            "request": st.column_config.TextColumn(say("column.request")),
            "tenant": st.column_config.TextColumn(say("column.tenant")),
            "seconds": st.column_config.NumberColumn(say("column.total"), format="%.2f s"),
            "usual": st.column_config.NumberColumn(say("column.usual"), format="%.2f s"),
            "why": st.column_config.TextColumn(say("column.why"), width="large"),
        },
        hide_index=True,
        alt=say("offline.outliers"),
    )
    first = str(keys(frame).iloc[0])
    label = say("offline.worst", time=seconds(shown[0].seconds))
    context.link("request", label, ":material/open_in_new:", **{REQUEST: first})
