"""Data health: where the numbers come from, how far they carry, what is missing."""

from __future__ import annotations

import time

import pandas as pd
import streamlit as st

from tailscope.app import strips
from tailscope.app.context import Context
from tailscope.app.questions import bounds, rejected
from tailscope.app.series import PROMETHEUS, STORE
from tailscope.app.text import plain, say, translated
from tailscope.app.verdicts import METHODS
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.finding import Finding
from tailscope.triage.quality import notes
from tailscope.triage.words import moment, percent

_LOOK_NS = 300 * 10**9
"""Samples of so long are looked at, to say where they come from."""

MOST_SKEW = 0.05
"""Seconds by which clocks may differ before the page warns: waits are no shorter."""

TERMS = (
    *("ttft", "total", "excess", "censored", "ledger", "removal", "lift", "grade", "victims"),
    *("fidelity", "epoch", "knee", "headroom", "sm", "dram"),
)


def draw(context: Context) -> None:
    """Draw the page."""
    _sources(context)
    finding = context.finding
    if finding.window.requests:
        _quality(finding)
        with context.loaded.lock:
            _models(context.diagnosis)
        _clocks(context)
    _dropped(context)
    _missing(finding)
    with st.expander(say("health.terms"), icon=":material/menu_book:"):
        for name in TERMS:
            st.markdown(f"**{say(f'term.{name}_name')}**: {say(f'term.{name}')}")
        for name in METHODS:
            st.markdown(f"**{say(f'how.{name}_name')}**: {say(f'how.{name}')}")


def _sources(context: Context) -> None:
    st.header(say("health.sources"))
    rows = []
    whole = context.source.viewer.operator
    for number, part in enumerate(context.source.parts(), 1):
        span = part.span
        rows.append(
            {
                "source": say("health.store", path=part.directory)
                if whole
                else say("health.numbered", number=number),
                "state": say("health.read" if part.exists else "health.never"),
                "from": None if span is None else moment(span[0]),
                "to": None if span is None else moment(span[1]),
                "gives": say("health.requests"),
            }
        )
    origins = _origins(context)
    if context.source.prometheus is not None:
        trouble = context.source.prometheus.trouble
        rows.append(
            {
                "source": context.source.prometheus.url if whole else "Prometheus",
                "state": say("health.fails", why=trouble) if trouble else say("health.answers"),
                "from": None,
                "to": None,
                "gives": say("health.series"),
            }
        )
    st.dataframe(
        pd.DataFrame(rows, columns=["source", "state", "from", "to", "gives"]),
        column_config={
            "source": st.column_config.TextColumn(say("column.source"), width="large"),
            "state": st.column_config.TextColumn(say("column.state")),
            "from": st.column_config.TextColumn(say("column.from")),
            "to": st.column_config.TextColumn(say("column.to")),
            "gives": st.column_config.TextColumn(say("column.gives"), width="medium"),
        },
        hide_index=True,
        placeholder="",
        alt=say("health.sources"),
    )
    for name, text in ((STORE, "health.from_store"), (PROMETHEUS, "health.from_prometheus")):
        if name in origins:
            st.caption(say(text, metrics=", ".join(f"`{one}`" for one in origins[name])))


def _origins(context: Context) -> dict[str, list[str]]:
    """Where the series of the end of the window come from."""
    span = context.source.span()
    end = context.loaded.end_ns or (span[1] if span else 0) + 1
    samples = context.source.samples(strips.METRICS, end - _LOOK_NS, end + 1)
    if samples.empty:
        return {}
    return {
        str(origin): sorted(part["metric"].unique()) for origin, part in samples.groupby("origin")
    }


def _quality(finding: Finding) -> None:
    st.header(say("health.quality"))
    data = finding.quality
    with st.grid(4, min_column_width=150, gap="small"):
        for name, value in (
            ("requests", data.requests),
            ("joined", sum(data.joined.values())),
            ("no_tenant", data.without_tenant),
            ("no_stages", data.without_stages),
        ):
            st.metric(
                say(f"health.{name}"),
                f"{value:,}",
                border=True,
                height="stretch",
                help=say(f"health.{name}_help"),
            )
    for note in notes(finding):
        st.markdown(f":material/info: {plain(translated(note))}")
    counts = [
        *(("joined", name, count) for name, count in data.joined.items()),
        *(("outcome", name, count) for name, count in data.outcomes.items()),
        *(("inferred", name, count) for name, count in data.inferred.items()),
        *(("rejected", name, count) for name, count in data.rejected.items()),
    ]
    st.dataframe(
        pd.DataFrame(
            [
                {"what": say(f"health.of_{kind}"), "value": name, "requests": count}
                for kind, name, count in counts
            ],
            columns=["what", "value", "requests"],
        ),
        column_config={
            "what": st.column_config.TextColumn(say("column.what")),
            "value": st.column_config.TextColumn(say("column.value")),
            "requests": st.column_config.NumberColumn(say("column.requests"), format="localized"),
        },
        hide_index=True,
        alt=say("health.quality"),
    )
    if (cut := finding.latency.cut) is not None:
        share = percent(cut.share)
        st.markdown(
            f":material/content_cut: {say('health.cut', at=f'{cut.seconds:g}', share=share)}"
        )


def _clocks(context: Context) -> None:
    st.header(say("health.clocks"), help=say("health.clocks_help"))
    found = context.source.skews(context.loaded)
    if not found:
        st.caption(say("health.no_clocks"))
        return
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "server": one.server,
                    "pairs": one.pairs,
                    "skew": 1e3 * one.seconds,
                    "low": 1e3 * one.low,
                    "high": 1e3 * one.high,
                }
                for one in found
            ]
        ),
        column_config={
            "server": text(say("controls.server")),
            "pairs": number(say("health.pairs"), format="localized"),
            "skew": number(say("health.skew"), format="%+.1f ms"),
            "low": number(say("health.skew_low"), format="%+.1f ms"),
            "high": number(say("health.skew_high"), format="%+.1f ms"),
        },
        hide_index=True,
        alt=say("health.clocks"),
    )
    if any(one.low > MOST_SKEW or one.high < -MOST_SKEW for one in found):
        st.warning(say("health.skewed", most=f"{1e3 * MOST_SKEW:g}"), icon=":material/schedule:")


def _dropped(context: Context) -> None:
    """Draw what exporters refused, by reason: they count it, and the store holds only the rest."""
    st.header(say("health.dropped"), help=say("health.dropped_help"))
    server = context.source.prometheus
    if server is None:
        st.caption(say("health.dropped_unknown"))
        return
    loaded = context.loaded
    start, end = bounds(loaded.start_ns or None, loaded.end_ns, time.time_ns())
    found = loaded.once(lambda: rejected(server, start, end), "rejected")
    if server.trouble:
        st.caption(say("health.dropped_unknown"))
    elif found.empty:
        st.caption(say("health.dropped_none"))
    else:
        st.dataframe(
            found,
            column_config={
                "source": st.column_config.TextColumn(say("column.source")),
                "reason": st.column_config.TextColumn(say("health.reason")),
                "records": st.column_config.NumberColumn(say("health.records"), format="%.0f"),
            },
            hide_index=True,
            alt=say("health.dropped"),
        )


def _models(diagnosis: Diagnosis) -> None:
    st.header(say("health.models"), help=say("health.models_help"))
    rows = []
    for one in diagnosis.best.studies:
        near, limits = one.fidelity, one.admission
        rows.append(
            {
                "server": one.work.server,
                "requests": len(one.work),
                "stages": say(f"health.{one.work.stages.name.lower()}"),
                "fit": one.costing.cost.fit,
                "limiter": None if limits is None else translated(str(limits.limiter)),
                "admission": None if limits is None else 100 * limits.fidelity,
                "loss": None if near is None else 100 * near.loss,
                "passed": None
                if near is None
                else say("health.yes" if near.passed else "health.no"),
            }
        )
    if not rows:
        st.caption(say("overview.none_slow"))
        return
    if not diagnosis.checked:
        st.caption(say("health.not_replayed"))
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    st.dataframe(
        pd.DataFrame(rows).dropna(axis="columns", how="all"),
        column_config={
            "server": text(say("controls.server")),
            "requests": number(say("column.requests"), format="localized"),
            "stages": text(say("column.stages")),
            "fit": number(say("column.fit"), format="%.3f", help=say("column.fit_help")),
            "limiter": text(say("column.limiter"), help=say("column.limiter_help")),
            "admission": number(
                say("column.admission"), format="%.0f %%", help=say("column.admission_help")
            ),
            "loss": number(say("column.loss"), format="%.1f %%", help=say("column.loss_help")),
            "passed": text(say("column.passed"), help=say("column.passed_help")),
        },
        hide_index=True,
        placeholder="",
        alt=say("health.models"),
    )


def _missing(finding: Finding) -> None:
    st.header(say("health.missing"))
    data = finding.quality
    steps = {
        "switch_tenants": data.requests == 0 or data.without_tenant > 0,
        "switch_stages": data.requests == 0 or data.without_stages > 0,
        "switch_gpus": not finding.gpus,
        "switch_client": finding.latency.client is None,
    }
    if not any(steps.values()):
        st.markdown(say("health.complete"))
    for name, wanted in steps.items():
        if wanted:
            st.markdown(f":material/toggle_off: {say(f'health.{name}')}")
