"""Before and after one change: better, worse, or not to be compared, and why."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

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

AGAINST = {"window": 0, "day": 86_400 * 10**9, "week": 7 * 86_400 * 10**9}
"""What the requests after the change are compared with: nanoseconds earlier; 0 for the window."""

_ICONS = {
    Outcome.BETTER: ":material/trending_down:",
    Outcome.WORSE: ":material/trending_up:",
    Outcome.SAME: ":material/trending_flat:",
    Outcome.INCOMPARABLE: ":material/block:",
}


def draw(context: Context) -> None:
    """Draw the page."""
    changed = _changed(context)
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
    if changed is None:
        st.info(say("comparison.when"), icon=":material/info:")
        return
    before, after = _parts(context, changed, AGAINST[against])
    found = compare(before, after, force=force)
    _said(found, before, after)
    if found.shifts:
        _drawn(found)


def _changed(context: Context) -> int | None:
    frame = context.loaded.frame
    middle = iso(int(frame["arrived_ns"].median())) if len(frame) else ""
    text = st.text_input(
        say("comparison.changed"),
        key="changed",
        bind="query-params",
        placeholder=middle,
        help=say("comparison.changed_help"),
    )
    if not text:
        return None
    try:
        return instant(text)
    except ValueError:
        st.warning(say("controls.no_moment", text=plain(text)), icon=":material/error:")
        return None


def _parts(context: Context, changed: int, back: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The requests before and after."""
    scope, frame = context.question.scope, context.loaded.frame
    mine = rows(frame, scope.mine(frame) & measured(frame))
    arrived = mine["arrived_ns"].to_numpy(dtype=np.int64)
    after = mine[arrived >= changed]
    if not back:
        return mine[arrived < changed], after
    if after.empty:
        return after, after
    period = changed - back, int(after["arrived_ns"].max()) - back + 1
    loaded = context.source.window(None, period)
    earlier = Scope(
        period[0], period[1], scope.tenants, scope.models, scope.servers, slow=scope.slow
    )
    return rows(loaded.frame, earlier.mine(loaded.frame) & measured(loaded.frame)), after


def _said(found: Comparison, before: pd.DataFrame, after: pd.DataFrame) -> None:
    with st.container(border=True):
        outcome = say(f"comparison.{found.outcome.name.lower()}")
        st.markdown(f"### {_ICONS[found.outcome]} {outcome}")
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
            legend=alt.Legend(title=None, orient="top"),
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
