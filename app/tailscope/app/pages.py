"""The pages, and what they have in common: controls beside them, a body that refreshes itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from tailscope.app import controls, empty, shared
from tailscope.app.controls import Choice
from tailscope.app.palette import TenantColours
from tailscope.app.settings import Settings
from tailscope.app.source import Loaded, Source
from tailscope.app.text import plain
from tailscope.app.views import overview, request
from tailscope.records.reader import ReaderError

Body = Callable[[Source, Loaded, Choice, TenantColours], None]

MIN_REFRESH = 5.0

_LOGO = Path(__file__).parent / "logo.svg"


def show() -> None:
    """Draw the page that the address names."""
    settings = Settings.read()
    st.set_page_config("Tailscope", page_icon=str(_LOGO), layout="wide")
    st.logo(str(_LOGO), size="large")
    one = st.Page(
        lambda: _page(settings, lambda *given: request.draw(given[0], given[1], given[3])),
        title="One request",
        url_path="request",
        icon=":material/view_timeline:",
        help="The stages of one request, and what ran beside it.",
    )

    def link(key: str) -> None:
        st.page_link(
            one,
            label="Open this request on its own page",
            icon=":material/open_in_new:",
            query_params={request.PARAMETER: key},
        )

    first = st.Page(
        lambda: _page(settings, lambda *given: overview.draw(*given, link=link)),
        title="Overview",
        url_path="overview",
        icon=":material/query_stats:",
        help="Why the slowest requests are slow, and whose load was beside them.",
        default=True,
    )
    st.navigation([first, one]).run()


def _page(settings: Settings, body: Body) -> None:
    if settings.notice:
        st.info(plain(settings.notice), icon=":material/info:")
    source = shared.source(str(settings.data))
    colours = shared.colours(str(settings.data))
    try:
        with st.sidebar:
            seconds = controls.window()
        loaded = source.window(seconds)
        with st.sidebar:
            choice = controls.choice(seconds, loaded.names)
    except ReaderError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    offered = loaded.names

    def refreshed() -> None:
        try:
            fresh = source.window(seconds)
            if fresh.names != offered:
                st.rerun()  # the filters offer what is there
            colours.learn(fresh.names["tenant"])
            _body(source, fresh, choice, colours, body)
        except ReaderError as error:
            st.error(plain(str(error)), icon=":material/error:")

    every = max(MIN_REFRESH, loaded.pause)
    st.fragment(refreshed, run_every=every if choice.live else None)()


def _body(
    source: Source, loaded: Loaded, choice: Choice, colours: TenantColours, body: Body
) -> None:
    if loaded.frame.empty and source.span() is None:
        empty.no_records(source.directory, source.exists())
    else:
        body(source, loaded, choice, colours)
