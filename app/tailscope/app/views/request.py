"""One request: its stages, and what ran beside it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tailscope.app import account, strips, tables
from tailscope.app import timeline as drawing
from tailscope.app.context import IDENTITIES, REQUEST, Context
from tailscope.app.controls import BETWEEN, PERIOD
from tailscope.app.palette import UNKNOWN, shown
from tailscope.app.plot import plot
from tailscope.app.source import Loaded
from tailscope.app.text import plain, say, tenant, translated
from tailscope.records.joining import MAX_NS
from tailscope.triage.coincidence import beside as compared
from tailscope.triage.gpusentence import during
from tailscope.triage.identity import keys
from tailscope.triage.neighbours import Neighbourhood, held_by_tenant
from tailscope.triage.sentence import beside, stages
from tailscope.triage.stages import floats
from tailscope.triage.words import iso, moment

_KEPT = "request-kept"

BESIDE_NS = 900 * 10**9
"""How much time before and after a request outside of the window its link shows."""


def draw(context: Context) -> None:
    """Draw the page of one request."""
    for name in IDENTITIES:
        if named := st.query_params.pop(name, ""):
            st.session_state[REQUEST] = named
    # Whoever comes from another page without an id gets the request that was looked at last.
    if REQUEST not in st.session_state and REQUEST not in st.query_params:
        st.session_state[REQUEST] = st.session_state.get(_KEPT, "")
    text = st.text_input(
        say("request.title"),
        key=REQUEST,
        bind="query-params",
        placeholder=say("request.placeholder"),
        help=say("request.id_help"),
    )
    if not text:
        st.caption(say("request.enter"))
        return
    timeline(context, text.strip())


def timeline(context: Context, text: str) -> str | None:
    """Draw a request beside its neighbours, and its ledger.

    Returns:
        Its key; None if it was not found.
    """
    around = context.source.around(text, context.loaded)
    if around is None:
        st.info(say("request.unknown", text=plain(text)), icon=":material/search_off:")
        return None
    row = around.request.iloc[0]
    key = str(keys(around.request).iloc[0])
    st.session_state[_KEPT] = key
    _outside(context, row, key)
    name = _text(row, "request_id") or _text(row, "span_id") or say("chart.no_id")
    st.header(say("request.name", name=plain(name)))
    st.markdown(" · ".join(_facts(row)))
    st.markdown(plain(" ".join(translated(one) for one in (stages(around), beside(around)) if one)))
    for trouble in _troubles(around, context.loaded):
        st.markdown(f":material/memory: {plain(translated(trouble))}")
    _draw(context, around)
    account.draw(context, key)
    return key


def _outside(context: Context, row: pd.Series, key: str) -> None:
    """Say so where a request is not in the window, and lead to a window that it is in."""
    arrived, loaded = int(row["arrived_ns"]), context.loaded
    if loaded.start_ns <= arrived < (loaded.end_ns or MAX_NS):
        return
    st.info(say("request.outside", at=moment(arrived)), icon=":material/history:")
    bounds = (iso(arrived - BESIDE_NS), iso(arrived + BESIDE_NS))
    told = dict(zip(PERIOD, bounds, strict=True))
    label, icon = say("request.go"), ":material/date_range:"
    context.link("request", label, icon, window=BETWEEN, **{REQUEST: key}, **told)


def _troubles(around: Neighbourhood, loaded: Loaded) -> tuple[str, ...]:
    gpus = compared(loaded.gpus, around.request)
    return during(gpus, float(floats(around.request, "total_seconds")[0]))


def _facts(row: pd.Series) -> list[str]:
    found = [
        say("request.tenant", name=plain(tenant(_text(row, "tenant") or UNKNOWN))),
        say("request.arrived", at=moment(int(row["arrived_ns"]))),
    ]
    for name in ("input_tokens", "output_tokens"):
        if not pd.isna(row[name]):
            found.append(say(f"request.{name}", count=f"{int(row[name]):,}"))
    for name in ("model", "server", "outcome"):
        if value := _text(row, name):
            found.append(plain(value))
    return found


def _text(row: pd.Series, name: str) -> str:
    return "" if pd.isna(row[name]) else str(row[name])


def _draw(context: Context, around: Neighbourhood) -> None:
    own = _text(around.request.iloc[0], "tenant")
    others = [name for name in held_by_tenant(around)["tenant"] if name != own]
    tenants = shown([own, *others] if own else others)
    data = drawing.bars(around, tenants)
    if data.empty:
        st.caption(say("request.no_times"))
        return
    plot(drawing.gantt(data, context.colours), alt=say("request.gantt"), key="gantt")
    count, drawn = len(around.others), min(len(around.others), drawing.MAX_ROWS)
    st.caption(
        say("request.drawn", drawn=f"{drawn:,}", count=f"{count:,}")
        if count
        else say("request.alone")
    )
    _hardware(context, around, drawing.extent(data))
    if count:
        _beside(around)


def _hardware(context: Context, around: Neighbourhood, length: float) -> None:
    """What GPUs and engine did meanwhile, as far as the store has samples."""
    row = around.request.iloc[0]
    origin = int(row["arrived_ns"])
    samples = context.source.samples(strips.METRICS, *strips.span(origin, length))
    for strip in strips.STRIPS:
        server = "" if strip is strips.GPU else _text(row, "server")
        if not server and strip is not strips.GPU and not context.source.viewer.operator:
            continue  # all engines would be drawn, those of others among them
        points = strips.lines(samples, strip, origin, length, server)
        if not points.empty:
            plot(
                strips.draw(points, strip, length),
                alt=say("request.strip", what=strip.title),
                key=f"strip-{strip.key}",
            )
        if strip is strips.GPU:
            origins = sorted(samples["origin"].unique()) if len(samples) else []
            st.caption(_gpu_note(points, origins))


def _gpu_note(points: pd.DataFrame, origins: list[str]) -> str:
    if points.empty:
        return say("request.no_gpu")
    told = set(points["what"])
    lacking = [name for name in strips.GPU.series.values() if name not in told]
    which = ", ".join(sorted(points["whose"].unique()))
    note = say("request.gpu_note", which=which)
    note += "".join(f" {say('request.no_activity', name=name)}" for name in lacking)
    return " ".join([note, *(say(f"request.of_{origin}") for origin in origins)])


def _beside(around: Neighbourhood) -> None:
    st.dataframe(
        tables.known(tables.beside(around)),
        column_config=tables.beside_columns(),
        hide_index=True,
        placeholder=say("overview.unknown"),
        alt=say("request.beside"),
    )
