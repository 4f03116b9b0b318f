"""Numbers to take along: CSV and JSON, without the names of tenants with few requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from tailscope.app.text import say
from tailscope.triage.stages import Flags

FEWEST = 5
"""A tenant with fewer requests is not named: its numbers would be those of single requests."""

_FORMULA = tuple("=+-@\t\r")

HIDDEN = "hidden"
"""Stands for the name of a tenant that is not named."""


def anonymous(table: pd.DataFrame, requests: Sequence[int] | pd.Series[int]) -> pd.DataFrame:
    """The rows that may leave the app.

    Args:
        table: Aggregates.
        requests: How many requests are behind each row.
    """
    return table[pd.Series(list(requests), index=table.index) >= FEWEST]


def nameless(value: Any, names: frozenset[str]) -> Any:
    """Plain data with some names replaced, wherever they stand: as a value, a key or in a text."""
    if isinstance(value, Mapping):
        return {nameless(key, names): nameless(one, names) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [nameless(one, names) for one in value]
    if isinstance(value, str):
        for name in sorted(names, key=len, reverse=True):
            value = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", HIDDEN, value)
    return value


def rare(tenants: pd.Series[str], counted: Flags) -> frozenset[str]:
    """Names of those with too few requests to be named.

    Args:
        tenants: Tenant of every request that was looked at.
        counted: Which of them lie in the window.
    """
    requests = tenants[counted].value_counts()
    return frozenset(str(name) for name in tenants.unique() if requests.get(name, 0) < FEWEST)


def harmless(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: names come from clients."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def download(name: str, table: pd.DataFrame, requests: Sequence[int] | pd.Series[int]) -> None:
    """Draw a button that saves a table as CSV."""
    kept = anonymous(table, requests)
    st.download_button(
        say("export.csv"),
        kept.map(harmless).to_csv(index=False).encode(),
        file_name=f"tailscope-{name}.csv",
        mime="text/csv",
        type="tertiary",
        icon=":material/download:",
        key=f"csv-{name}",
        on_click="ignore",
        help=say("export.help", fewest=FEWEST),
    )


def download_json(name: str, shape: Mapping[str, Any], names: frozenset[str]) -> None:
    """Draw a button that saves plain data as JSON."""
    st.download_button(
        say("export.json"),
        json.dumps(nameless(shape, names), ensure_ascii=False, indent=1).encode(),
        file_name=f"tailscope-{name}.json",
        mime="application/json",
        type="tertiary",
        icon=":material/download:",
        key=f"json-{name}",
        on_click="ignore",
        help=say("export.help", fewest=FEWEST),
    )
