"""What one read of a source gave, in the catalogue's vocabulary, and its lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tailscope.catalogue import METRICS
from tailscope.exporter.exposition import Line, bucket, series


class Key(NamedTuple):
    """One series: the metric's full name, and label values in the metric's order."""

    metric: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Buckets:
    """A cumulative histogram with an engine's own bounds.

    Attributes:
        counts: Text of each bound, ascending, ``+Inf`` last, to its cumulative count.
        sum: Sum of the observations; None where the engine gives none.
    """

    counts: Mapping[str, float]
    sum: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One read, frozen.

    Attributes:
        numbers: Gauges and counters.
        histograms: Histograms with the source's own bounds.
    """

    numbers: Mapping[Key, float] = field(default_factory=dict)
    histograms: Mapping[Key, Buckets] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers) + len(self.histograms)


_SPARE = 1_000
"""Texts that are remembered beyond twice those of the last reading."""


class Writer:
    """Turns readings of one source into lines, and remembers the text of each series."""

    def __init__(self) -> None:
        self._texts: dict[Key, str] = {}
        self._buckets: dict[tuple[Key, tuple[str, ...]], list[str]] = {}

    def lines(self, reading: Reading) -> dict[str, list[Line]]:
        """Return the lines of a reading by metric."""
        found: dict[str, list[Line]] = {}
        if len(self._texts) + len(self._buckets) > 2 * len(reading) + _SPARE:
            self._texts, self._buckets = {}, {}
        for key, value in reading.numbers.items():
            text = self._texts.get(key)
            if text is None:
                text = self._texts[key] = series(key.metric, METRICS[key.metric].labels, key.values)
            found.setdefault(key.metric, []).append(Line(text, value))
        for key, histogram in reading.histograms.items():
            lines = found.setdefault(key.metric, [])
            bounds = tuple(histogram.counts)
            texts = self._buckets.get((key, bounds))
            if texts is None:
                texts = self._buckets[key, bounds] = self._bucket_texts(key, bounds)
            counts = histogram.counts.values()
            lines.extend(map(Line, texts, counts))
            if histogram.sum is not None:
                lines.append(Line(texts[-2], histogram.sum))
            lines.append(Line(texts[-1], histogram.counts["+Inf"]))
        return found

    def _bucket_texts(self, key: Key, bounds: tuple[str, ...]) -> list[str]:
        metric = METRICS[key.metric]
        return [
            *(bucket(metric, key.values, bound) for bound in bounds),
            series(f"{key.metric}_sum", metric.labels, key.values),
            series(f"{key.metric}_count", metric.labels, key.values),
        ]
