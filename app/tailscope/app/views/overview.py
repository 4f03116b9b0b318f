"""Overview: the sentence, the percentiles, the latency over time, the slow requests."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from tailscope.app import box, causes, charts, findings, heatmap, tables, verdicts
from tailscope.app.box import Box
from tailscope.app.context import REQUEST, Context
from tailscope.app.export import download
from tailscope.app.palette import shown
from tailscope.app.plot import plot
from tailscope.app.slowlist import slow_table
from tailscope.app.text import plain, say, translated
from tailscope.app.views import request
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.finding import Finding, Latency
from tailscope.triage.gpusentence import health, statements
from tailscope.triage.phrase import row
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import LEVELS, Quantiles
from tailscope.triage.scope import Scope, measured
from tailscope.triage.sentence import headline, slowness
from tailscope.triage.stages import floats, rows
from tailscope.triage.words import percent, seconds

_JUST_BOXED = "just-boxed"


def draw(context: Context) -> None:
    """Draw the page."""
    # What is seen at once comes first: on millions of requests the costs take a second, the ledger
    # some more, and the replay even more.
    top = st.container(border=True)
    _tiles(context.sight.latency)
    tiles = st.container()
    by_stage = _over_time(context)
    with top, st.spinner(say("overview.costing")):
        finding = context.finding
    diagnosis, loaded = context.diagnosis, context.loaded
    with top:
        said = _sentence(context, finding)
    with tiles:
        engines = _health(context, finding)
    with by_stage:
        _by_stage(finding)
    held, found = st.container(), st.empty()
    with loaded.lock:
        _verdict(context, said, diagnosis)
        _engine_tile(engines, diagnosis)
        with held:
            _causes(context, diagnosis)
        with found.container():
            findings.draw(diagnosis)
    place = _tables(context, finding)
    with context.loaded.lock:
        _by_tenant(place, finding, diagnosis)
    _slow(context, finding)
    if not diagnosis.checked:
        with said.container(), st.spinner(say("overview.replaying")):
            loaded.replay(context.question)
        with loaded.lock:
            _verdict(context, said, diagnosis)
            with found.container():
                findings.draw(diagnosis)
            _by_tenant(place, finding, diagnosis)


def _verdict(context: Context, place: DeltaGenerator, diagnosis: Diagnosis) -> None:
    with place.container():
        verdicts.show(diagnosis)
        verdicts.runbook(context, diagnosis)


def _sentence(context: Context, finding: Finding) -> DeltaGenerator:
    """Draw what is known at once; return the place of the verdict."""
    st.markdown(f"## {plain(translated(headline(finding)))}")
    place = st.empty()
    if slow := translated(row(slowness(finding))):
        st.markdown(f":material/speed: {plain(slow)}")
    _gpu_words(finding)
    for note in notes(finding):
        st.caption(f":material/info: {plain(translated(note))}")
    with st.container(horizontal=True, vertical_alignment="center"):
        _ways(context, finding)
        verdicts.method()
    return place


def _gpu_words(finding: Finding) -> None:
    """Say what GPUs went through; what is no trouble only beside it."""
    troubles = {text for gpu in finding.gpus for text in statements(gpu)}
    told = health(finding.gpus, finding.window.start_ns)
    for text in told:
        if text in troubles:
            st.markdown(f":material/memory: {plain(translated(text))}")
    if well := translated(row(text for text in told if text not in troubles)):
        st.caption(f":material/memory: {plain(well)}")


def _ways(context: Context, finding: Finding) -> None:
    """Draw links to what one looks at next."""
    if not finding.slow.requests:
        return
    context.link("tenants", say("findings.more"), ":material/group:")
    if finding.slow.slowest:
        worst = finding.slow.slowest[0].key
        context.link("request", say("overview.worst"), ":material/timeline:", **{REQUEST: worst})
    context.link("fixes", say("overview.fixes"), ":material/build:")


def _tiles(latency: Latency) -> None:
    with st.grid(6, min_column_width=124, gap="small"):
        for label, values in ((say("stage.total"), latency.total), ("TTFT", latency.ttft)):
            for name in LEVELS:
                _tile(f"{name} {label}", values, name)


def _tile(label: str, values: Quantiles | None, name: str) -> None:
    if values is None:
        text = say("overview.unknown")
        st.metric(label, text, border=True, height="stretch", help=say("overview.untold"))
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
        help=say("overview.exact", count=f"{values.count:,}"),
    )


def _health(context: Context, finding: Finding) -> DeltaGenerator:
    """Draw what is more than a percentile; return the place of the engine's tile."""
    with st.grid(4, min_column_width=180, gap="small"):
        _misses(context)
        _queue(finding)
        engines = st.empty()
        _gpus(finding)
    return engines


def _misses(context: Context) -> None:
    objective = context.choice.objective
    label, text = say("overview.slo"), say("overview.slo_help")
    if objective is None:
        st.metric(label, say("overview.no_objective"), border=True, height="stretch", help=text)
        return
    late, known = context.loaded.once(
        lambda: _late(context.loaded.frame, context.question.scope, objective),
        "late",
        context.question,
    )
    share = percent(late / known) if known else say("overview.unknown")
    st.metric(
        label,
        share,
        say("overview.late", count=f"{late:,}", objective=seconds(objective)),
        delta_color="off",
        delta_arrow="off",
        border=True,
        height="stretch",
        help=text,
    )


def _late(frame: pd.DataFrame, scope: Scope, objective: float) -> tuple[int, int]:
    """Requests that missed the objective, and all with a known time."""
    total = floats(frame, "total_seconds")[scope.mine(frame) & measured(frame)]
    return int((total > objective).sum()), int((~np.isnan(total)).sum())


def _queue(finding: Finding) -> None:
    held = finding.slow.by_stage
    whole = sum(held.values())
    known = "queue" in held and whole > 0
    st.metric(
        say("overview.queue"),
        percent(held["queue"] / whole) if known else say("overview.unknown"),
        border=True,
        height="stretch",
        help=say("overview.queue_help"),
    )


def _engine_tile(place: DeltaGenerator, diagnosis: Diagnosis) -> None:
    worst = [one.residual.worst for one in diagnosis.best.studies if one.residual.found]
    value = say("overview.engine_well")
    if not diagnosis.best.studies:
        value = say("overview.engine_none")
    if worst:
        value = say("overview.engine_slow", times=f"{max(worst):.1f}")
    place.metric(
        say("overview.engine"),
        value,
        border=True,
        height="stretch",
        help=say("overview.engine_help"),
    )


def _gpus(finding: Finding) -> None:
    ill = [gpu for gpu in finding.gpus if gpu.faulty_seconds or gpu.lost_seconds or gpu.xids]
    value = say("overview.gpu_none")
    if finding.gpus:
        value = say("overview.gpu_ill" if ill else "overview.gpu_well", count=len(ill))
    st.metric(
        say("overview.gpu"),
        value,
        border=True,
        height="stretch",
        help=say("overview.gpu_help"),
    )


def _over_time(context: Context) -> DeltaGenerator:
    """Draw the latency over time; return the place beside it."""
    left, right = st.columns([2, 1])
    with left, st.container(border=True, height="stretch"):
        _latency(context)
    return right.container(border=True, height="stretch")


def _by_stage(finding: Finding) -> None:
    st.markdown(say("overview.by_stage"), help=say("term.excess"))
    bars = charts.slow_seconds(finding)
    if bars is None:
        st.caption(say("overview.no_stages" if finding.slow.requests else "overview.no_slow"))
    else:
        plot(bars, alt=say("overview.by_stage"), key="stages")


def _latency(context: Context) -> None:
    with st.container(horizontal=True):
        measure = (
            st.segmented_control(
                say("overview.measure"),
                list(box.MEASURES),
                default=box.MEASURES[0],
                required=True,
                format_func=lambda name: say(f"measure.{name}"),
                key="measure",
                label_visibility="collapsed",
            )
            or box.MEASURES[0]
        )
        view = st.segmented_control(
            say("overview.view"),
            ["heat", "marks"],
            default="heat",
            required=True,
            format_func=lambda name: say(f"overview.{name}"),
            key="view",
            label_visibility="collapsed",
        )
    frame, scope = context.loaded.frame, context.question.scope
    if view == "marks":
        mine, finding = rows(frame, scope.mine(frame)), context.finding
        names = shown([load.name for load in finding.tenants])
        chart = charts.latency(mine, finding, measure, context.colours, names)
        if chart is None:
            st.caption(say("overview.no_measure"))
            return
        plot(chart, alt=say("overview.latency_alt"), key="latency")
        st.caption(say("overview.rings"))
        return
    bins = context.loaded.once(
        lambda: heatmap.counted(frame, scope.mine(frame), measure), "heat", scope, measure
    )
    if bins.empty:
        st.caption(say("overview.no_measure"))
        return
    key = f"heat-{measure}"
    plot(
        heatmap.draw(bins, measure),
        alt=say("overview.heat_alt"),
        key=key,
        on_select=lambda: _boxed(key, measure),
    )
    if st.session_state.pop(_JUST_BOXED, False):
        st.rerun()  # the selection stands among the controls, outside of what refreshes itself
    st.caption(say("overview.box_it"))
    if context.choice.box is not None:
        context.link("slow", say("overview.boxed"), ":material/select_all:")


def _boxed(key: str, measure: str) -> None:
    found = heatmap.boxed(st.session_state[key], measure)
    if found is not None:
        st.session_state[Box.PARAMETER] = str(found)
        st.session_state[_JUST_BOXED] = True


def _causes(context: Context, diagnosis: Diagnosis) -> None:
    scope = context.question.scope
    arrived = diagnosis.frame["arrived_ns"].to_numpy(dtype=np.int64)[scope.mine(diagnosis.frame)]
    # The same time as the heatmap above, not the part of the window before the first request.
    window = int(arrived.min()), int(arrived.max())
    data = context.loaded.once(
        lambda: causes.seconds(diagnosis.best.studies, diagnosis.reckoning.origin_ns, window),
        "causes",
        context.question,
    )
    chart = causes.draw(data)
    if chart is None:
        return
    with st.container(border=True):
        st.markdown(say("overview.causes"), help=say("overview.causes_help"))
        plot(chart, alt=say("overview.causes"), key="causes")


def _by_tenant(place: DeltaGenerator, finding: Finding, diagnosis: Diagnosis) -> None:
    table = tables.known(tables.by_tenant(finding, diagnosis.suspects))
    with place.container():
        st.dataframe(
            table,
            column_config=tables.by_tenant_columns(),
            hide_index=True,
            placeholder="",
            alt=say("overview.tenants"),
        )
        if diagnosis.checked:  # its button may be drawn once only
            download("tenants", table, table["requests"])


def _tables(context: Context, finding: Finding) -> DeltaGenerator:
    """Draw the tables; return the place of the one by tenant."""
    names = [say("overview.stages"), say("overview.tenants")]
    if finding.gpus:
        names.append(say("overview.gpus"))
    tabs = st.tabs(names)
    by_stage = tables.known(tables.by_stage(finding))
    with tabs[0]:
        st.dataframe(
            by_stage,
            column_config=tables.by_stage_columns(),
            hide_index=True,
            placeholder="",
            alt=names[0],
        )
        download("stages", by_stage, by_stage["requests"])
    with tabs[1]:
        place = st.empty()
    if finding.gpus:
        with tabs[2]:
            st.dataframe(
                tables.known(tables.by_gpu(finding)),
                column_config=tables.by_gpu_columns(),
                hide_index=True,
                placeholder="",
                alt=names[2],
            )
    return place


def _slow(context: Context, finding: Finding) -> None:
    st.header(say("overview.slow"))
    keys = [item.key for item in finding.slow.slowest]
    chosen = st.query_params.get(REQUEST)
    if not keys:
        st.caption(say("overview.none_slow"))
    else:
        st.caption(say("overview.choose"))
        slow_table(finding, keys, chosen)
    if chosen or keys:
        shown_key = request.timeline(context, chosen or keys[0])
        if shown_key is not None:
            label, icon = say("overview.open"), ":material/open_in_new:"
            context.link("request", label, icon, **{REQUEST: shown_key})
