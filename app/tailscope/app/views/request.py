"""One request: its stages, and what ran beside it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tailscope.app import strips, tables
from tailscope.app import timeline as drawing
from tailscope.app.palette import TenantColours, shown
from tailscope.app.source import Loaded, Source
from tailscope.app.text import plain
from tailscope.triage.coincidence import beside as compared
from tailscope.triage.gpusentence import during
from tailscope.triage.identity import keys
from tailscope.triage.neighbours import Neighbourhood, held_by_tenant
from tailscope.triage.sentence import beside, stages
from tailscope.triage.stages import floats
from tailscope.triage.words import moment, plural

PARAMETER = "request"
"""Name of the request in the address of a page."""


def draw(source: Source, loaded: Loaded, colours: TenantColours) -> None:
    """Draw the page of one request."""
    text = st.text_input(
        "Request",
        key=PARAMETER,
        bind="query-params",
        placeholder="key, span id, trace id or request id",
        help="A span, trace or request id is looked for in the time window; a key from a link is "
        "found wherever it is.",
    )
    if not text:
        st.caption("Enter an id, or choose a slow request on the overview.")
        return
    timeline(source, loaded, text.strip(), colours)


def timeline(source: Source, loaded: Loaded, text: str, colours: TenantColours) -> str | None:
    """Draw a request beside its neighbours.

    Returns:
        Its key; None if it was not found.
    """
    around = source.around(text, loaded)
    if around is None:
        st.info(
            f"No request {plain(text)} in this time window. Choose a longer one, or the request "
            "may have left the store.",
            icon=":material/search_off:",
        )
        return None
    row = around.request.iloc[0]
    name = _text(row, "request_id") or _text(row, "span_id") or "without an id"
    st.subheader(f"Request {plain(name)}")
    st.markdown(" · ".join(_facts(row)))
    st.markdown(plain(" ".join(filter(None, [stages(around), beside(around)]))))
    for text in _troubles(around, loaded):
        st.markdown(f":material/memory: {plain(text)}")
    _draw(source, around, colours)
    return str(keys(around.request).iloc[0])


def _troubles(around: Neighbourhood, loaded: Loaded) -> tuple[str, ...]:
    gpus = compared(loaded.gpus, around.request)
    return during(gpus, float(floats(around.request, "total_seconds")[0]))


def _facts(row: pd.Series) -> list[str]:
    found = [
        f"tenant **{plain(_text(row, 'tenant') or 'unknown')}**",
        f"arrived {moment(int(row['arrived_ns']))}",
    ]
    for name, text in (("input_tokens", "tokens in"), ("output_tokens", "tokens out")):
        if not pd.isna(row[name]):
            found.append(f"{int(row[name]):,} {text}")
    for name in ("model", "server", "outcome"):
        if value := _text(row, name):
            found.append(plain(value))
    return found


def _text(row: pd.Series, name: str) -> str:
    return "" if pd.isna(row[name]) else str(row[name])


def _draw(source: Source, around: Neighbourhood, colours: TenantColours) -> None:
    own = _text(around.request.iloc[0], "tenant")
    others = [name for name in held_by_tenant(around)["tenant"] if name != own]
    tenants = shown([own, *others] if own else others)
    data = drawing.bars(around, tenants)
    if data.empty:
        st.caption("It has no times, so it cannot be drawn.")
        return
    st.altair_chart(
        drawing.gantt(data, colours), alt="The request and those beside it over time", key="gantt"
    )
    count, drawn = len(around.others), min(len(around.others), drawing.MAX_ROWS)
    st.caption(
        f"Top: this request; dashes: its arrival and its end. Below: {plural(drawn, 'request')} of "
        f"the {count:,} that overlapped it, longest in the batch first."
        if count
        else "Nothing ran beside it on this server, as far as the records tell."
    )
    _hardware(source, around, drawing.extent(data))
    if count:
        _beside(around)


def _hardware(source: Source, around: Neighbourhood, length: float) -> None:
    """What GPUs and engine did meanwhile, as far as the store has samples."""
    row = around.request.iloc[0]
    origin = int(row["arrived_ns"])
    samples = source.samples(strips.METRICS, *strips.span(origin, length))
    for strip in strips.STRIPS:
        server = "" if strip is strips.GPU else _text(row, "server")
        points = strips.lines(samples, strip, origin, length, server)
        if not points.empty:
            st.altair_chart(
                strips.draw(points, strip, length),
                alt=f"{strip.title} while the request ran",
                key=f"strip-{strip.title}",
            )
        if strip is strips.GPU:
            st.caption(_gpu_note(points))


def _gpu_note(points: pd.DataFrame) -> str:
    if points.empty:
        return (
            "No GPU activity is stored for this time. An exporter on the machine of the GPUs "
            "stores it: `tailscope exporter --gpu auto`, on Hopper and newer; on others add a "
            "dcgm-exporter with its profiling fields, `--dcgm-url http://127.0.0.1:9400/metrics`."
        )
    told = set(points["what"])
    lacking = [name for name in strips.GPU.series.values() if name not in told]
    which = ", ".join(sorted(points["whose"].unique()))
    note = (
        f"{which}: share of cycles, mean since the sample before. SM: a multiprocessor had work; "
        "DRAM: memory moved data, about 80 % is the most. Which GPU served the request is not "
        "recorded."
    )
    return note + "".join(f" No {name} activity is stored for this time." for name in lacking)


def _beside(around: Neighbourhood) -> None:
    st.dataframe(
        tables.known(tables.beside(around)),
        column_config=tables.beside_columns(),
        hide_index=True,
        placeholder="unknown",
        alt="Who held the batch beside this request",
    )
