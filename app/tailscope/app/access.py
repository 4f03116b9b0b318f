"""Who looks, and what is taken out of what that one sees.

Streamlit's own login (OpenID Connect) says who somebody is; ``roles`` says what that one may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.errors import StreamlitAuthError

from tailscope.app.export import FEWEST
from tailscope.app.palette import OTHERS
from tailscope.app.roles import EMAIL, OPERATOR, Roles, Viewer
from tailscope.app.text import plain, say

_IDS = ("span_id", "trace_id", "request_id", "session", "adapter")
"""What would tell one client of another tenant from the next."""

_ENGINE = ("server", "model")
"""What an engine is known by."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who is logged in.

    Attributes:
        name: What the page calls somebody.
        values: What the login says of the claim that counts.
    """

    name: str
    values: tuple[str, ...]


def login(claims: Mapping[str, Any], claim: str = EMAIL) -> Login | None:
    """Read what the provider says of somebody; None if nobody is logged in, or not for certain.

    Args:
        claims: The claims of the login, as ``st.user`` has them.
        claim: The one that counts. An e-mail address that the provider calls unverified does not.
    """
    if not claims.get("is_logged_in"):
        return None
    email = str(claims.get("email") or "")
    given = claims.get(claim) or ()
    if claim == EMAIL and claims.get("email_verified") in (False, "false"):
        given = ()
    values = tuple(map(str, given)) if isinstance(given, list | tuple) else (str(given),)
    return Login(email or str(claims.get("name") or claims.get("sub") or ""), values)


def signed_in(claim: str) -> Login | None:
    """Who is logged in here."""
    return login(st.user.to_dict(), claim)


def viewer(roles: Path | None) -> Viewer | None:
    """Who looks, by the file as it is now; None if that one may see nothing.

    Raises:
        UsageError: If the file cannot be read.
    """
    return OPERATOR if roles is None else _seen(roles)[1]


def _seen(roles: Path) -> tuple[Login | None, Viewer | None]:
    known = Roles.read(roles)
    found = signed_in(known.claim)
    return found, None if found is None else known.viewer(found.values)


def admitted(roles: Path | None) -> Viewer | None:
    """Who looks; None where the page says why nobody may.

    Args:
        roles: The file; everybody is an operator without one.

    Raises:
        UsageError: If the file cannot be read.
    """
    if roles is None:
        return OPERATOR
    found, seen = _seen(roles)
    if found is None:
        st.header(say("access.title"), icon=":material/lock:")
        st.markdown(say("access.please"))
        if st.button(say("access.login"), type="primary", icon=":material/login:"):
            _login()
        return None
    if seen is None:
        st.error(say("access.refused", who=plain(found.name)), icon=":material/block:")
    with st.sidebar:
        st.caption(say("access.who", who=plain(found.name)))
        st.button(say("access.logout"), on_click=st.logout, type="tertiary")
    return seen


def _login() -> None:
    try:
        st.login()
    except StreamlitAuthError as error:
        st.error(say("access.unset", why=plain(str(error))), icon=":material/error:")


def masked(frame: pd.DataFrame, viewer: Viewer, since_ns: int = 0) -> pd.DataFrame:
    """The requests as somebody may see them.

    Of other tenants without names and ids, and only those on the engines that the viewer's own
    requests ran on: no other could have slowed them, and a server or a model may name its owner.

    Args:
        frame: Requests.
        viewer: Who looks.
        since_ns: Beginning of the window; what arrived before it makes no tenant well known.
    """
    if (viewer.tenant is None and not viewer.sharing) or frame.empty:
        return frame
    own = np.ones(len(frame), dtype=bool)
    if viewer.tenant is not None:
        own = frame["tenant"].eq(viewer.tenant).fillna(False).to_numpy(dtype=bool)
        engine = pd.MultiIndex.from_frame(frame[list(_ENGINE)].astype("object").fillna(""))
        near = own | engine.isin(engine[own])
        frame, own = frame[near].reset_index(drop=True), own[near]
    if viewer.sharing:
        counts = frame["tenant"].where(frame["arrived_ns"] >= since_ns).value_counts()
        known = frame["tenant"].isin(counts.index[counts >= FEWEST]) | frame["tenant"].isna()
        own = own & known.to_numpy(dtype=bool)
    hidden = {name: frame[name].where(own) for name in _IDS if name in frame}
    return frame.assign(tenant=frame["tenant"].astype("str").where(own, OTHERS), **hidden)


def single(frame: pd.DataFrame) -> Any:
    """Which requests may be looked at one by one: not those of the others of a tenant."""
    return frame["tenant"].ne(OTHERS).fillna(True).to_numpy(dtype=bool)
