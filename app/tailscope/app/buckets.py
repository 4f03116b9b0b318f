"""Percentiles from the buckets of a histogram: estimates, each with the bucket that it lies in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A percentile that is known as far as its bucket.

    Attributes:
        value: By linear interpolation in the bucket, as Prometheus' ``histogram_quantile`` does;
            the lower bound where the bucket has no upper one. Seconds.
        low: Lower bound of the bucket.
        high: Its upper bound; None in the last bucket.
    """

    value: float
    low: float
    high: float | None


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram: how many observations were at most so large.

    Attributes:
        bounds: Upper bounds in ascending order; the last one is infinite.
        counts: Observations up to each of them.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Buckets | None:
        """Sum rows with ``le`` and ``value`` into one histogram; None if it counted nothing."""
        if rows.empty or "le" not in rows:
            return None
        known = rows.dropna(subset=["le"]).assign(le=lambda part: part["le"].astype(np.float64))
        summed = known.groupby("le")["value"].sum().sort_index()
        # Series that begin between two scrapes make a bucket fall below the one before it.
        counts = np.maximum.accumulate(summed.to_numpy(dtype=np.float64))
        if not len(counts) or not np.isinf(summed.index[-1]) or not counts[-1] > 0:
            return None
        return cls(tuple(map(float, summed.index)), tuple(map(float, counts)))

    @property
    def total(self) -> float:
        """All observations. No whole number where Prometheus extrapolated."""
        return self.counts[-1]

    def quantile(self, level: float) -> Estimate:
        """Estimate a quantile.

        Args:
            level: Between 0 and 1.
        """
        rank = level * self.total
        at = int(np.searchsorted(self.counts, rank))
        at = min(at, len(self.counts) - 1)
        low = self.bounds[at - 1] if at else 0.0
        high = self.bounds[at]
        if np.isinf(high):
            return Estimate(low, low, None)
        before = self.counts[at - 1] if at else 0.0
        inside = self.counts[at] - before
        part = (rank - before) / inside if inside > 0 else 0.0
        return Estimate(low + (high - low) * part, low, high)

    def above(self, bound: float) -> float:
        """Share of the observations above one of the bounds."""
        at = int(np.searchsorted(self.bounds, bound))
        return 1.0 - self.counts[min(at, len(self.counts) - 1)] / self.total

    def bound(self, seconds: float) -> float:
        """The least bound that is no smaller than so many seconds."""
        return self.bounds[min(int(np.searchsorted(self.bounds, seconds)), len(self.bounds) - 1)]
