"""Names of requests that can stand in a link."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

_LAST_NS = 2**63 - 1
_KEY = re.compile(r"(\d{15,19})(?:-[0-9a-f]+)?")


def keys(frame: pd.DataFrame) -> pd.Series[str]:
    """One key per request: arrival in nanoseconds, and the span where it is known.

    The arrival makes a request findable without a search through the whole store.
    """
    arrived = frame["arrived_ns"].astype("str")
    return (arrived + "-" + frame["span_id"]).fillna(arrived)


def arrival(key: str) -> int | None:
    """Arrival of the request that a key names, UTC nanoseconds; None if it is no such key."""
    hit = _KEY.fullmatch(key)
    arrived = int(hit[1]) if hit else _LAST_NS
    return arrived if arrived < _LAST_NS else None


def find(frame: pd.DataFrame, text: str) -> int | None:
    """Position of the request with that key, span, trace or request id; the first if several."""
    if (arrived := arrival(text)) is not None:
        candidates = np.flatnonzero(frame["arrived_ns"].to_numpy(dtype=np.int64) == arrived)
        hits = keys(frame.iloc[candidates]).eq(text).to_numpy(dtype=np.bool_)
        if hits.any():
            return int(candidates[hits][0])
    for name in ("span_id", "trace_id", "request_id"):
        hits = frame[name].eq(text).fillna(False).to_numpy(dtype=np.bool_)
        if hits.any():
            return int(hits.argmax())
    return None
