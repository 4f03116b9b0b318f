"""Which numbers are believed: missing beats wrong."""

from __future__ import annotations

import math

from tailscope.catalogue import METRICS, Kind, Unit
from tailscope.catalogue.gpu import MOST

_MOST = {
    name: MOST.get(metric.unit, math.inf) if metric.kind is Kind.GAUGE else math.inf
    for name, metric in METRICS.items()
    if metric.unit is not Unit.RATIO
}
"""Largest value that is believed, of all but ratios."""


def plausible(metric: str, value: float, most_ratio: float = 1.0) -> float | None:
    """Return a value that can be, or None.

    Args:
        metric: Name of our metric.
        value: In its unit.
        most_ratio: Largest ratio that is taken for 1.
    """
    most = _MOST.get(metric)
    if most is None:
        return min(value, 1.0) if 0 <= value <= most_ratio else None
    # Not a number compares with nothing, and so is left out.
    return value if 0 <= value <= most and value != math.inf else None
