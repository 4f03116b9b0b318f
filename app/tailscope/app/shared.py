"""What all sessions of the app share."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from tailscope.app.palette import TenantColours
from tailscope.app.source import Source


@st.cache_resource(max_entries=4, show_spinner=False)
def source(directory: str) -> Source:
    """The store; one reader for all sessions."""
    return Source(Path(directory))


@st.cache_resource(max_entries=4, show_spinner=False)
def colours(directory: str) -> TenantColours:
    """The colours of a store's tenants; one palette for all sessions."""
    del directory  # the key of the cache
    return TenantColours()
