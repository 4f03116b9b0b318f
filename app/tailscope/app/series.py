"""Samples of engines and GPUs: those of the store, and of Prometheus what the store has none of."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from tailscope.app.prometheus import Prometheus
from tailscope.records.joining import MAX_NS
from tailscope.records.reader import Reader

STORE, PROMETHEUS = "store", "prometheus"
"""Where a sample comes from."""


class Series:
    """Both as one.

    Args:
        reader: The store.
        prometheus: The server; None for the store alone.
    """

    def __init__(self, reader: Reader, prometheus: Prometheus | None) -> None:
        self._reader = reader
        self._prometheus = prometheus

    def samples(
        self, metrics: Iterable[str], start_ns: int = 0, end_ns: int = MAX_NS
    ) -> pd.DataFrame:
        """Samples of metrics in a time, oldest first, each with its ``origin``.

        Raises:
            ReaderError: If the store cannot be read.
        """
        wanted = tuple(metrics)
        found = self._reader.samples(wanted, start_ns, end_ns).assign(origin=STORE)
        if self._prometheus is None:
            return found
        lacking = sorted(set(wanted) - set(found["metric"]))
        more = self._prometheus.samples(lacking, start_ns, end_ns).assign(origin=PROMETHEUS)
        parts = [part for part in (found, more) if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else found
        both = pd.concat(parts, ignore_index=True)
        return both.sort_values("time_ns", kind="stable", ignore_index=True)
