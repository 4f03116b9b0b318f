"""The ledger of one request: what its excess is owed to, in rows that sum to it, and in words."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import pandas as pd
import streamlit as st

from tailscope.app.context import Context
from tailscope.app.palette import GREY, UNKNOWN, TenantColours
from tailscope.app.plot import plot
from tailscope.app.text import plain, say, tenant
from tailscope.app.verdicts import method
from tailscope.triage.identity import find
from tailscope.triage.ledger import MECHANISMS, Ledger
from tailscope.triage.words import percent, seconds

ENGINE, UNEXPLAINED, REST = "engine", "unexplained", "rest"

MOST = 10
"""Rows that are drawn."""

_NOTHING = 0.0005
"""Seconds that are not worth a row; they are added to the unexplained part."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row.

    Attributes:
        who: Tenant, or ``ENGINE``, ``UNEXPLAINED`` or ``REST``.
        how: One of ``MECHANISMS``; empty for all that is no tenant's.
        seconds: Of the request's excess.
    """

    who: str
    how: str
    seconds: float


def entries(book: Ledger) -> list[Entry]:
    """The rows of a ledger of one request, the largest first; they sum to its excess."""
    found = [
        Entry(tenant, mechanism, float(book.owed[0, column, at]))
        for column, tenant in enumerate(book.tenants)
        for at, mechanism in enumerate(MECHANISMS)
        if book.owed[0, column, at] >= _NOTHING
    ]
    if book.engine[0] >= _NOTHING:
        found.append(Entry(ENGINE, "", float(book.engine[0])))
    rest = float(book.excess[0]) - sum(entry.seconds for entry in found)
    if rest >= _NOTHING:
        found.append(Entry(UNEXPLAINED, "", rest))
    return sorted(found, key=lambda entry: -entry.seconds)


def gathered(found: list[Entry]) -> list[Entry]:
    """The largest rows, and all smaller ones as one: the sum is the same."""
    if len(found) <= MOST:
        return found
    rest = sum(entry.seconds for entry in found[MOST - 1 :])
    return [*found[: MOST - 1], Entry(REST, "", rest)]


def words(found: list[Entry], excess: float, own: str) -> str:
    """The largest rows as a sentence."""
    if not found:
        return say("account.nothing")
    told = [_clause(entry, excess, own) for entry in found[:3]]
    rest = sum(entry.seconds for entry in found[3:])
    if rest >= _NOTHING:
        told.append(say("account.rest", time=seconds(rest)))
    return say("account.sentence", excess=seconds(excess), parts=say("account.and").join(told))


def _clause(entry: Entry, excess: float, own: str) -> str:
    key = entry.who if not entry.how else f"by_{entry.how}"
    who = say("account.siblings", name=entry.who) if entry.who == own else tenant(entry.who)
    if entry.who == UNKNOWN:
        who = say("account.unknown")
    share = percent(entry.seconds / excess) if excess > 0 else ""
    return say(f"account.{key}", time=seconds(entry.seconds), share=share, who=who)


def draw(context: Context, key: str) -> None:
    """Draw the ledger of a request of the window."""
    st.header(say("account.title"), help=say("account.help"))
    with context.loaded.lock:
        diagnosis = context.diagnosis
        at = find(diagnosis.frame, key)
        book = None if at is None else diagnosis.account(at)
    if at is None or book is None:
        st.caption(say("account.outside" if at is None else "account.no_study"))
        return
    found, excess = entries(book), float(book.excess[0])
    own = diagnosis.frame["tenant"].iloc[at]
    st.markdown(plain(words(found, excess, "" if pd.isna(own) else str(own))))
    if not found:
        return
    found = gathered(found)
    left, right = st.columns(2)
    data = pd.DataFrame(
        {
            "who": [_who(entry) for entry in found],
            "how": [say(f"cause.{entry.how or entry.who}") for entry in found],
            "seconds": [entry.seconds for entry in found],
            "colour": [_colour(entry, context.colours) for entry in found],
        }
    )
    with left:
        plot(chart(data), alt=say("account.title"), key="ledger")
    with right:
        total = pd.DataFrame([{"who": say("account.sum"), "how": "", "seconds": excess}])
        st.dataframe(
            pd.concat([data.drop(columns="colour"), total], ignore_index=True),
            column_config={
                "who": st.column_config.TextColumn(say("column.who"), width=130),
                "how": st.column_config.TextColumn(say("column.how"), width=210),
                "seconds": st.column_config.NumberColumn(say("column.seconds"), format="%.3f s"),
            },
            hide_index=True,
            height="content",
            alt=say("account.title"),
        )
    method("excess", "ledger")


def _who(entry: Entry) -> str:
    return tenant(entry.who) if entry.how else say(f"account.who_{entry.who}")


def _colour(entry: Entry, colours: TenantColours) -> str:
    return colours.colour(entry.who) if entry.how else GREY


def chart(data: pd.DataFrame) -> alt.Chart:
    """The rows as bars, in the tenants' colours."""
    both = data["who"] + " · " + data["how"]
    labelled = data.assign(row=data["who"].where(data["who"] == data["how"], both))
    drawn: alt.Chart = (
        alt.Chart(labelled)
        .mark_bar(cornerRadiusEnd=3, height={"band": 0.7})
        .encode(
            x=alt.X("seconds:Q", title=say("chart.of_excess"), axis=alt.Axis(tickCount=6)),
            y=alt.Y("row:N", sort=list(labelled["row"]), title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("colour:N", scale=None),
            tooltip=[
                alt.Tooltip("who:N", title=say("column.who")),
                alt.Tooltip("how:N", title=say("column.how")),
                alt.Tooltip("seconds:Q", title=say("chart.of_excess"), format=",.3f"),
            ],
        )
        .properties(height=alt.Step(26))
    )
    return drawn
