"""Exact percentiles of what was recorded, each with a confidence interval.

A percentile is interpolated linearly between the two nearest values, as NumPy and spreadsheets do.
Its interval comes from order statistics: the number of values below the true percentile is
binomial, whatever their distribution, so two of the sorted values enclose it. Where there are too
few values for a bound, there is none.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tailscope.triage.stages import Floats

LEVELS = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
CONFIDENCE = 0.95

_NORMAL_FROM = 10_000
"""From so many values on, the normal approximation of the binomial is off by less than a rank."""


@dataclass(frozen=True, slots=True)
class Quantile:
    """One percentile.

    Attributes:
        value: In the unit of the values.
        low: Lower bound of the 95 % interval; None if the values are too few for one.
        high: Upper bound.
        bounded: Whether the value is one; if not, the true one is at least that.
    """

    value: float
    low: float | None
    high: float | None
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The percentiles of one set of values, and how many values there were."""

    count: int
    p50: Quantile
    p95: Quantile
    p99: Quantile


@lru_cache(maxsize=4096)
def ranks(count: int, level: float) -> tuple[int | None, int | None]:
    """Ranks (from 1) of the sorted values that enclose a percentile with 95 % confidence.

    Returns:
        Lower and upper rank; None where no value is far enough out.
    """
    tail = (1 - CONFIDENCE) / 2
    if count < _NORMAL_FROM:
        below = _binomial_cdf(count, level)
        low, high = (int(np.searchsorted(below, part)) for part in (tail, 1 - tail))
    else:
        normal = statistics.NormalDist(count * level, (count * level * (1 - level)) ** 0.5)
        low, high = (round(normal.inv_cdf(part)) for part in (tail, 1 - tail))
    return low if low >= 1 else None, high + 1 if high + 1 <= count else None


def _binomial_cdf(count: int, level: float) -> Floats:
    k = np.arange(1, count + 1)
    ratio = np.log((count - k + 1) / k) + np.log(level / (1 - level))
    logs = count * np.log1p(-level) + np.concatenate([[0.0], np.cumsum(ratio)])
    # Rounding must not leave the last value below 1: searchsorted would run off the end.
    below: Floats = np.minimum(np.cumsum(np.exp(logs)), 1.0)
    below[-1] = 1.0
    return below


def quantiles(values: Floats) -> Quantiles | None:
    """Percentiles of the values; NaN is left out, None if nothing is left."""
    return _of_sorted(np.sort(values[~np.isnan(values)]))


def quantiles_by(values: Floats, codes: npt.NDArray[np.intp]) -> dict[int, Quantiles]:
    """Percentiles of each group; a group without values is left out.

    Args:
        values: NaN is left out.
        codes: Group number of each value.
    """
    known = ~np.isnan(values)
    values, codes = values[known], codes[known]
    order = np.argsort(codes, kind="stable")
    values, codes = values[order], codes[order]
    edges = np.flatnonzero(np.diff(codes)) + 1
    found: dict[int, Quantiles] = {}
    for part, first in zip(np.split(values, edges), [0, *edges], strict=True):
        if (result := _of_sorted(np.sort(part))) is not None:
            found[int(codes[first])] = result
    return found


def _of_sorted(values: Floats) -> Quantiles | None:
    count = len(values)
    if not count:
        return None
    found = {}
    for name, level in LEVELS.items():
        low, high = ranks(count, level)
        found[name] = Quantile(
            value=_interpolate(values, level),
            low=None if low is None else float(values[low - 1]),
            high=None if high is None else float(values[high - 1]),
        )
    return Quantiles(count, **found)


def _interpolate(values: Floats, level: float) -> float:
    position = level * (len(values) - 1)
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return float(values[below] + (values[above] - values[below]) * (position - below))
