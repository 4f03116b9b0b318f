"""Overview: the sentence, the percentiles, the latency over time, the slow requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from tailscope.app import charts, empty, tables
from tailscope.app.controls import Choice
from tailscope.app.palette import TenantColours, shown
from tailscope.app.source import Loaded, Source
from tailscope.app.text import plain
from tailscope.app.views import request
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.finding import Finding
from tailscope.triage.gpusentence import health
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import LEVELS, Quantiles
from tailscope.triage.report import METHOD
from tailscope.triage.sentence import headline, slowness
from tailscope.triage.stages import rows
from tailscope.triage.verdict import Suspect
from tailscope.triage.words import seconds

_ICONS = ("speed", "layers")

Link = Callable[[str], None]


def draw(
    source: Source, loaded: Loaded, choice: Choice, colours: TenantColours, *, link: Link
) -> None:
    """Draw the page; ``link`` draws a link to the page of a request."""
    scope = choice.scope(loaded)
    finding = loaded.finding(scope)
    if not finding.window.requests:
        empty.no_match(bool(scope.window(loaded.frame).any()), source.span())
        return
    tenants = shown([load.name for load in finding.tenants])
    said = _sentence(finding)
    _tiles(finding)
    _over_time(loaded, finding, choice, colours, tenants)
    diagnosis = loaded.diagnosis(scope)
    # What is seen at once comes first: the ledger takes seconds on millions of requests, and the
    # replay takes some more.
    with loaded.lock:
        _verdict(said, diagnosis)
        suspects = diagnosis.suspects
    tenants_table = _tables(finding)
    _by_tenant(tenants_table, finding, suspects)
    _slow(source, loaded, finding, colours, link)
    if not diagnosis.checked:
        with loaded.lock, said.container():
            with st.spinner("Checking by a replay ..."):
                diagnosis.attribution  # noqa: B018 - to be computed
            _verdict(said, diagnosis)
            _by_tenant(tenants_table, finding, diagnosis.suspects)


def _verdict(place: DeltaGenerator, diagnosis: Diagnosis) -> None:
    with place.container():
        if text := diagnosis.verdict:
            st.markdown(f":material/group: {plain(text)}")


def _sentence(finding: Finding) -> DeltaGenerator:
    """Draw what is known at once; return the place of the verdict."""
    with st.container(border=True):
        st.markdown(f"### {plain(headline(finding))}")
        for icon, text in zip(_ICONS, slowness(finding), strict=False):
            st.markdown(f":material/{icon}: {plain(text)}")
        place = st.empty()
        for text in health(finding.gpus, finding.window.start_ns):
            st.markdown(f":material/memory: {plain(text)}")
        for note in notes(finding):
            st.caption(f":material/info: {plain(note)}")
        with st.popover("How was this computed", type="tertiary"):
            for name, text in METHOD.items():
                st.markdown(f"**{name.replace('_', ' ').capitalize()}**: {plain(text)}.")
    return place


def _tiles(finding: Finding) -> None:
    with st.grid(6, min_column_width=124, gap="small"):
        for label, values in (("total", finding.latency.total), ("TTFT", finding.latency.ttft)):
            for name in LEVELS:
                _tile(f"{name} {label}", values, name)


def _tile(label: str, values: Quantiles | None, name: str) -> None:
    if values is None:
        st.metric(label, "unknown", border=True, height="stretch", help="No request tells it.")
        return
    level = getattr(values, name)
    st.metric(
        label,
        seconds(level.value),
        tables.interval(level) or None,
        delta_color="off",
        delta_arrow="off",
        border=True,
        height="stretch",
        help=f"Exact, over {values.count:,} requests. Below: 95 % interval.",
    )


def _over_time(
    loaded: Loaded, finding: Finding, choice: Choice, colours: TenantColours, tenants: list[str]
) -> None:
    left, right = st.columns([2, 1])
    with left, st.container(border=True, height="stretch"):
        measure = st.segmented_control(
            "Latency over time",
            list(charts.MEASURES),
            default="total_seconds",
            required=True,
            format_func=charts.MEASURES.__getitem__,
            key="measure",
        )
        mine = rows(loaded.frame, choice.scope(loaded).mine(loaded.frame))
        chart = charts.latency(mine, finding, measure or "total_seconds", colours, tenants)
        if chart is None:
            st.caption("No request tells this time.")
        else:
            st.altair_chart(
                chart, alt="Latency of the requests over time, by tenant", key="latency"
            )
            st.caption("Rings: the slowest requests.")
    with right, st.container(border=True, height="stretch"):
        st.markdown("Slow seconds by stage")
        bars = charts.slow_seconds(finding)
        if bars is None:
            st.caption(
                "No stage times are known." if finding.slow.requests else "No request is slow."
            )
        else:
            st.altair_chart(bars, alt="Slow seconds by stage", key="stages")


def _by_tenant(place: DeltaGenerator, finding: Finding, suspects: Sequence[Suspect]) -> None:
    place.dataframe(
        tables.known(tables.by_tenant(finding, suspects)),
        column_config=tables.by_tenant_columns(),
        hide_index=True,
        placeholder="",
        alt="Load and percentiles by tenant",
    )


def _tables(finding: Finding) -> DeltaGenerator:
    """Draw the tables; return the place of the one by tenant."""
    st.subheader("By stage")
    st.dataframe(
        tables.known(tables.by_stage(finding)),
        column_config=tables.by_stage_columns(),
        hide_index=True,
        placeholder="",
        alt="Percentiles by stage",
    )
    st.subheader("By tenant")
    place = st.empty()
    if finding.gpus:
        st.subheader("By GPU")
        st.dataframe(
            tables.known(tables.by_gpu(finding)),
            column_config=tables.by_gpu_columns(),
            hide_index=True,
            placeholder="",
            alt="Activity and troubles by GPU",
        )
    return place


def _slow(
    source: Source, loaded: Loaded, finding: Finding, colours: TenantColours, link: Link
) -> None:
    st.subheader("Slow requests")
    keys = [item.key for item in finding.slow.slowest]
    chosen = st.query_params.get(request.PARAMETER)
    if not keys:
        st.caption("None in this window.")
    else:
        st.caption("Choose a row to see what ran beside it.")
        # The rows are part of the widget's identity: a choice never slips to another request.
        key = f"slow-{hash(tuple(keys))}"
        st.dataframe(
            tables.known(tables.slow_requests(finding)),
            column_config=tables.slow_requests_columns(finding),
            hide_index=True,
            placeholder="",
            height=min(38 + 35 * len(keys), 388),
            key=key,
            on_select=lambda: _choose(key, keys),
            selection_mode="single-row",
            selection_default={
                "selection": {"rows": [keys.index(chosen)] if chosen in keys else []}
            },
            alt="Slow requests, the worst first",
        )
    if chosen or keys:
        shown_key = request.timeline(source, loaded, chosen or keys[0], colours)
        if shown_key is not None:
            link(shown_key)


def _choose(key: str, keys: list[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        st.query_params[request.PARAMETER] = keys[rows[0]]
    else:
        st.query_params.pop(request.PARAMETER, None)
