"""Offline work: judged by its own distribution, and by what it costs those who wait.

A batch job may take its time. What matters is which of its requests stand out among their own kind,
and why, and what the online tenants would gain if it ran elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailscope.triage.phrase import tell
from tailscope.triage.stages import Flags, floats, named
from tailscope.triage.study import Removed, Study, removed
from tailscope.triage.work import Floats

_FENCE = 3.0
"""Interquartile ranges, on a logarithmic scale, beyond the upper quartile: an outlier."""

_FEWEST = 12


@dataclass(frozen=True, slots=True)
class Outlier:
    """An offline request that stands out among its tenant's.

    Attributes:
        row: Position in the frame.
        tenant: Its tenant.
        seconds: Its total time.
        usual: Median of its tenant's.
        reason: The likely reason, in words.
    """

    row: int
    tenant: str
    seconds: float
    usual: float
    reason: str


def outliers(frame: pd.DataFrame, offline: set[str], mine: Flags | None = None) -> list[Outlier]:
    """Offline requests that took far longer than their own kind, the longest first.

    Args:
        frame: Requests with the record's columns.
        offline: Tenants whose work is offline.
        mine: Rows to look at; all if None.
    """
    found = []
    tenants = named(frame, "tenant").to_numpy(dtype=object)
    for tenant in sorted(offline):
        rows = np.flatnonzero((tenants == tenant) & (True if mine is None else mine))
        if len(rows) >= _FEWEST:
            found += _outliers(frame.iloc[rows], rows.tolist(), tenant)
    return sorted(found, key=lambda one: -one.seconds)


def relief(studies: list[Study], offline: set[str]) -> dict[str, Removed]:
    """What moving each offline tenant to an instance of its own gives the slow ones of the others.

    Args:
        studies: Engines.
        offline: Tenants whose work is offline.
    """
    gains: dict[str, Removed] = {}
    for one in studies:
        for tenant in np.unique(one.work.tenant):
            name = one.work.tenants[int(tenant)]
            if name in offline:
                more = removed(one, int(tenant))
                had = gains.get(name, Removed(0.0, 0.0, replayed=True))
                gains[name] = Removed(
                    had.seconds + more.seconds,
                    had.excess + more.excess,
                    had.replayed and more.replayed,
                )
    return gains


def _outliers(part: pd.DataFrame, rows: list[int], tenant: str) -> list[Outlier]:
    seconds = floats(part, "total_seconds")
    usual = float(np.nanmedian(seconds))
    return [
        Outlier(rows[at], tenant, float(seconds[at]), usual, _reason(part, int(at)))
        for at in np.flatnonzero(_far(seconds))
    ]


def _reason(part: pd.DataFrame, at: int) -> str:
    row = part.iloc[at]
    if _far(floats(part, "input_tokens"))[at]:
        tokens = f"{row['input_tokens']:,.0f}"
        return tell("its prompt of {n} tokens is far longer than usual", n=tokens)
    if "finish_reason" in part and row["finish_reason"] == "length":
        tokens = f"{row['output_tokens']:,.0f}"
        return tell("it generated until its limit, {n} tokens", n=tokens)
    if _far(floats(part, "output_tokens"))[at]:
        tokens = f"{row['output_tokens']:,.0f}"
        return tell("its answer of {n} tokens is far longer than usual", n=tokens)
    if "attempt" in part and pd.notna(row["attempt"]) and row["attempt"] > 1:
        attempt = f"{row['attempt']:.0f}"
        return tell("it is attempt {n}: earlier ones failed", n=attempt)
    return tell("its size is usual: it waited for others, or the engine was slow")


def _far(values: Floats) -> npt.NDArray[np.bool_]:
    """Which values lie beyond the fence; unknown ones do not."""
    known = np.isfinite(values) & (values > 0)
    if known.sum() < _FEWEST:
        return np.zeros(len(values), dtype=bool)
    logs = np.log(np.where(known, values, 1.0))
    low, high = np.quantile(logs[known], [0.25, 0.75])
    # Work of one size has no spread: a quarter more is then still usual.
    return np.asarray(known & (logs > high + _FENCE * max(high - low, 0.08)))
