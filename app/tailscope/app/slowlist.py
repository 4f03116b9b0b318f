"""The table of slow requests, in which one is chosen."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from tailscope.app import tables
from tailscope.app.context import REQUEST
from tailscope.app.text import say
from tailscope.triage.finding import Finding, SlowRequest


def slow_table(
    finding: Finding,
    keys: list[str],
    chosen: str | None,
    listed: Sequence[SlowRequest] | None = None,
) -> None:
    """Draw the slow requests, or other ones; a chosen row goes into the address."""
    # The rows are part of the widget's identity: a choice never slips to another request.
    key = f"slow-{hash(tuple(keys))}"
    st.dataframe(
        tables.known(tables.slow_requests(finding, listed)),
        column_config=tables.slow_requests_columns(finding),
        hide_index=True,
        placeholder="",
        height=min(38 + 35 * len(keys), 388),
        key=key,
        on_select=lambda: _choose(key, keys),
        selection_mode="single-row",
        selection_default={"selection": {"rows": [keys.index(chosen)] if chosen in keys else []}},
        alt=say("overview.slow_alt"),
    )


def _choose(key: str, keys: list[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        st.query_params[REQUEST] = keys[rows[0]]
    else:
        st.query_params.pop(REQUEST, None)
