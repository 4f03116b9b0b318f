"""Tenants: who slowed whom, what each one's absence would have saved, and when its load changed."""

from __future__ import annotations

import streamlit as st

from tailscope.app import blame, findings, verdicts
from tailscope.app.context import Context
from tailscope.app.empty import missing
from tailscope.app.export import download, download_json, rare
from tailscope.app.plot import plot
from tailscope.app.text import language, plain, say, translated
from tailscope.app.text import tenant as named_so
from tailscope.records.record import UNKNOWN_TENANT
from tailscope.triage.cause import times
from tailscope.triage.diagnosis import Diagnosis, Matrix
from tailscope.triage.report import report
from tailscope.triage.stages import named, rows
from tailscope.triage.verdict import Suspect
from tailscope.triage.words import clock


def draw(context: Context) -> None:
    """Draw the page; while a replay of new requests is made, with the one before."""
    last = None if context.loaded.replayed(context.question) else context.last
    if last is None:
        _draw(context)
        return
    _draw(last)
    context.loaded.replay(context.question)
    st.rerun()


def _draw(context: Context) -> None:
    finding = context.finding
    names = [load.name for load in finding.tenants]
    if set(names) <= {UNKNOWN_TENANT}:
        missing("tenants.unknown", "tailscope exporter ... --requests gateway.jsonl")
        return
    if not context.loaded.replayed(context.question):
        with st.spinner(say("overview.replaying")):
            context.loaded.replay(context.question)
    st.caption(say("tenants.as_of", at=clock(context.loaded.read_ns)))
    with context.loaded.lock:
        diagnosis = context.diagnosis
        with st.container(border=True):
            verdicts.show(diagnosis)
            if not diagnosis.verdict:
                st.markdown(say("overview.none_slow"))
            verdicts.runbook(context, diagnosis)
            verdicts.method("ledger", "removal", "lift", "accused", "grade")
        _removal(context, diagnosis)
        for one in diagnosis.matrices:
            _matrix(context, one, {load.name: load.requests for load in finding.tenants})
        _loads(context, diagnosis, names)
        findings.draw(diagnosis)
        _export(context, diagnosis)


def _removal(context: Context, diagnosis: Diagnosis) -> None:
    data = blame.estimates(diagnosis.quick.suspects, diagnosis.best.suspects)
    st.header(say("tenants.removal"), help=say("term.removal"))
    if data.empty:
        st.caption(say("overview.none_slow"))
        return
    chart = blame.removal(data, context.colours)
    plot(chart, alt=say("tenants.removal"), key="removal")
    st.caption(say("tenants.removal_note"))


def _matrix(context: Context, one: Matrix, requests: dict[str, int]) -> None:
    st.header(say("tenants.matrix", server=plain(one.server or say("tenants.engine"))))
    data = blame.cells(one)
    key = "matrix", context.question, one.server, language()
    event = plot(
        context.loaded.once(lambda: blame.matrix(data), *key),
        alt=say("tenants.matrix_alt"),
        key=f"matrix-{one.server}",
        on_select="rerun",
    )
    pair = blame.clicked(event)
    st.caption(say("tenants.matrix_note"))
    with st.container(horizontal=True):
        for row in blame.largest(data) if pair is None else [pair]:
            worker = plain(row.worker or say("tenants.nobody"))
            label = say("tenants.cell", victim=plain(row.victim), worker=worker)
            context.link("slow", label, ":material/manage_search:", **row.address)
    known = data[data["worker"].isin(requests) | data["worker"].eq("")]
    fewest = [
        min(requests.get(victim, 0), requests.get(worker, requests.get(victim, 0)))
        for victim, worker in zip(known["victim"], known["worker"], strict=True)
    ]
    download(f"matrix-{one.server}", known, fewest)


def _loads(context: Context, diagnosis: Diagnosis, names: list[str]) -> None:
    st.header(say("tenants.loads"), help=say("term.lift"))
    frame, scope = diagnosis.frame, context.question.scope
    data = context.loaded.once(
        lambda: blame.loads(rows(frame, scope.window(frame)), names), "loads", scope
    )
    if data.empty:
        st.caption(say("tenants.no_tokens"))
        return
    first = next((one for one in diagnosis.suspects if one.change is not None), None)
    origin = diagnosis.reckoning.origin_ns
    stretch = None
    if first is not None and first.change is not None:
        begin, end = first.change.begin, first.change.end
        stretch = (origin + int(begin * 1e9), origin + int(end * 1e9))
    chart = blame.load_lines(data, context.colours, stretch)
    plot(chart, alt=say("tenants.loads"), key="loads")
    if first is not None and stretch is not None:
        st.caption(_stretch(first, stretch))


def _stretch(one: Suspect, stretch: tuple[int, int]) -> str:
    others = "" if one.change is None else f"{one.change.others:.1f}"
    return say(
        "tenants.stretch",
        name=plain(named_so(one.name)),
        begin=clock(stretch[0]),
        end=clock(stretch[1]),
        lift=translated(times(one.lift or 0.0)),
        others=others,
    )


def _export(context: Context, diagnosis: Diagnosis) -> None:
    if not st.toggle(say("export.prepare"), key="report", help=say("export.prepare_help")):
        return
    with st.spinner(say("export.preparing")):
        shape = report(diagnosis)
    # Single requests are nobody's aggregates.
    shape["slow"] = {name: value for name, value in shape["slow"].items() if name != "slowest"}
    if "offline" in shape:
        shape["offline"].pop("outliers", None)
    frame = diagnosis.frame
    few = rare(named(frame, "tenant"), context.question.scope.window(frame))
    download_json("report", shape, few)
