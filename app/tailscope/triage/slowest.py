"""The slow requests one by one, the worst first."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pandas as pd

from tailscope.triage.finding import SlowRequest
from tailscope.triage.identity import keys
from tailscope.triage.reckoning import Reckoning
from tailscope.triage.stages import STAGES, Floats, column, floats

MAX_SLOWEST = 100
"""Slow requests that are listed one by one."""


def slowest(frame: pd.DataFrame, found: Reckoning) -> tuple[SlowRequest, ...]:
    """List the slow requests by their excess, then by their total time.

    Args:
        frame: The requests.
        found: Which of them are slow, and their excess.
    """
    positions = np.flatnonzero(found.slow)
    above = np.nan_to_num(found.excess[positions], nan=-1.0)
    total = np.nan_to_num(floats(frame, "total_seconds")[positions])
    worst = positions[np.lexsort((-total, -above))[:MAX_SLOWEST]]
    rows = frame.iloc[worst]
    return tuple(
        _one(pd.Series(row), key, found.excess[position], found.stages[position])
        for position, key, row in zip(worst, keys(rows), rows.to_dict("records"), strict=True)
    )


def _one(row: pd.Series, key: str, above: float, excess: Floats) -> SlowRequest:
    stages = {
        name: seconds for name in STAGES if (seconds := _float(row, column(name))) is not None
    }
    lost = np.nan_to_num(excess)
    return SlowRequest(
        key=key,
        arrived_ns=int(row["arrived_ns"]),
        request_id=_text(row, "request_id"),
        tenant=_text(row, "tenant") or "unknown",
        model=_text(row, "model"),
        server=_text(row, "server"),
        input_tokens=_int(row, "input_tokens"),
        output_tokens=_int(row, "output_tokens"),
        total_seconds=_float(row, "total_seconds"),
        ttft_seconds=_float(row, "ttft_seconds"),
        excess_seconds=None if np.isnan(above) else float(above),
        stages=MappingProxyType(stages),
        stage=STAGES[int(np.argmax(lost))] if lost.max() > 0 else None,
        outcome=_text(row, "outcome"),
    )


def _text(row: pd.Series, name: str) -> str | None:
    return None if pd.isna(row[name]) else str(row[name])


def _float(row: pd.Series, name: str) -> float | None:
    return None if pd.isna(row[name]) else float(row[name])


def _int(row: pd.Series, name: str) -> int | None:
    return None if pd.isna(row[name]) else int(row[name])
