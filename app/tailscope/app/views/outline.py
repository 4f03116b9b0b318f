"""The pages where there are no records, only a Prometheus: what its series tell, and what not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from tailscope.app import empty, lines
from tailscope.app.buckets import LEVELS, Buckets, Estimate
from tailscope.app.context import Context
from tailscope.app.export import download
from tailscope.app.palette import ACCENT, GREY, STAGES, UNKNOWN, shown
from tailscope.app.plot import plot
from tailscope.app.prometheus import Prometheus
from tailscope.app.questions import Outline, Unanswered, bounds, read
from tailscope.app.text import plain, say, translated
from tailscope.app.verdicts import method
from tailscope.triage.words import moment, percent, seconds

ROUND_NS = 5 * 10**9
"""Windows that end within the same so long are asked for once."""

_TONES = {"p50": "#8FC0D8", "p95": ACCENT, "p99": "#D55E00"}
_LINES = {"running": GREY, "waiting": ACCENT, "cache": ACCENT, "SM": GREY, "DRAM": ACCENT}


def draw(context: Context, page: str, server: Prometheus) -> None:
    """Draw a page without records.

    Args:
        context: What is looked at.
        page: Which page it is.
        server: Where the series are.
    """
    drawn = {"overview": _overview, "tenants": _tenants}.get(page)
    st.info(say("outline.alone"), icon=":material/show_chart:")
    if drawn is None:
        st.markdown(say(f"outline.why_{page}"))
        _switch_on(context)
        return
    found = _read(context, server)
    if found is None:
        return
    if found.empty:
        empty.no_series(plain(server.url), moment(found.start_ns), moment(found.end_ns))
        return
    drawn(context, found)
    if page == "tenants":
        st.markdown(say("outline.why_tenants"))
    _switch_on(context)


def _read(context: Context, server: Prometheus) -> Outline | None:
    """What the series tell; None, and said why, if nobody answers."""
    loaded, choice = context.loaded, context.choice
    now = time.time_ns() // ROUND_NS * ROUND_NS
    start, end = bounds(loaded.start_ns or None, loaded.end_ns, now)
    scope = choice.scope(loaded)
    # What a moving window begins with is no part of the question.
    key = "outline", end, scope.tenants, scope.models, scope.servers
    try:
        with st.spinner(say("outline.asking"), show_time=True):
            return loaded.once(lambda: read(server, start, end, scope, context.source.viewer), *key)
    except Unanswered:
        why = plain(translated(server.trouble))
        st.error(
            say("outline.unanswered", url=plain(server.url), why=why), icon=":material/cloud_off:"
        )
        st.button(say("outline.retry"), on_click=server.retry, icon=":material/refresh:")
        return None


def _switch_on(context: Context) -> None:
    with st.expander(say("outline.switch_on"), icon=":material/toggle_off:"):
        st.markdown(say("outline.gives"))
        empty.steps(context.source.directories)


def _overview(context: Context, found: Outline) -> None:
    total = found.parts.get("total")
    with st.container(border=True):
        st.markdown(f"## {plain(_headline(found, total))}")
        st.markdown(_origin(context, found))
        method("buckets")
    _tiles(context, found)
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch"):
        _percentiles(found)
    with right, st.container(border=True, height="stretch"):
        _stages(found)
    for place, chart in zip(st.columns(3), ("queue", "cache", "gpu"), strict=True):
        with place, st.container(border=True, height="stretch"):
            _lines(found, chart)
    _tenants(context, found)


def _headline(found: Outline, total: Buckets | None) -> str:
    since = {"low": moment(found.start_ns), "high": moment(found.end_ns)}
    if total is None:
        return say("outline.no_total", **since)
    return say(
        "outline.headline",
        p50=seconds(total.quantile(0.5).value),
        p99=seconds(total.quantile(0.99).value),
        count=f"{total.total:,.0f}",
        **since,
    )


def _origin(context: Context, found: Outline) -> str:
    told = [say("outline.estimate")]
    if found.by_engine:
        told.append(say("outline.by_engine"))
    if context.choice.tenants:
        told.append(say("outline.all_tenants"))
    return f":material/show_chart: {' '.join(told)}"


def _tiles(context: Context, found: Outline) -> None:
    with st.grid(6, min_column_width=124, gap="small"):
        for label, part in (("total", "total"), ("TTFT", "ttft")):
            for name, level in LEVELS.items():
                _tile(f"{name} {label}", found.parts.get(part), level)
    objective, total = context.choice.objective, found.parts.get("total")
    if objective is not None and total is not None:
        bound = total.bound(objective)
        st.metric(
            say("overview.slo"),
            percent(total.above(bound)),
            say("outline.over", bound=f"{bound:g}"),
            delta_color="off",
            delta_arrow="off",
            border=True,
            width=240,
            help=say("outline.over_help"),
        )


def _tile(label: str, known: Buckets | None, level: float) -> None:
    if known is None:
        st.metric(
            label,
            say("overview.unknown"),
            border=True,
            height="stretch",
            help=say("outline.untold"),
        )
        return
    estimate = known.quantile(level)
    st.metric(
        label,
        seconds(estimate.value),
        _bucket(estimate),
        delta_color="off",
        delta_arrow="off",
        border=True,
        height="stretch",
        help=say("outline.tile_help", count=f"{known.total:,.0f}"),
    )


def _bucket(estimate: Estimate) -> str:
    if estimate.high is None:
        return say("table.from", low=f"{estimate.low:g} s")
    return say("table.between", low=f"{estimate.low:g}", high=f"{estimate.high:g} s")


def _percentiles(found: Outline) -> None:
    st.markdown(f"**{say('outline.percentiles')}**")
    offered = [name for name in ("total", "ttft") if name in found.parts]
    if not offered:
        st.caption(say("outline.no_requests"))
        return
    part = st.segmented_control(
        say("overview.measure"),
        offered,
        default=offered[0],
        required=True,
        format_func=lambda name: say(f"stage.{name}"),
        key="outline-part",
        label_visibility="collapsed",
    )
    over = found.over_time
    _line(
        found,
        over[over["part"] == (part or offered[0])] if "part" in over else over,
        _TONES,
        by="level",
        value="seconds",
        title=say(f"chart.{part or offered[0]}_seconds"),
        alt=say("outline.percentiles"),
        key="outline-percentiles",
    )


def _stages(found: Outline) -> None:
    st.markdown(f"**{say('outline.stages')}**")
    present = [name for name in STAGES if name in found.parts]
    if not present:
        st.caption(say("outline.no_stages"))
        return
    over = found.over_time
    _line(
        found,
        over[(over["level"] == "p95") & over["part"].isin(present)] if len(over) else over,
        {name: STAGES[name] for name in present},
        by="part",
        value="seconds",
        title=say("outline.stage_seconds"),
        alt=say("outline.stages"),
        key="outline-stages",
        named=lambda name: say(f"stage.{name}"),
    )


def _lines(found: Outline, chart: str) -> None:
    st.markdown(f"**{say(f'strip.{chart}')}**")
    data = found.lines[chart]
    if data.empty:
        st.caption(say(f"outline.no_{chart}"))
        return
    _line(
        found,
        data,
        {name: _LINES[name] for name in _LINES if name in set(data["what"])},
        by="what",
        value="value",
        title=say(f"strip.{chart}_unit"),
        alt=say(f"strip.{chart}"),
        key=f"outline-{chart}",
        named=lambda name: say(f"line.{name}"),
    )


def _line(
    found: Outline,
    data: pd.DataFrame,
    colours: dict[str, str],
    *,
    by: str,
    value: str,
    title: str,
    alt: str,
    key: str,
    named: Callable[[str], str] = str,
) -> None:
    if data.empty:
        st.caption(say("outline.too_short"))
        return
    chart = lines.draw(
        data,
        colours,
        by=by,
        value=value,
        title=title,
        window=(found.start_ns, found.end_ns),
        named={name: named(name) for name in colours},
    )
    plot(chart, alt=alt, key=key)


def _tenants(context: Context, found: Outline) -> None:
    st.header(say("outline.tenants"), help=say("outline.tenants_help"))
    table = tenants(found)
    if table.empty:
        st.caption(say("outline.no_tenants"))
        return
    names = [name for name in shown(list(table["tenant"])) if name != UNKNOWN]
    context.colours.learn(table["tenant"])
    _line(
        found,
        found.batch,
        {name: context.colours.colour(name) for name in names},
        by="tenant",
        value="value",
        title=say("outline.places"),
        alt=say("outline.tenants"),
        key="outline-batch",
    )
    st.dataframe(
        table.dropna(axis="columns", how="all"),
        column_config=_columns(found),
        hide_index=True,
        placeholder="",
        alt=say("outline.tenants"),
    )
    download("tenants", table, table["requests"])
    st.caption(say("outline.not_blame"))


def tenants(found: Outline) -> pd.DataFrame:
    """Load of each tenant and how slow it was, the largest load first."""
    names = sorted({*found.tenants, *found.loads.index})
    loads = found.loads.reindex(names)
    slots = loads["slot_seconds"] if "slot_seconds" in loads else pd.Series(dtype=float)
    rows = []
    for name in names:
        known = found.tenants.get(name)
        told = loads.loc[name].to_dict()
        ended = pd.Series([told.get("ok"), told.get("other")], dtype="float64").sum(min_count=1)
        rows.append(
            {
                "tenant": name,
                "requests": ended if pd.notna(ended) else known and known.total,
                "failed": 100 * told.get("other", 0.0) / ended if ended > 0 else None,
                "p95": known and known.quantile(0.95).value,
                "p99": known and known.quantile(0.99).value,
                "slow_share": 100 * known.above(found.slow) if known and found.slow else None,
                "batch": 100 * told["slot_seconds"] / slots.sum() if slots.sum() > 0 else None,
                "input_tokens": told.get("input_tokens"),
                "output_tokens": told.get("output_tokens"),
            }
        )
    table = pd.DataFrame(rows, columns=list(_COLUMNS)).astype({"requests": "float64"})
    return table.sort_values(["batch", "requests"], ascending=False, ignore_index=True)


_COLUMNS = (
    *("tenant", "requests", "failed", "p95", "p99", "slow_share", "batch"),
    *("input_tokens", "output_tokens"),
)


def _columns(found: Outline) -> dict[str, Any]:
    number, share = st.column_config.NumberColumn, st.column_config.ProgressColumn
    limit = "" if found.slow is None else f"{found.slow:g}"
    return {
        "tenant": st.column_config.TextColumn(say("column.tenant"), pinned=True),
        "requests": number(say("column.requests"), format="localized", step=1),
        "failed": number(say("outline.failed"), format="%.1f %%"),
        "p95": number("p95", format="%.2f s", help=say("outline.estimate")),
        "p99": number("p99", format="%.2f s", help=say("outline.estimate")),
        "slow_share": share(
            say("outline.slow_share"),
            format="%.1f %%",
            min_value=0,
            max_value=100,
            help=say("outline.slow_share_help", limit=limit),
        ),
        "batch": share(
            say("column.batch"),
            format="%.0f %%",
            min_value=0,
            max_value=100,
            help=say("column.batch_help"),
        ),
        "input_tokens": number(say("column.tokens_in"), format="compact"),
        "output_tokens": number(say("column.tokens_out"), format="compact"),
    }
