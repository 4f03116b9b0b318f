"""The ranked findings: who may have made the requests slow, how far, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from tailscope.app.text import say, translated
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.phrase import who
from tailscope.triage.verdict import Suspect

_ROW = 64
"""Pixels of a row in which Streamlit breaks lines, as reasons are long."""

_BAR, _WHY = 112, 230
"""Pixels of columns: so all of them fit on a page of 1280."""


def draw(diagnosis: Diagnosis) -> None:
    """Draw them as a table, the accused first."""
    st.header(say("findings.title"), help=say("findings.help"))
    suspects = diagnosis.suspects
    if not suspects:
        st.caption(say("findings.none"))
        return
    st.dataframe(
        table(suspects),
        column_config=columns(),
        hide_index=True,
        placeholder="",
        alt=say("findings.title"),
        row_height=_ROW if any(one.spared for one in suspects) else None,
    )


def table(suspects: Sequence[Suspect]) -> pd.DataFrame:
    """One row for each suspect."""
    return pd.DataFrame(
        [
            {
                "who": _who(one),
                "verdict": say("findings.accused") if one.accused else say("findings.spared"),
                "held_seconds": one.ledger_seconds,
                "saved_seconds": one.removal_seconds,
                "saved": 100 * max(one.removal_share, 0.0),
                "lift": one.lift,
                "victims": one.victims,
                "grade": one.grade,
                "why": translated(one.spared) or None,
            }
            for one in suspects
        ]
    )


def _who(one: Suspect) -> str:
    return (
        translated(who(one.name))
        if one.kind == "tenant"
        else say(f"kind.{one.kind}", name=one.name)
    )


def columns() -> dict[str, Any]:
    """Titles, units and help of ``table``."""
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "who": text(say("column.who"), pinned=True),
        "verdict": text(say("column.verdict"), help=say("term.accused")),
        "held_seconds": number(say("column.held"), format="%.1f s", help=say("term.ledger")),
        "saved_seconds": number(
            say("column.saved_seconds"), format="%.1f s", help=say("term.removal")
        ),
        "saved": st.column_config.ProgressColumn(
            say("column.without"),
            format="%.0f %%",
            min_value=0,
            max_value=100,
            width=_BAR,
            help=say("term.removal"),
        ),
        "lift": number(say("column.lift"), format=say("column.lift_format"), help=say("term.lift")),
        "victims": number(say("column.victims"), format="localized", help=say("term.victims")),
        "grade": text(say("column.grade"), help=say("term.grade")),
        "why": text(say("column.why"), width=_WHY),
    }
