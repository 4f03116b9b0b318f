"""What the pages say when there is nothing to show, and what to do about it."""

from __future__ import annotations

import shlex
from pathlib import Path

import streamlit as st

from tailscope.triage.words import moment


def no_records(directory: Path, exists: bool) -> None:
    """The store holds no request: say how one gets there."""
    st.subheader("No requests yet", icon=":material/hourglass_empty:")
    if exists:
        st.markdown("An exporter has opened the store, but no request record has come in.")
    else:
        st.markdown("No exporter has written into this store. The page fills when one does.")
    st.markdown("**1. Start the exporter beside the inference server**")
    st.code(
        f"tailscope exporter --engine http://127.0.0.1:8000 --data {shlex.quote(str(directory))}",
        language="bash",
        wrap_lines=True,
    )
    st.markdown("**2. Let vLLM send one span per request to it**")
    st.code(
        "OTEL_SERVICE_NAME=vllm vllm serve MODEL --otlp-traces-endpoint http://127.0.0.1:4317",
        language="bash",
        wrap_lines=True,
    )
    st.caption(
        "Leave out --disable-log-stats: together with spans it ends vLLM at its first request. "
        "vLLM sends spans every 5 s; OTEL_BSP_SCHEDULE_DELAY=1000 makes that 1 s."
    )
    st.markdown("**3. Tell the tenants apart** with a file in which a gateway writes its requests")
    st.code("tailscope exporter ... --requests gateway.jsonl", language="bash")
    st.markdown("Or put records that you have into the store:")
    st.code(
        f"tailscope import --data {shlex.quote(str(directory))} requests.jsonl",
        language="bash",
        wrap_lines=True,
    )


def no_match(filtered: bool, span: tuple[int, int] | None) -> None:
    """The window or the filters let nothing through: say what would."""
    st.subheader("No request in this window", icon=":material/filter_alt_off:")
    if filtered:
        st.markdown("There are requests in it, but the filters leave none of them.")
    elif span is not None:
        st.markdown(
            f"The store holds requests from **{moment(span[0])}** to **{moment(span[1])}**. "
            "Choose a longer time window."
        )
        if st.button("Show all", on_click=_show_all, icon=":material/all_inclusive:"):
            st.rerun()


def _show_all() -> None:
    st.session_state["window"] = "all"
