"""Slow requests: what they have in common, and where their time goes, against the rest."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from tailscope.app import waterfall
from tailscope.app.box import Box
from tailscope.app.context import REQUEST, Context
from tailscope.app.export import download
from tailscope.app.pair import LEAST, Pair
from tailscope.app.plot import plot
from tailscope.app.slowlist import slow_table
from tailscope.app.text import plain, say, translated
from tailscope.app.text import tenant as named_so
from tailscope.app.verdicts import method
from tailscope.triage.cohort import Association, associations
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.finding import SlowRequest
from tailscope.triage.scope import measured
from tailscope.triage.slowest import slowest
from tailscope.triage.stages import Flags, rows
from tailscope.triage.words import clock, percent, seconds

_MOST = 60
"""Rows of the comparison that are shown."""


def draw(context: Context) -> None:
    """Draw the page."""
    with context.loaded.lock:
        diagnosis = context.diagnosis
        box, pair = context.choice.box, Pair.asked()
        if pair is not None:
            diagnosis.attribution  # noqa: B018 - to be computed
        found = context.loaded.once(
            lambda: _compared(context, diagnosis, pair), "cohort", context.question, box, pair
        )
    _which(context, found.chosen, found.judged, pair)
    if not found.chosen or found.chosen == found.judged:
        st.caption(say("slow.everything" if found.chosen else "slow.nothing"))
        if found.chosen:
            _list(context, found.listed)
        return
    _waterfall(found.means)
    _common(found.associations)
    _list(context, found.listed)


@dataclass(frozen=True, slots=True)
class Compared:
    """The chosen requests against the rest.

    Attributes:
        chosen: How many are chosen.
        judged: How many there are in all.
        means: Mean seconds by group and stage.
        associations: What they have in common.
        listed: The worst of the chosen, one by one.
    """

    chosen: int
    judged: int
    means: pd.DataFrame
    associations: list[Association]
    listed: tuple[SlowRequest, ...]


def _compared(context: Context, diagnosis: Diagnosis, pair: Pair | None) -> Compared:
    frame = diagnosis.frame
    judged = context.question.scope.mine(frame) & measured(frame)
    chosen = _chosen(context, diagnosis, pair) & judged
    count = int(chosen.sum())
    part, cohort = rows(frame, judged), chosen[judged]
    own = context.choice.box is None and pair is None
    worst = slowest(frame, dataclasses.replace(diagnosis.reckoning, slow=chosen))
    return Compared(
        count,
        len(part),
        waterfall.means(part, diagnosis.reckoning.stages[judged], cohort),
        diagnosis.associations if own else associations(part, cohort),
        worst,
    )


def _chosen(context: Context, diagnosis: Diagnosis, pair: Pair | None) -> Flags:
    box = context.choice.box
    slow = diagnosis.reckoning.slow if box is None else box.inside(diagnosis.frame)
    return slow if pair is None else slow & pair.inside(diagnosis)


def _which(context: Context, chosen: int, judged: int, pair: Pair | None) -> None:
    box = context.choice.box
    count, share = f"{chosen:,}", percent(chosen / judged) if judged else "0 %"
    if pair is not None:
        worker = plain(pair.worker or say("tenants.nobody"))
        told = {"count": count, "share": share, "least": percent(LEAST)}
        st.markdown(say("slow.by_pair", victim=plain(pair.victim), worker=worker, **told))
        st.button(say("slow.clear_pair"), on_click=_clear_pair, icon=":material/deselect:")
        return
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


def _clear_pair() -> None:
    for name in (Pair.VICTIM, Pair.WORKER):
        st.query_params.pop(name, None)


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
    st.header(say("slow.common"), help=say("slow.common_help"))
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
                "value": named_so(one.value)
                if one.dimension == "tenant"
                else translated(one.value),
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


def _value(one: Association) -> str:
    return named_so(one.value) if one.dimension == "tenant" else translated(one.value)


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


def _list(context: Context, listed: tuple[SlowRequest, ...]) -> None:
    finding = context.finding
    st.header(say("slow.listed"))
    keys = [item.key for item in listed]
    if not keys:
        st.caption(say("overview.none_slow"))
        return
    chosen = st.query_params.get(REQUEST)
    st.caption(say("slow.choose"))
    slow_table(finding, keys, chosen, listed)
    if chosen:
        label, icon = say("overview.open"), ":material/open_in_new:"
        context.link("request", label, icon, **{REQUEST: chosen})
