"""What one read of a source gave, in the catalogue's vocabulary, and its lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from tailscope.catalogue import METRICS
from tailscope.exporter.exposition import Block, Family, bucket, series, template


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


_SPARE = 100
"""Histograms whose texts that are remembered beyond twice those of the last reading."""


class _Layout:
    """Which numbers of a reading stand where on the page.

    Args:
        keys: The series, in the reading's order.
    """

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self.keys = keys
        places: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(key.metric, []).append(place)
        self._families = [
            (name, template(map(_series, map(keys.__getitem__, found))), _picker(found))
            for name, found in places.items()
        ]

    def blocks(self, values: tuple[float, ...]) -> dict[str, Family]:
        """Put the values of a reading in."""
        return {name: Family([Block(texts, pick(values))]) for name, texts, pick in self._families}


class Writer:
    """Turns readings of one source into lines, and remembers the text of each series."""

    def __init__(self) -> None:
        self._layout = _Layout(())
        self._buckets: dict[tuple[Key, tuple[str, ...]], str] = {}
        self._last: tuple[Reading, dict[str, Family]] | None = None

    def lines(self, reading: Reading) -> dict[str, Family]:
        """Return the lines of a reading by metric; the caller does not change the lists."""
        last = self._last
        if last is not None and last[0] is reading:
            return last[1]
        layout, keys = self._layout, tuple(reading.numbers)
        if keys != layout.keys:
            layout = self._layout = _Layout(keys)
        found = layout.blocks(tuple(reading.numbers.values()))
        if len(self._buckets) > 2 * len(reading.histograms) + _SPARE:
            self._buckets = {}
        for key, histogram in reading.histograms.items():
            found.setdefault(key.metric, Family()).append(self._block(key, histogram))
        self._last = (reading, found)
        return found

    def _block(self, key: Key, histogram: Buckets) -> Block:
        bounds = tuple(histogram.counts)
        # A sum that is not known has no line, so that there are two texts.
        known = histogram.sum is not None
        place = (key, (*bounds, "sum") if known else bounds)
        texts = self._buckets.get(place)
        if texts is None:
            texts = self._buckets[place] = _bucket_texts(key, bounds, known)
        sums = () if histogram.sum is None else (histogram.sum,)
        return Block(texts, (*histogram.counts.values(), *sums, histogram.counts["+Inf"]))


def _picker(places: list[int]) -> Callable[[tuple[float, ...]], tuple[float, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    place = places[0]
    return lambda values: (values[place],)


def _series(key: Key) -> str:
    return series(key.metric, METRICS[key.metric].labels, key.values)


def _bucket_texts(key: Key, bounds: tuple[str, ...], known: bool) -> str:
    metric = METRICS[key.metric]
    names = ("sum", "count") if known else ("count",)
    return template(
        (
            *(bucket(metric, key.values, bound) for bound in bounds),
            *(series(f"{key.metric}_{name}", metric.labels, key.values) for name in names),
        )
    )
