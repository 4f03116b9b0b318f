"""The controls beside every page. Their state is in the address of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from tailscope.app.source import Loaded
from tailscope.triage.scope import Scope
from tailscope.triage.slow import SlowRule

WINDOWS: dict[str, float | None] = {
    "5m": 300.0,
    "15m": 900.0,
    "1h": 3600.0,
    "6h": 21600.0,
    "all": None,
}
DEFAULT_WINDOW = "15m"

SLOW = ("p90", "p95", "p99", "1s", "2s", "5s", "10s", "30s")
DEFAULT_SLOW = "p95"

_FILTERS = {
    "tenant": ("Tenant", "Whose requests are judged. The load of all tenants counts in any case."),
    "model": ("Model", "Served model."),
    "server": ("Server", "Engine instance, host:port."),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user looks at."""

    seconds: float | None
    live: bool
    slow: SlowRule
    tenants: tuple[str, ...]
    models: tuple[str, ...]
    servers: tuple[str, ...]

    def scope(self, loaded: Loaded) -> Scope:
        """As a question to the triage."""
        return Scope(
            start_ns=loaded.start_ns or None,
            tenants=self.tenants,
            models=self.models,
            servers=self.servers,
            slow=self.slow,
        )


def window() -> float | None:
    """Draw the choice of the time window; return its seconds, None for all."""
    chosen = st.selectbox(
        "Time window",
        list(WINDOWS),
        index=list(WINDOWS).index(DEFAULT_WINDOW),
        key="window",
        bind="query-params",
        help="Requests that arrived in the last so much time, or all that the store holds.",
    )
    return WINDOWS[chosen or DEFAULT_WINDOW]


def choice(seconds: float | None, names: Mapping[str, Sequence[str]]) -> Choice:
    """Draw the other controls.

    Args:
        seconds: The chosen time window.
        names: What each filter offers.
    """
    slow = st.selectbox(
        "Slow is",
        SLOW,
        index=SLOW.index(DEFAULT_SLOW),
        key="slow",
        bind="query-params",
        help="By a percentile: longer above what it would take alone than this part of the "
        "requests, and by 0.3 s at least. By seconds: this total time or more.",
    )
    tenants, models, servers = (_filter(name, names[name]) for name in _FILTERS)
    live = st.toggle(
        "Refresh by itself",
        value=True,
        key="live",
        bind="query-params",
        help="Every 5 s or slower.",
    )
    return Choice(
        seconds,
        live,
        SlowRule.parse(slow or DEFAULT_SLOW),
        tuple(tenants),
        tuple(models),
        tuple(servers),
    )


def _filter(name: str, values: Sequence[str]) -> list[str]:
    label, text = _FILTERS[name]
    # What the address asks for stays on offer, though the window may not hold it now.
    asked = [value for value in st.query_params.get_all(name) if value not in values]
    chosen: list[str] = st.multiselect(
        label,
        [*values, *asked],
        key=name,
        bind="query-params",
        placeholder="all",
        help=text,
    )
    return chosen
