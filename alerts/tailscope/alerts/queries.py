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
