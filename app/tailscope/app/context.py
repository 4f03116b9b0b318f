"""What a page is drawn from, and how it links to the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from tailscope.app.controls import Choice
from tailscope.app.palette import OTHERS, TenantColours
from tailscope.app.settings import Settings
from tailscope.app.source import Loaded, Question, Source
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.finding import Finding, Sight

REQUEST = "request"
"""Name of the request in the address of a page."""

IDENTITIES = ("trace_id", "span_id", "request_id")
"""Other names for it, as other tools may have them in their links."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a page is drawn from.

    Attributes:
        settings: Settings of the app.
        source: The stores.
        loaded: Requests of the window.
        choice: What the user looks at.
        colours: Colours of the tenants.
        pages: The pages by the key of their texts.
    """

    settings: Settings
    source: Source
    loaded: Loaded
    choice: Choice
    colours: TenantColours
    pages: Mapping[str, StreamlitPage]

    @property
    def question(self) -> Question:
        """What is asked of the window."""
        return self.choice.question(self.loaded)

    @property
    def diagnosis(self) -> Diagnosis:
        """The answer; read its parts under ``loaded.lock``."""
        return self.loaded.diagnosis(self.question)

    @property
    def last(self) -> Context | None:
        """The same as it was read before, where a replay was made of that; None without one."""
        span = self.choice.span
        loaded = self.source.last(span.seconds, span.period)
        if loaded is None or not loaded.replayed(self.choice.question(loaded)):
            return None
        return replace(self, loaded=loaded)

    @property
    def sight(self) -> Sight:
        """What shows at first sight."""
        return self.loaded.sight(self.question)

    @property
    def finding(self) -> Finding:
        """The first part of the answer; of slow requests, those that the viewer may open."""
        found = self.loaded.finding(self.question)
        listed = tuple(one for one in found.slow.slowest if one.tenant != OTHERS)
        if len(listed) == len(found.slow.slowest):
            return found
        return dataclasses.replace(found, slow=dataclasses.replace(found.slow, slowest=listed))

    def link(self, page: str, label: str, icon: str, **changes: str) -> None:
        """Draw a link to a page, with what is looked at now and some of it changed."""
        address = {name: st.query_params.get_all(name) for name in st.query_params}
        st.page_link(
            self.pages[page],
            label=label,
            icon=icon,
            query_params={**address, **{name: [value] for name, value in changes.items()}},
        )
