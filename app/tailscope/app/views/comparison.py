"""Before and after one change: better, worse, or not to be compared, and why."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from tailscope.app import changes, history
from tailscope.app.changes import Change
from tailscope.app.context import Context
from tailscope.app.palette import ACCENT, GREY
from tailscope.app.plot import plot
from tailscope.app.selection import select
from tailscope.app.text import plain, say, translated
from tailscope.app.timespan import instant
from tailscope.app.verdicts import method
from tailscope.triage.comparison import Comparison, Outcome, compare
from tailscope.triage.scope import Scope, measured
from tailscope.triage.stages import rows
from tailscope.triage.words import iso, moment

AGAINST = {"window": 0, "day": 86_400 * 10**9, "week": 7 * 86_400 * 10**9, "free": 0}
"""What the requests after the change are compared with: nanoseconds earlier; 0 for the window."""

FREE = "free"
"""Both windows are named."""

BOUNDS = ("before_from", "before_to", "after_from", "after_to")

LOOK_NS, LOOKS = 3600 * 10**9, 6
"""Engines are looked at for changes in pieces so long, and so many of them at most."""

_Span = tuple[int | None, int | None]

_ICONS = {
    Outcome.BETTER: ":material/trending_down:",
    Outcome.WORSE: ":material/trending_up:",
    Outcome.SAME: ":material/trending_flat:",
    Outcome.INCOMPARABLE: ":material/block:",
}


def draw(context: Context) -> None:
    """Draw the page."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        against = select(
            "against",
            say("comparison.against"),
            list(AGAINST),
            "window",
            lambda name: say(f"comparison.{name}"),
            width=320,
        )
        force = st.toggle(
            say("comparison.force"),
            key="force",
            bind="query-params",
            help=say("comparison.force_help"),
        )
    if against == FREE:
        parts = _free(context)
        marks: list[int] = []
    else:
        known = _recorded(context)
        changed = _changed(context, known)
        parts = None if changed is None else _parts(context, changed, AGAINST[against])
        marks = [] if changed is None else [changed]
    _over_time(context, marks, parts)
    if parts is None:
        st.info(
            say("comparison.both" if against == FREE else "comparison.when"),
            icon=":material/info:",
        )
        return
    scope = context.question.scope
    found = compare(*parts, tenants=scope.tenants, force=force)
    _said(found, *(rows(part, scope.judged(part)) for part in parts))
    if found.shifts:
        _drawn(found)


def _recorded(context: Context) -> tuple[Change, ...]:
    """Draw the changes that the store tells of; each is a click away."""
    loaded = context.loaded
    known = loaded.once(lambda: changes.found(_samples(context), loaded.frame), "changes")
    options = [iso(one.at_ns) for one in known]
    if not known:
        st.caption(say("comparison.no_changes"))
        return known
    told = dict(zip(options, map(_told, known), strict=True))
    st.selectbox(
        say("comparison.recorded"),
        options,
        index=None,
        format_func=lambda at: told.get(at, at),
        placeholder=say("comparison.choose"),
        key=_RECORDED,
        on_change=_take,
        help=say("comparison.recorded_help"),
    )
    return known


_RECORDED = "recorded-change"


def _take() -> None:
    if chosen := st.session_state.get(_RECORDED):
        st.session_state["changed"] = chosen


def _told(one: Change) -> str:
    values = {"server": one.server, "before": f"{one.before or 0:,.0f}"}
    return say(f"change.{one.kind}", at=moment(one.at_ns), after=f"{one.after or 0:,.0f}", **values)


def _samples(context: Context) -> pd.DataFrame:
    span = context.source.span()
    if span is None:
        return pd.DataFrame()
    end = min(context.loaded.end_ns or span[1] + 1, span[1] + 1)
    start = max(context.loaded.start_ns, span[0], end - LOOKS * LOOK_NS)
    pieces = [
        context.source.samples(changes.METRICS, at, min(at + LOOK_NS, end))
        for at in range(start, end, LOOK_NS)
    ]
    return pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame()


def _changed(context: Context, known: tuple[Change, ...]) -> int | None:
    frame = context.loaded.frame
    middle = known[0].at_ns if known else int(frame["arrived_ns"].median()) if len(frame) else 0
    return _moment("changed", iso(middle) if middle else "", say("comparison.changed_help"))


def _moment(name: str, placeholder: str, help_: str | None = None) -> int | None:
    text = st.text_input(
        say(f"comparison.{name}"),
        key=name,
        bind="query-params",
        placeholder=placeholder,
        help=help_,
    )
    if not text:
        return None
    try:
        return instant(text)
    except ValueError:
        st.warning(say("controls.no_moment", text=plain(text)), icon=":material/error:")
        return None


def _free(context: Context) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Draw the bounds of both windows; their requests, once all four are there."""
    span = context.source.span() or (0, 0)
    third = (span[1] - span[0]) // 4
    given = []
    with st.grid(4, min_column_width=180, gap="small"):
        for number, name in enumerate(BOUNDS):
            hint = iso(span[0] + third * (number + (number > 1)))
            given.append(_moment(name, hint, say("controls.moment_help")))
    bounds = [one for one in given if one is not None]
    if len(bounds) < len(BOUNDS):
        return None
    if not bounds[0] < bounds[1] <= bounds[2] < bounds[3]:
        st.warning(say("comparison.order"), icon=":material/error:")
        return None
    return _within(context, (bounds[0], bounds[1])), _within(context, (bounds[2], bounds[3]))


def _within(context: Context, period: _Span) -> pd.DataFrame:
    scope = context.question.scope
    loaded = context.source.window(None, period)
    part = Scope(*period, models=scope.models, servers=scope.servers)
    return rows(loaded.frame, part.mine(loaded.frame) & measured(loaded.frame))


def _parts(context: Context, changed: int, back: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The requests of all tenants before and after."""
    scope, frame = context.question.scope, context.loaded.frame
    mine = rows(frame, scope.window(frame) & scope.places(frame) & measured(frame))
    arrived = mine["arrived_ns"].to_numpy(dtype=np.int64)
    after = mine[arrived >= changed]
    if not back:
        return mine[arrived < changed], after
    if after.empty:
        return after, after
    return _within(context, (changed - back, int(after["arrived_ns"].max()) - back + 1)), after


def _over_time(
    context: Context, marks: list[int], parts: tuple[pd.DataFrame, pd.DataFrame] | None
) -> None:
    """Draw p50 and p95 of the window over time, with the change and what is compared."""
    scope, frame = context.question.scope, context.loaded.frame
    mine = rows(frame, scope.mine(frame) & measured(frame))
    data = context.loaded.once(lambda: history.percentiles(mine), "history", scope)
    if data.empty:
        return
    with st.container(border=True):
        st.markdown(f"**{say('comparison.history')}**")
        spans = [] if parts is None else [_ends(part) for part in parts if len(part)]
        chart = history.draw(data, marks, spans)
        plot(chart, alt=say("comparison.history"), key="history")


def _ends(part: pd.DataFrame) -> tuple[int, int]:
    return int(part["arrived_ns"].min()), int(part["arrived_ns"].max())


def _said(found: Comparison, before: pd.DataFrame, after: pd.DataFrame) -> None:
    with st.container(border=True):
        outcome = say(f"comparison.{found.outcome.name.lower()}")
        st.markdown(f"## {_ICONS[found.outcome]} {outcome}")
        st.markdown(
            say("comparison.parts", before=_part(before), after=_part(after)),
        )
        for reason in found.reasons:
            st.markdown(f":material/priority_high: {plain(translated(reason))}")
        if found.reasons:
            st.caption(say("comparison.why_not"))
        method("comparison")


def _part(frame: pd.DataFrame) -> str:
    if frame.empty:
        return say("comparison.empty")
    low, high = int(frame["arrived_ns"].min()), int(frame["arrived_ns"].max())
    return say(
        "comparison.part",
        count=f"{len(frame):,}",
        low=plain(moment(low)),
        high=plain(moment(high)),
    )


def _drawn(found: Comparison) -> None:
    data = pd.DataFrame(
        [
            {"level": f"p{100 * one.level:g}", "when": say(f"comparison.{when}"), "seconds": value}
            for one in found.shifts
            for when, value in (("before", one.before), ("after", one.after))
            if np.isfinite(value)
        ]
    )
    names = [say("comparison.before"), say("comparison.after")]
    x = alt.X("seconds:Q", title=say("chart.total_seconds"), scale=alt.Scale(zero=False))
    y = alt.Y("level:N", title=None, sort=[f"p{100 * one.level:g}" for one in found.shifts])
    base = alt.Chart(data)
    dots = base.mark_point(size=150, filled=True, opacity=1).encode(
        x=x,
        y=y,
        color=alt.Color(
            "when:N",
            scale=alt.Scale(domain=names, range=[GREY, ACCENT]),
            legend=alt.Legend(title="", orient="top"),
        ),
        tooltip=[
            alt.Tooltip("level:N", title=say("chart.level")),
            alt.Tooltip("when:N", title=say("chart.when")),
            alt.Tooltip("seconds:Q", title=say("chart.total_seconds"), format=",.3f"),
        ],
    )
    lines = base.mark_line(color=GREY, strokeWidth=2).encode(x=x, y=y, detail=alt.Detail("level:N"))
    plot(alt.layer(lines, dots).properties(height=200), alt=say("comparison.title"), key="shifts")
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "level": f"p{100 * one.level:g}",
                    "before": one.before,
                    "after": one.after,
                    "difference": one.difference,
                    "p": one.p,
                }
                for one in found.shifts
            ]
        ),
        column_config={
            "level": st.column_config.TextColumn(say("chart.level")),
            "before": st.column_config.NumberColumn(
                say("comparison.before"), format="%.3f s", help=say("comparison.before_help")
            ),
            "after": st.column_config.NumberColumn(say("comparison.after"), format="%.3f s"),
            "difference": st.column_config.NumberColumn(
                say("comparison.difference"),
                format="%+.3f s",
                help=say("comparison.difference_help"),
            ),
            "p": st.column_config.NumberColumn(
                say("column.p"), format="%.3f", help=say("comparison.p_help")
            ),
        },
        hide_index=True,
        alt=say("comparison.title"),
    )
