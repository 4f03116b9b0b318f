"""Makes one value of those of several ranks, replicas or upstream series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tailscope.catalogue import Across
from tailscope.catalogue.gpu import ROUNDING
from tailscope.exporter.carry import SUM
from tailscope.exporter.reading import Buckets

Origin = tuple[str, ...]
"""Where a value comes from: its rank and its replica."""


def one(
    across: Across, values: Sequence[tuple[Origin, float]], weights: Mapping[Origin, float]
) -> float:
    """Merge values.

    Args:
        across: How.
        values: Several, each with its origin.
        weights: What an average weighs by; where an origin has none, all weigh the same.
    """
    numbers = [value for _, value in values]
    if across is Across.MAX:
        return max(numbers)
    if across is Across.SUM:
        return math.fsum(numbers)
    shares = [weights.get(origin, 0.0) for origin, _ in values]
    if min(shares) <= 0:
        return math.fsum(numbers) / len(numbers)
    return math.fsum(map(float.__mul__, numbers, shares)) / math.fsum(shares)


def share(number: float) -> float | None:
    """Return a share of a whole; None if it is more than that by more than rounding."""
    return min(number, 1.0) if 0 <= number <= ROUNDING else None


def buckets(parts: Mapping[str, float]) -> Buckets | None:
    """Order the parts of a histogram; None if it is not whole."""
    total = parts.get("+Inf", parts.get("count"))
    if total is None:
        return None
    counts = {bound: parts[bound] for bound in _bounds(tuple(parts))}
    counts["+Inf"] = total
    return Buckets(counts, parts.get(SUM))


@lru_cache(maxsize=256)
def _bounds(parts: tuple[str, ...]) -> list[str]:
    """Return the bounds in order; the parts of a histogram are the same at each scrape."""
    return sorted((part for part in parts if part not in (SUM, "count", "+Inf")), key=float)


def added(parts: Sequence[Buckets]) -> Buckets | None:
    """Add histograms; None if their bounds differ, for then the sum would lie."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.counts.keys() != first.counts.keys() for part in parts):
        return None
    sums = [part.sum for part in parts if part.sum is not None]
    return Buckets(
        {bound: sum(part.counts[bound] for part in parts) for bound in first.counts},
        math.fsum(sums) if len(sums) == len(parts) else None,
    )
