"""What the pages say when there is nothing to show, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from tailscope.app.text import say
from tailscope.triage.words import moment


def no_records(directories: Sequence[Path], exists: bool) -> None:
    """The store holds no request: say how one gets there."""
    st.header(say("empty.title"), icon=":material/hourglass_empty:")
    if not directories:
        st.markdown(say("empty.no_store"))
    else:
        st.markdown(say("empty.opened") if exists else say("empty.never"))
    steps(directories)


def steps(directories: Sequence[Path]) -> None:
    """How records get into the store, step by step."""
    directory = shlex.quote(str(directories[0])) if directories else "DIR"
    st.markdown(say("empty.exporter"))
    _command(f"tailscope exporter --engine http://127.0.0.1:8000 --data {directory}")
    st.markdown(say("empty.spans"))
    _command("OTEL_SERVICE_NAME=vllm vllm serve MODEL --otlp-traces-endpoint http://127.0.0.1:4317")
    st.caption(say("empty.stats"))
    st.markdown(say("empty.tenants"))
    _command("tailscope exporter ... --requests gateway.jsonl")
    st.markdown(say("empty.import"))
    _command(f"tailscope import --data {directory} requests.jsonl")


def _command(text: str) -> None:
    st.code(text, language="bash", wrap_lines=True)


def no_series(url: str, low: str, high: str) -> None:
    """A Prometheus answers and has no series of ours: say how it gets them."""
    st.header(say("outline.nothing"), icon=":material/hourglass_empty:")
    st.markdown(say("outline.scrape", url=url, low=low, high=high))
    _command("- job_name: tailscope\n  static_configs: [{targets: ['127.0.0.1:9836']}]")


def no_match(filtered: bool, span: tuple[int, int] | None) -> None:
    """The window or the filters let nothing through: say what would."""
    st.header(say("empty.no_match"), icon=":material/filter_alt_off:")
    if filtered:
        st.markdown(say("empty.filtered"))
    elif span is not None:
        st.markdown(say("empty.span", low=moment(span[0]), high=moment(span[1])))
        if st.button(say("empty.all"), on_click=_show_all, icon=":material/all_inclusive:"):
            st.rerun()


def missing(key: str, *commands: str, **values: object) -> None:
    """A part of a page has nothing to show: say why, and how it is switched on."""
    st.info(say(key, **values), icon=":material/info:")
    for text in commands:
        _command(text)


def _show_all() -> None:
    st.session_state["window"] = "all"
