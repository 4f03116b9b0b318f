"""A verdict as the pages show it: the sentence, how it was computed, what to read about it."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from tailscope.app.context import Context
from tailscope.app.text import plain, say, translated
from tailscope.triage.cause import Cause
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.hardware import Trouble

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

RUNBOOKS: Mapping[Cause, str] = {
    Cause.QUEUE: "TailscopeQueueSaturated",
    Cause.INTERFERENCE: "TailscopePrefillInterference",
    Cause.BATCH: "TailscopeBatchSpread",
    Cause.LENGTH: "TailscopeInputLengthSpread",
    Cause.CACHE: "TailscopePrefixCacheCollapse",
    Cause.TENANT: "TailscopeNoisyTenant",
    Cause.ENGINE: "TailscopeEngineStalled",
    Cause.OUTSIDE: "TailscopeTimeoutLayers",
}
"""The runbook of the alert that fires for a cause."""

GPU_RUNBOOKS: Mapping[Trouble, str] = {
    Trouble.THROTTLED: "TailscopeGpuThermalThrottle",
    Trouble.XID: "TailscopeXidUnclear",
    Trouble.LOST: "TailscopeGpuLost",
    Trouble.BANDWIDTH: "TailscopeGpuBandwidthBound",
}
"""The same, for what a GPU was in."""


def show(diagnosis: Diagnosis) -> None:
    """Draw the sentence, if there is one."""
    if text := diagnosis.verdict:
        st.markdown(f":material/group: {plain(translated(text))}")


def method(*names: str) -> None:
    """Draw a button that tells how the numbers beside it were computed."""
    with st.popover(say("how.title"), type="tertiary", icon=":material/function:"):
        for name in names or METHODS:
            st.markdown(f"**{say(f'how.{name}_name')}**: {say(f'how.{name}')}")


def runbook(context: Context, diagnosis: Diagnosis) -> None:
    """Draw links to the runbooks of the matching alerts."""
    base = context.settings.runbooks.rstrip("/")
    icon = ":material/menu_book:"
    for name in runbooks(diagnosis):
        said = say("how.runbook", name=name)
        if base.startswith(("http://", "https://")):
            st.link_button(said, f"{base}/{name}.md", icon=icon, type="tertiary")
        else:
            st.caption(f"{icon} {said}: `{base}/{name}.md`")


def runbooks(diagnosis: Diagnosis) -> list[str]:
    """Names of the alerts that fire for what was found: for the cause, and for GPUs in trouble."""
    found = []
    if diagnosis.cause is not None and diagnosis.cause.cause in RUNBOOKS:
        found.append(RUNBOOKS[diagnosis.cause.cause])
    found += [
        GPU_RUNBOOKS[one.trouble]
        for gpu in diagnosis.finding.gpus
        for one in gpu.beside
        if one.suspect and one.trouble in GPU_RUNBOOKS
    ]
    return list(dict.fromkeys(found))
