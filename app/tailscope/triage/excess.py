"""What a request took beyond what is usual for its size: the slow seconds, by stage.

This is the seam for a cost model: ``usual`` says what each stage of each request should have taken,
from whatever model, and ``excess`` is what it took above that. Here the model is the plainest that
is robust: the median of comparable requests.

Comparable are the ordinary requests of the same server and model; for prefill also of a similar
number of uncached prompt tokens, for decode of a similar number of generated tokens (within a
factor of 2). Where fewer than 8 are of similar size, the median time per token of all of them
stands in. A request of a server and model without ordinary requests has no usual time, and so no
excess.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailscope.triage.stages import STAGES, Flags, Floats, column, floats

MIN_COMPARABLE = 8
"""Fewer requests of similar size than this say nothing about what is usual."""

_SIZES = 64
_NO_SIZE = np.nan


def usual(frame: pd.DataFrame, ordinary: Flags) -> pd.DataFrame:
    """Seconds that each stage usually takes, for each request; NaN where nothing is comparable.

    Args:
        frame: Requests.
        ordinary: Which of them count as undisturbed.
    """
    groups = _groups(frame)
    computed = floats(frame, "input_tokens") - np.nan_to_num(floats(frame, "cached_tokens"))
    sizes = {"prefill": computed, "decode": floats(frame, "output_tokens")}
    none = np.full(len(frame), _NO_SIZE)
    return pd.DataFrame(
        {
            stage: _typical(floats(frame, column(stage)), groups, sizes.get(stage, none), ordinary)
            for stage in STAGES
        },
        index=frame.index,
    )


def excess(frame: pd.DataFrame, ordinary: Flags) -> pd.DataFrame:
    """Seconds of each stage above what is usual, never negative; NaN where either is unknown."""
    base = usual(frame, ordinary)
    return pd.DataFrame(
        {
            stage: np.maximum(floats(frame, column(stage)) - base[stage].to_numpy(), 0.0)
            for stage in STAGES
        },
        index=frame.index,
    )


def above_usual(frame: pd.DataFrame, stages: pd.DataFrame, ordinary: Flags) -> Floats:
    """Seconds of each request above what is usual for it.

    Args:
        frame: Requests.
        stages: Their excess by stage.
        ordinary: Which of them count as undisturbed.

    Returns:
        The sum over the stages; for a request without stage times its total time above that of
        comparable requests; NaN where neither is known.
    """
    found = stages.sum(axis=1, min_count=1).to_numpy()
    missing = np.isnan(found)
    if missing.any():
        total = floats(frame, "total_seconds")
        base = _typical(total, _groups(frame), floats(frame, "output_tokens"), ordinary)
        found = np.where(missing, np.maximum(total - base, 0.0), found)
    return found


def _groups(frame: pd.DataFrame) -> npt.NDArray[np.intp]:
    servers, _ = pd.factorize(frame["server"], use_na_sentinel=False)
    models, names = pd.factorize(frame["model"], use_na_sentinel=False)
    return servers * max(len(names), 1) + models


def _typical(
    seconds: Floats, groups: npt.NDArray[np.intp], size: Floats, ordinary: Flags
) -> Floats:
    """Median of the comparable ordinary requests, for each request."""
    counts = ordinary & ~np.isnan(seconds)
    alike = groups * _SIZES + _size_class(size)
    medians = pd.Series(seconds[counts]).groupby(alike[counts]).agg(["median", "size"])
    at = medians.reindex(alike)
    known = at["median"].to_numpy()
    enough = (at["size"] >= MIN_COMPARABLE).to_numpy()
    if enough.all():
        return known
    return np.where(enough, known, _by_rate(seconds, groups, size, counts))


def _by_rate(seconds: Floats, groups: npt.NDArray[np.intp], size: Floats, counts: Flags) -> Floats:
    """Median time per token times the size; the plain median where there is no size."""
    plain = pd.Series(seconds[counts]).groupby(groups[counts]).median().reindex(groups)
    sized = counts & (size > 0)
    rates = pd.Series(seconds[sized] / size[sized]).groupby(groups[sized]).median()
    scaled = rates.reindex(groups).to_numpy() * size
    return np.where(np.isnan(scaled), plain.to_numpy(), scaled)


def _size_class(size: Floats) -> npt.NDArray[np.intp]:
    """0 for an unknown size, then one class per power of two."""
    classes = np.floor(np.log2(np.maximum(size, 0.0) + 1.0)) + 1.0
    return np.nan_to_num(classes).astype(np.intp)
