"""Who looks, and what is taken out of what that one sees.

Streamlit's own login (OpenID Connect) says who somebody is; ``roles`` says what that one may see.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.errors import StreamlitAuthError

from tailscope.app.export import FEWEST
from tailscope.app.palette import OTHERS
from tailscope.app.roles import OPERATOR, Roles, Viewer
from tailscope.app.text import plain, say

_IDS = ("span_id", "trace_id", "request_id", "session", "adapter")
"""What would tell one client of another tenant from the next."""


def signed_in() -> str | None:
    """E-mail address of whoever is logged in, if the provider has verified it; else None."""
    if not st.user.get("is_logged_in") or st.user.get("email_verified") is False:
        return None
    return str(st.user.get("email") or "") or None


def admitted(roles: Path | None, identity: Callable[[], str | None] = signed_in) -> Viewer | None:
    """Who looks; None where the page says why nobody may.

    Args:
        roles: The file; everybody is an operator without one.
        identity: Address of whoever is logged in.

    Raises:
        UsageError: If the file cannot be read.
    """
    if roles is None:
        return OPERATOR
    known, email = Roles.read(roles), identity()
    if email is None:
        st.header(say("access.title"), icon=":material/lock:")
        st.markdown(say("access.please"))
        if st.button(say("access.login"), type="primary", icon=":material/login:"):
            _login()
        return None
    viewer = known.viewer(email)
    if viewer is None:
        st.error(say("access.refused", email=plain(email)), icon=":material/block:")
    with st.sidebar:
        st.caption(say("access.who", email=plain(email)))
        st.button(say("access.logout"), on_click=st.logout, type="tertiary")
    return viewer


def _login() -> None:
    try:
        st.login()
    except StreamlitAuthError as error:
        st.error(say("access.unset", why=plain(str(error))), icon=":material/error:")


def masked(frame: pd.DataFrame, viewer: Viewer, since_ns: int = 0) -> pd.DataFrame:
    """The requests as somebody may see them: of other tenants without names and ids.

    Args:
        frame: Requests.
        viewer: Who looks.
        since_ns: Beginning of the window; what arrived before it makes no tenant well known.
    """
    if (viewer.tenant is None and not viewer.sharing) or frame.empty:
        return frame
    own = pd.Series(data=True, index=frame.index)
    if viewer.tenant is not None:
        own = frame["tenant"].eq(viewer.tenant).fillna(False).astype(bool)
    if viewer.sharing:
        counts = frame["tenant"].where(frame["arrived_ns"] >= since_ns).value_counts()
        named = frame["tenant"].isin(counts.index[counts >= FEWEST]) | frame["tenant"].isna()
        own &= named
    hidden = {name: frame[name].where(own) for name in _IDS if name in frame}
    return frame.assign(tenant=frame["tenant"].where(own, OTHERS), **hidden)
