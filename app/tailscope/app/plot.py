"""Puts a chart on a page without checking it against the schema of Vega-Lite again.

The check takes longer than all else that a page does with a chart. The tests make it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import altair
import streamlit as st
from altair.utils import schemapi

from tailscope.app.charts import Drawing

schemapi.disable_debug_mode()  # nor is each part of a chart checked as it is made

CHECKED = False
"""Whether charts are checked; set by tests."""


_PADDING = {"left": 0, "top": 4, "right": 0, "bottom": 4}
_AXIS = {"titlePadding": 8, "labelPadding": 6}
_LEGEND = {"padding": 0, "offset": 10}
"""Streamlit's own look leaves a third of a small chart empty."""


class Spec:
    """A chart as Streamlit reads it, checked only if ``CHECKED``.

    Args:
        drawn: The chart.
    """

    def __init__(self, drawn: altair.Chart | Drawing) -> None:
        self._drawn = drawn

    def to_dict(self) -> dict[str, Any]:
        """Its specification."""
        found: dict[str, Any] = self._drawn.to_dict(validate=CHECKED)
        config = found.get("config", {})
        look = {"axis": {**_AXIS, **config.get("axis", {})}, "legend": _LEGEND}
        return {"padding": _PADDING, **found, "config": {**config, **look}}


def plot(
    drawn: altair.Chart | Drawing,
    *,
    alt: str,
    key: str,
    on_select: Literal["ignore", "rerun"] | Callable[[], None] = "ignore",
) -> Any:
    """Put a chart on the page.

    Args:
        drawn: The chart.
        alt: What it shows, for screen readers.
        key: Its name on the page.
        on_select: Called when something in it was selected; "rerun" runs the page again.

    Returns:
        What is selected in it, if it can be.
    """
    return st.altair_chart(cast("altair.Chart", Spec(drawn)), alt=alt, key=key, on_select=on_select)
