"""A choice among named options that the address of the page holds by name, in every language.

Streamlit's own binding puts what is shown into the address; a link would then only work in the
language that it was made in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import streamlit as st

_SEEN, _HELD = "seen-in-address", "held-choices"


def select(
    key: str,
    label: str,
    options: Sequence[str],
    default: str,
    shown: Callable[[str], str],
    *,
    tip: str | None = None,
    width: int | Literal["stretch"] = "stretch",
) -> str:
    """Draw the choice and return the name of the chosen option.

    Args:
        key: Name of the choice in the address.
        label: Its label.
        options: Names of the options.
        default: The one that the address leaves out.
        shown: What is shown for a name.
        tip: Help.
        width: Width of the widget.
    """
    seen = st.session_state.setdefault(_SEEN, {})
    held = st.session_state.setdefault(_HELD, {})
    asked = st.query_params.get(key)
    value = st.session_state.get(key, held.get(key))
    # An address without it leaves the choice as it is: the navigation drops what it does not know.
    if asked in options and asked != seen.get(key):
        value = asked
    # Set in every run: on another page it is another widget, which would begin with the first.
    st.session_state[key] = value if value in options else default
    chosen: str = st.selectbox(
        label,
        list(options),
        format_func=shown,
        key=key,
        help=tip,
        width=width,
    )
    written = None if chosen == default else chosen
    if st.query_params.get(key) != written:
        if written is None:
            st.query_params.pop(key, None)
        else:
            st.query_params[key] = written
    seen[key], held[key] = written, chosen
    return chosen
