"""PromQL from catalogue objects: a name or a label that does not exist cannot be written.

``Query`` writes the parts: vectors that are already aggregated. The functions join parts. All
return text. The value of a matcher is compared for equality unless an operator stands before it:
``~`` matches an expression, ``!`` differs, ``!~`` does not match.
"""

from __future__ import annotations

from tailscope.catalogue.promql.joins import (
    absent,
    age,
    compare,
    difference,
    either,
    every,
    filled,
    largest,
    ratio,
    share,
    times,
    total,
    unless,
)
from tailscope.catalogue.promql.query import (
    ALERT_LABELS,
    ALERTS,
    LABELS,
    TARGET_LABELS,
    UP,
    Query,
)
from tailscope.catalogue.promql.waits import engine_wait

__all__ = [
    "ALERTS",
    "ALERT_LABELS",
    "LABELS",
    "TARGET_LABELS",
    "UP",
    "Query",
    "absent",
    "age",
    "compare",
    "difference",
    "either",
    "engine_wait",
    "every",
    "filled",
    "largest",
    "ratio",
    "share",
    "times",
    "total",
    "unless",
]
