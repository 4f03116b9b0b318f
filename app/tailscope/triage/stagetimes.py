"""Seconds of each stage, measured or inferred from the fastest comparable requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import linprog

from tailscope.triage.stages import Flags, Floats

_TTFT_QUANTILE = 0.05
_TOTAL_QUANTILE = 0.15
_PRICED = 1000
"""Rows that are enough to find the prices of tokens."""

_FEW_UNKNOWN = 0.05
"""Up to this share of rows without stage times does not lower what is said of the rest."""


class Stages(StrEnum):
    """How much is known of where the time of a request went."""

    MEASURED = "measured"
    FIRST_TOKEN = "first_token"  # noqa: S105 - only ttft and total are known
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of each stage; arrays of n elements.

    Attributes:
        frontend: Before the engine's queue.
        queue: In the queue.
        prefill: From the first step to the first token.
        decode: From the first token to the last.
        measured: Which requests have queue and prefill measured.
        known: The weakest knowledge among the requests.
    """

    frontend: Floats
    queue: Floats
    prefill: Floats
    decode: Floats
    measured: Flags
    known: Stages


def stage_times(numbers: Mapping[str, Floats], computed: Floats, output: Floats) -> StageTimes:
    """Stage times; what was not measured is inferred from the fastest comparable requests.

    Only the time to the first token known: the prefill takes the 5th-percentile seconds per
    computed token, the rest before the first token is waiting. Only the total known: prices of a
    computed and of a generated token are fitted to the 15th percentile of the total, given both.

    Args:
        numbers: The record's columns of seconds by name; NaN where unknown, the total is known.
        computed: Prompt tokens that were computed.
        output: Generated tokens.
    """
    total = np.maximum(numbers["total_seconds"], 0.0)
    queue, prefill = numbers["queue_seconds"], numbers["prefill_seconds"]
    ttft = np.minimum(numbers["ttft_seconds"], total)
    summed = np.nan_to_num(numbers["frontend_seconds"]) + queue + prefill
    ttft = np.where(np.isnan(ttft), summed, ttft)
    ttft = np.minimum(ttft, total)
    known = np.isfinite(ttft)
    # A request that ended before its first token has no decode time, whatever its tokens say.
    token, step = (0.0, 0.0) if known.all() else _prices(total, computed, output)
    ttft = np.where(known, ttft, total - np.minimum(step * output, total))
    decode = np.where(
        np.isfinite(numbers["decode_seconds"]), numbers["decode_seconds"], total - ttft
    )
    decode = np.clip(decode, 0.0, None)
    measured = np.isfinite(queue) & np.isfinite(prefill)
    price = np.where(known, _typical(ttft[known], computed[known]), token)
    alone = np.minimum(price * computed, ttft)
    prefill = np.where(measured, np.maximum(prefill, 0.0), alone)
    queue = np.where(measured, np.maximum(queue, 0.0), ttft - alone)
    frontend = np.where(measured, np.maximum(ttft - queue - prefill, 0.0), 0.0)
    share = 1.0 - _FEW_UNKNOWN
    if measured.mean() >= share:
        stages = Stages.MEASURED
    elif known.mean() >= share:
        stages = Stages.FIRST_TOKEN
    else:
        stages = Stages.TOTAL
    return StageTimes(frontend, queue, prefill, decode, measured, stages)


def _typical(seconds: Floats, size: Floats) -> float:
    """Low quantile of the seconds per unit of size; 0 where nothing is known."""
    fit = size > 0
    return float(np.quantile(seconds[fit] / size[fit], _TTFT_QUANTILE)) if fit.any() else 0.0


def _prices(total: Floats, computed: Floats, output: Floats) -> tuple[float, float]:
    """Seconds per computed and per generated token of the requests that were hardly disturbed.

    Quantile regression without an intercept, as a linear program:

        minimise  q sum u + (1 - q) sum v    with  phi p + alpha m + u - v = total,  all >= 0
    """
    rows = np.flatnonzero(np.isfinite(total) & (total > 0))
    if not len(rows):
        return 0.0, 0.0
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _PRICED)).astype(np.int64)]
    count = len(rows)
    size = np.column_stack([computed[rows], output[rows]])
    scale = np.maximum(size.max(axis=0), 1.0)
    one = scipy.sparse.identity(count, format="csc")
    matrix: Any = scipy.sparse.hstack([scipy.sparse.csc_matrix(size / scale), one, -one])
    low, high = np.full(count, _TOTAL_QUANTILE), np.full(count, 1.0 - _TOTAL_QUANTILE)
    found = linprog(np.concatenate([[0.0, 0.0], low, high]), A_eq=matrix, b_eq=total[rows])
    if not found.success or found.x is None:
        return 0.0, 0.0
    return float(found.x[0] / scale[0]), float(found.x[1] / scale[1])
