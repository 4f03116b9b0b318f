"""The controls beside every page. Their state is in the address of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from tailscope.app import text
from tailscope.app.box import Box
from tailscope.app.export import FEWEST
from tailscope.app.selection import select
from tailscope.app.source import Loaded, Question
from tailscope.app.text import plain, say
from tailscope.app.timespan import instant
from tailscope.triage.scope import Scope
from tailscope.triage.slow import SlowRule

WINDOWS: dict[str, float | None] = {
    "5m": 300.0,
    "15m": 900.0,
    "1h": 3600.0,
    "6h": 21600.0,
    "24h": 86400.0,
    "all": None,
    "between": None,
}
DEFAULT_WINDOW = "15m"
BETWEEN = "between"
PERIOD = ("from", "to")
"""What bounds it, in the address."""

SLOW = ("p90", "p95", "p99", "1s", "2s", "5s", "10s", "30s")
DEFAULT_SLOW = "p95"

FILTERS = ("tenant", "model", "server")


@dataclass(frozen=True, slots=True)
class Span:
    """The time that is looked at.

    Attributes:
        seconds: How far back from now; None for all, or for a period.
        period: Bounds of the arrival, UTC nanoseconds; None without them.
    """

    seconds: float | None = None
    period: tuple[int | None, int | None] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user looks at."""

    span: Span
    live: bool
    slow: SlowRule
    tenants: tuple[str, ...]
    models: tuple[str, ...]
    servers: tuple[str, ...]
    offline: tuple[str, ...] = ()
    objective: float | None = None
    box: Box | None = None

    def scope(self, loaded: Loaded) -> Scope:
        """As a question to the triage."""
        return Scope(
            start_ns=loaded.start_ns or None,
            end_ns=loaded.end_ns,
            tenants=self.tenants,
            models=self.models,
            servers=self.servers,
            slow=self.slow,
        )

    def question(self, loaded: Loaded) -> Question:
        """With what is known beside the records."""
        return Question(self.scope(loaded), frozenset(self.offline), self.objective)


def language() -> None:
    """Draw the choice of the language."""
    select(
        text.PARAMETER,
        say("controls.language"),
        list(text.LANGUAGES),
        text.preferred(),
        text.LANGUAGES.__getitem__,
    )


def sharing() -> bool:
    """Draw the switch that keeps tenants with few requests without a name."""
    return st.toggle(
        say("export.share"),
        key="share",
        bind="query-params",
        help=say("export.share_help", fewest=FEWEST),
    )


def window() -> Span:
    """Draw the choice of the time window."""
    if "window" not in st.query_params and any(name in st.query_params for name in PERIOD):
        st.query_params["window"] = BETWEEN  # a link that names times means these
    chosen = select(
        "window",
        say("controls.window"),
        list(WINDOWS),
        DEFAULT_WINDOW,
        lambda name: say(f"window.{name}"),
        tip=say("controls.window_help"),
    )
    if chosen == BETWEEN:
        begin, end = map(_moment, PERIOD)
        return Span(period=(begin, end))
    for name in PERIOD:
        st.query_params.pop(name, None)
    return Span(WINDOWS[chosen])


def _moment(name: str) -> int | None:
    written = st.text_input(
        say(f"controls.{name}"),
        key=name,
        bind="query-params",
        placeholder="2026-11-30T02:10:00Z",
        help=say("controls.moment_help"),
    )
    if not written:
        return None
    try:
        return instant(written)
    except ValueError:
        st.warning(say("controls.no_moment", text=plain(written)), icon=":material/error:")
        return None


def choice(span: Span, names: Mapping[str, Sequence[str]]) -> Choice:
    """Draw the other controls.

    Args:
        span: The chosen time window.
        names: What each filter offers.
    """
    slow = st.selectbox(
        say("controls.slow"),
        SLOW,
        index=SLOW.index(DEFAULT_SLOW),
        key="slow",
        bind="query-params",
        help=say("controls.slow_help"),
    )
    tenants, models, servers = (_filter(name, names[name]) for name in FILTERS)
    with st.expander(say("controls.more"), icon=":material/tune:"):
        objective = st.number_input(
            say("controls.objective"),
            min_value=0.05,
            value=None,
            step=0.5,
            key="slo",
            bind="query-params",
            placeholder=say("controls.none"),
            help=say("controls.objective_help"),
        )
        offline = _filter("offline", names["tenant"])
        box = _box()
    live = st.toggle(
        say("controls.live"),
        value=True,
        key="live",
        bind="query-params",
        help=say("controls.live_help"),
    )
    return Choice(
        span,
        live and span.period is None,
        SlowRule.parse(slow or DEFAULT_SLOW),
        tuple(tenants),
        tuple(models),
        tuple(servers),
        tuple(offline),
        objective,
        box,
    )


def _filter(key: str, values: Sequence[str]) -> list[str]:
    # What the address asks for stays on offer, though the window may not hold it now.
    asked = [value for value in st.query_params.get_all(key) if value not in values]
    chosen: list[str] = st.multiselect(
        say(f"controls.{key}"),
        [*values, *asked],
        key=key,
        bind="query-params",
        placeholder=say("controls.none" if key == "offline" else "controls.all"),
        help=say(f"controls.{key}_help"),
    )
    return chosen


def _box() -> Box | None:
    written = st.text_input(
        say("controls.box"),
        key=Box.PARAMETER,
        bind="query-params",
        placeholder=say("controls.none"),
        help=say("controls.box_help"),
    )
    if not written:
        return None
    try:
        return Box.parse(written)
    except ValueError:
        st.warning(say("controls.no_box", text=plain(written)), icon=":material/error:")
        return None
