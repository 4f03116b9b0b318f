"""What all sessions of the app share."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import streamlit as st

from tailscope.app import headers
from tailscope.app.palette import TenantColours
from tailscope.app.prometheus import Prometheus
from tailscope.app.roles import Viewer
from tailscope.app.settings import Settings
from tailscope.app.source import Source

_VIEWERS = 16
"""Sources that are kept: one for operators, one for each tenant that looks."""


@st.cache_resource(
    max_entries=_VIEWERS, show_spinner=False, hash_funcs={Viewer: dataclasses.astuple}
)
def source(data: tuple[Path, ...], url: str, header: Path | None, viewer: Viewer) -> Source:
    """The stores as somebody may see them; one reader for all sessions."""
    prometheus = Prometheus(url, headers.read(header)) if url else None
    return Source(data, prometheus=prometheus, viewer=viewer)


def opened(settings: Settings, viewer: Viewer) -> Source:
    """The source that the settings name.

    Raises:
        UsageError: If the file with the headers cannot be read.
    """
    return source(settings.data, settings.prometheus, settings.headers, viewer)


@st.cache_resource(max_entries=_VIEWERS, show_spinner=False)
def colours(data: tuple[Path, ...], tenant: str | None) -> TenantColours:
    """The colours of a store's tenants; one palette for all sessions."""
    del data, tenant  # the key of the cache
    return TenantColours()
