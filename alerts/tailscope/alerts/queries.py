"""What alerts ask: the windows and the labels that keep servers and exporters apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tailscope.catalogue.promql import TARGET_LABELS, Query

ENGINE: Final = (*TARGET_LABELS, "engine", "server", "model")
"""Labels of one engine, its ranks put together."""

REQUESTS: Final = (*TARGET_LABELS, "server", "model")
"""Labels of the requests of one engine."""

SHORT: Final = Query("5m", by=ENGINE)
"""For what needs somebody now: 10 samples at a scrape interval of 30 s."""
LONG: Final = replace(SHORT, window="10m")
"""For a share or a mean that has to be steady."""
STEADY: Final = replace(SHORT, window="15m")
"""For what is slow to change, and for quantiles, which need many observations."""

GPU: Final = (*TARGET_LABELS, "gpu", "model_name")
"""Labels of one GPU; all instances of one that is divided together."""


def recorded(
    name: str, window: str = "", offset: str = "", over: str = "avg_over_time", where: str = ""
) -> str:
    """The series of a recording rule, as they are or over a window of the past."""
    chosen = f"{name}{{{where}}}" if where else name
    shifted = f" offset {offset}" if offset else ""
    return f"{over}({chosen}[{window}]{shifted})" if window else f"{chosen}{shifted}"
