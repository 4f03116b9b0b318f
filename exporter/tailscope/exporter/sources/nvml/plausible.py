"""Which numbers are believed: missing beats wrong."""

from __future__ import annotations

import math

from tailscope.catalogue import METRICS, Kind, Unit
from tailscope.catalogue.gpu import MOST


def plausible(metric: str, value: float, most_ratio: float = 1.0) -> float | None:
    """Return a value that can be, or None.

    Args:
        metric: Name of our metric.
        value: In its unit.
        most_ratio: Largest ratio that is taken for 1.
    """
    if not math.isfinite(value) or value < 0:
        return None
    entry = METRICS[metric]
    if entry.unit is Unit.RATIO:
        return min(value, 1.0) if value <= most_ratio else None
    if entry.kind is Kind.GAUGE and value > MOST.get(entry.unit, math.inf):
        return None
    return value
