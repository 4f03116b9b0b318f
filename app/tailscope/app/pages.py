"""The pages, and what they have in common: controls beside them, a body that refreshes itself."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from tailscope.app import controls, empty, shared
from tailscope.app.access import admitted
from tailscope.app.access import viewer as allowed
from tailscope.app.context import Context
from tailscope.app.controls import Choice
from tailscope.app.prometheus import Prometheus
from tailscope.app.questions import bounds, names
from tailscope.app.roles import Viewer
from tailscope.app.settings import Settings
from tailscope.app.source import Loaded, Source
from tailscope.app.text import plain, say, translated
from tailscope.app.views import (
    capacity,
    comparison,
    fixes,
    health,
    offline,
    outline,
    overview,
    request,
    slow,
    tenants,
)
from tailscope.errors import UsageError
from tailscope.records.reader import ReaderError

MIN_REFRESH = 5.0
_LOG = logging.getLogger(__name__)

_FIRST = "start"
"""Address that Streamlit keeps free for the first page, which is at the root."""

_LOGO = Path(__file__).parent / "logo.svg"


@dataclass(frozen=True, slots=True)
class Entry:
    """One page.

    Attributes:
        draw: Draws it.
        section: Where it stands in the navigation.
        icon: Its icon.
        live: Whether it refreshes itself; a page that is dear to compute, or written in, does not.
        bare: Whether it has something to say without any request.
    """

    draw: Callable[[Context], None]
    section: str
    icon: str
    live: bool = False
    bare: bool = False


PAGES: Mapping[str, Entry] = {
    "overview": Entry(overview.draw, "look", ":material/query_stats:", live=True),
    "slow": Entry(slow.draw, "look", ":material/hourglass_top:", live=True),
    "request": Entry(request.draw, "look", ":material/view_timeline:"),
    "tenants": Entry(tenants.draw, "explain", ":material/group:", live=True),
    "comparison": Entry(comparison.draw, "explain", ":material/compare_arrows:"),
    "fixes": Entry(fixes.draw, "act", ":material/build:"),
    "capacity": Entry(capacity.draw, "act", ":material/trending_up:"),
    "offline": Entry(offline.draw, "act", ":material/bedtime:"),
    "health": Entry(health.draw, "trust", ":material/fact_check:", live=True, bare=True),
}
"""The pages by the key of their texts, which is their address, too."""

Pages = Mapping[str, StreamlitPage]


def show(first: str = "overview") -> None:
    """Draw the page that the address names.

    Args:
        first: The page that an address without one names.
    """
    settings = Settings.read()
    st.set_page_config("Tailscope", page_icon=str(_LOGO), layout="wide")
    st.logo(str(_LOGO), size="large")
    pages: dict[str, StreamlitPage] = {}
    sections: dict[str, list[StreamlitPage]] = {}
    for key, entry in PAGES.items():
        page = pages[key] = st.Page(
            _opening(settings, key, pages),
            title=say(f"{key}.title"),
            url_path=_FIRST if key == first else key,
            icon=entry.icon,
            help=say(f"{key}.help"),
            default=key == first,
        )
        sections.setdefault(say(f"section.{entry.section}"), []).append(page)
        if key == first:
            # The first page has no address of its own; links may name it all the same.
            named = _opening(settings, key, pages)
            sections[say(f"section.{entry.section}")].append(
                st.Page(named, title=say(f"{key}.title"), url_path=key, visibility="hidden")
            )
    chosen = st.navigation(sections, expanded=True)
    with st.sidebar:
        controls.language()
    chosen.run()


def _opening(settings: Settings, key: str, pages: Pages) -> Callable[[], None]:
    return lambda: _page(settings, key, pages)


def _page(settings: Settings, key: str, pages: Pages) -> None:
    st.title(say(f"{key}.title"), anchor=False, help=say(f"{key}.help"))
    if settings.notice:
        st.info(plain(settings.notice), icon=":material/info:")
    viewer: Viewer | None = None
    try:
        viewer = admitted(settings.roles)
        if viewer is not None:
            _admitted(settings, key, pages, viewer)
    except (ReaderError, UsageError) as error:
        _failed(error, viewer)


def _failed(error: Exception, viewer: Viewer | None) -> None:
    """Say what went wrong: to operators all of it, as paths are nobody else's business."""
    if viewer is not None and viewer.operator:
        st.error(plain(str(error)), icon=":material/error:")
        return
    _LOG.error("%s", error)
    st.error(say("access.trouble"), icon=":material/error:")


def _admitted(settings: Settings, key: str, pages: Pages, viewer: Viewer) -> None:
    entry = PAGES[key]
    with st.sidebar:
        sharing = controls.sharing()
    source = shared.opened(settings, dataclasses.replace(viewer, sharing=sharing))
    colours = shared.colours(settings.data, viewer.tenant)
    with st.sidebar:
        span = controls.window()
    loaded = source.window(span.seconds, span.period)
    alone = source.prometheus if loaded.frame.empty and source.span() is None else None
    with st.sidebar:
        choice = controls.choice(span, _names(source, loaded, alone))
        if viewer.tenant is not None:
            st.caption(say("access.masked", tenant=plain(viewer.tenant or "")))
    offered = loaded.names

    def refreshed() -> None:
        if allowed(settings.roles) != viewer:
            st.rerun()  # logged out elsewhere, or the file of roles has changed
        try:
            fresh = source.window(span.seconds, span.period)
            if fresh.names != offered:
                st.rerun()  # the filters offer what is there
            colours.learn(fresh.names["tenant"])
            _body(Context(settings, source, fresh, choice, colours, pages), entry, key)
        except ReaderError as error:
            _failed(error, viewer)

    every = max(MIN_REFRESH, loaded.pause)
    st.fragment(refreshed, run_every=every if choice.live and entry.live else None)()


def _names(source: Source, loaded: Loaded, alone: Prometheus | None) -> Mapping[str, Sequence[str]]:
    """What the filters offer: names from the records, or from series where these stand alone."""
    if alone is None:
        return loaded.names
    start, end = bounds(loaded.start_ns or None, loaded.end_ns, time.time_ns())
    return loaded.once(lambda: names(alone, start, end, source.viewer), "names")


def _body(context: Context, entry: Entry, key: str) -> None:
    source, loaded = context.source, context.loaded
    if loaded.frame.empty and source.span() is None:
        if source.prometheus is not None and not entry.bare:
            outline.draw(context, key, source.prometheus)
            return
        if source.viewer.operator:
            empty.no_records(source.directories, source.exists())
        else:
            st.header(say("empty.title"), icon=":material/hourglass_empty:")
        _troubles(source)
        if entry.bare:
            entry.draw(context)
        return
    _troubles(source)
    if not entry.bare and not _any(loaded, context.choice):
        inside = bool(context.choice.scope(loaded).window(loaded.frame).any())
        empty.no_match(inside, source.span())
        return
    entry.draw(context)


def _any(loaded: Loaded, choice: Choice) -> bool:
    scope = choice.scope(loaded)
    return loaded.once(lambda: bool(scope.mine(loaded.frame).any()), "any", scope)


def _troubles(source: Source) -> None:
    """Say so where Prometheus does not answer."""
    if source.prometheus is not None and (why := source.prometheus.trouble):
        said = say("health.prometheus_silent")
        if source.viewer.operator:
            url = plain(source.prometheus.url)
            said = say("health.prometheus_fails", url=url, why=plain(translated(why)))
        st.warning(said, icon=":material/cloud_off:")
