"""Puts a chart on a page without checking it against the schema of Vega-Lite again.

The check takes longer than all else that a page does with a chart, and says nothing that the tests,
which make it for every chart, have not said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import altair
import streamlit as st

from tailscope.app.charts import Drawing


class Unchecked:
    """A chart as Streamlit reads it.

    Args:
        drawn: The chart.
    """

    def __init__(self, drawn: altair.Chart | Drawing) -> None:
        self._drawn = drawn

    def to_dict(self) -> dict[str, Any]:
        """Its specification, unchecked."""
        found: dict[str, Any] = self._drawn.to_dict(validate=False)
        return found


def plot(
    drawn: altair.Chart | Drawing,
    *,
    alt: str,
    key: str,
    on_select: Literal["ignore"] | Callable[[], None] = "ignore",
) -> None:
    """Put a chart on the page.

    Args:
        drawn: The chart.
        alt: What it shows, for screen readers.
        key: Its name on the page.
        on_select: Called when something in it was selected.
    """
    st.altair_chart(cast("altair.Chart", Unchecked(drawn)), alt=alt, key=key, on_select=on_select)
