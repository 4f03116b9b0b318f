"""Slow requests: what they have in common, and where their time goes, against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from tailscope.app import waterfall
from tailscope.app.box import Box
from tailscope.app.context import REQUEST, Context
from tailscope.app.export import download
from tailscope.app.plot import plot
from tailscope.app.text import plain, say
from tailscope.app.verdicts import method
from tailscope.app.views.overview import slow_table
from tailscope.triage.cohort import Association, associations
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.scope import measured
from tailscope.triage.stages import Flags, rows
from tailscope.triage.words import clock, percent, seconds

_MOST = 60
"""Rows of the comparison that are shown."""


def draw(context: Context) -> None:
    """Draw the page."""
    with context.loaded.lock:
        diagnosis = context.diagnosis
        found = context.loaded.once(
            lambda: _compared(context, diagnosis), "cohort", context.question, context.choice.box
        )
    _which(context, found.chosen, found.judged)
    if not found.chosen or found.chosen == found.judged:
        st.caption(say("slow.everything" if found.chosen else "slow.nothing"))
        return
    _waterfall(found.means)
    _common(found.associations)
    _list(context)


@dataclass(frozen=True, slots=True)
class Compared:
    """The chosen requests against the rest.

    Attributes:
        chosen: How many are chosen.
        judged: How many there are in all.
        means: Mean seconds by group and stage.
        associations: What they have in common.
    """

    chosen: int
    judged: int
    means: pd.DataFrame
    associations: list[Association]


def _compared(context: Context, diagnosis: Diagnosis) -> Compared:
    frame = diagnosis.frame
    judged = context.question.scope.mine(frame) & measured(frame)
    chosen = _chosen(context, diagnosis) & judged
    count = int(chosen.sum())
    part, cohort = rows(frame, judged), chosen[judged]
    boxed = context.choice.box is not None
    return Compared(
        count,
        len(part),
        waterfall.means(part, diagnosis.reckoning.stages[judged], cohort),
        associations(part, cohort) if boxed else diagnosis.associations,
    )


def _chosen(context: Context, diagnosis: Diagnosis) -> Flags:
    box = context.choice.box
    return diagnosis.reckoning.slow if box is None else box.inside(diagnosis.frame)


def _which(context: Context, chosen: int, judged: int) -> None:
    box = context.choice.box
    count, share = f"{chosen:,}", percent(chosen / judged) if judged else "0 %"
    if box is None:
        st.markdown(say("slow.by_rule", count=count, share=share, rule=context.choice.slow))
        return
    st.markdown(
        say(
            "slow.by_box",
            count=count,
            share=share,
            begin=clock(box.start_ns),
            end=clock(box.end_ns),
            low=plain(seconds(box.low)),
            high=plain(seconds(box.high)),
            measure=say(f"measure.{box.measure}"),
        )
    )
    st.button(say("slow.clear"), on_click=_clear, icon=":material/deselect:")


def _clear() -> None:
    st.session_state[Box.PARAMETER] = ""


def _waterfall(means: pd.DataFrame) -> None:
    with st.container(border=True):
        st.markdown(say("slow.waterfall"), help=say("slow.waterfall_help"))
        chart = waterfall.draw(means)
        if chart is None:
            st.caption(say("overview.no_stages"))
        else:
            plot(chart, alt=say("slow.waterfall"), key="waterfall")


def _common(found: list[Association]) -> None:
    st.subheader(say("slow.common"), help=say("slow.common_help"))
    table = common(found)
    if table.empty:
        st.caption(say("slow.no_common"))
        return
    st.caption(say("slow.association"))
    st.dataframe(
        table,
        column_config=_columns(),
        hide_index=True,
        placeholder="",
        alt=say("slow.common"),
        height=min(38 + 35 * len(table), 388),
    )
    download("cohort", table, table["rows"])
    method("association")


def common(found: list[Association]) -> pd.DataFrame:
    """The values that are more common in the cohort, the strongest first."""
    return pd.DataFrame(
        [
            {
                "dimension": say(f"dimension.{one.dimension}"),
                "value": one.value,
                "found": say("slow.found") if one.found else say("slow.chance"),
                "slow": 100 * one.slow,
                "rest": 100 * one.rest,
                "effect": one.effect,
                "p": one.p,
                "bursts": one.bursts,
                "rows": one.rows,
            }
            for one in sorted(found, key=lambda one: (not one.found, -one.effect))[:_MOST]
        ]
    )


def _columns() -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "dimension": text(say("column.dimension"), pinned=True),
        "value": text(say("column.value")),
        "found": text(say("column.found"), help=say("column.found_help")),
        "slow": number(say("column.in_cohort"), format="%.1f %%"),
        "rest": number(say("column.in_rest"), format="%.1f %%"),
        "effect": number(say("column.effect"), format="%.2f", help=say("column.effect_help")),
        "p": number(say("column.p"), format="%.3f", help=say("column.p_help")),
        "bursts": number(say("column.bursts"), help=say("column.bursts_help")),
        "rows": number(say("column.requests"), format="localized"),
    }


def _list(context: Context) -> None:
    finding = context.finding
    st.subheader(say("overview.slow"))
    keys = [item.key for item in finding.slow.slowest]
    if not keys:
        st.caption(say("overview.none_slow"))
        return
    chosen = st.query_params.get(REQUEST)
    st.caption(say("slow.choose"))
    slow_table(finding, keys, chosen)
    if chosen:
        label, icon = say("overview.open"), ":material/open_in_new:"
        context.link("request", label, icon, **{REQUEST: chosen})
