"""A verdict as the pages show it: the sentence, how it was computed, what to read about it."""

from __future__ import annotations

import streamlit as st

from tailscope.app.context import Context
from tailscope.app.text import plain, say, translated
from tailscope.triage.cause import Cause
from tailscope.triage.diagnosis import Diagnosis

METHODS = (
    "percentiles",
    "interval",
    "excess",
    "ledger",
    "removal",
    "lift",
    "accused",
    "grade",
    "buckets",
)
"""Texts of how things are computed, in the order in which they build on each other."""

RUNBOOKS = {
    Cause.QUEUE: "TailscopeQueueSaturated",
    Cause.TENANT: "TailscopeNoisyTenant",
    Cause.CACHE: "TailscopeNoisyTenant",
    Cause.ENGINE: "TailscopeEngineStalled",
    Cause.INTERFERENCE: "TailscopeQueueDominatesFirstToken",
    Cause.BATCH: "TailscopeQueueSaturated",
}
"""The runbook of the alert that fires for a cause."""


def show(diagnosis: Diagnosis) -> None:
    """Draw the sentence, if there is one."""
    if text := diagnosis.verdict:
        st.markdown(f":material/group: {plain(translated(text))}")


def method(*names: str) -> None:
    """Draw a button that tells how the numbers beside it were computed."""
    with st.popover(say("how.title"), type="tertiary", icon=":material/function:"):
        for name in names or METHODS:
            st.markdown(f"**{say(f'how.{name}_name')}**: {say(f'how.{name}')}")


def runbook(context: Context, cause: Cause) -> None:
    """Draw a link to the runbook of the matching alert, if there is one."""
    name = RUNBOOKS.get(cause)
    if name is None:
        return
    base = context.settings.runbooks.rstrip("/")
    icon = ":material/menu_book:"
    if base.startswith(("http://", "https://")):
        st.link_button(say("how.runbook"), f"{base}/{name}.md", icon=icon, type="tertiary")
    else:
        st.caption(f"{icon} {say('how.runbook')}: `{base}/{name}.md`")
