"""Reads a source's Prometheus text scrape by scrape, and each series' text only once.

Parsing a scrape anew takes ``prometheus-client`` half a millisecond a kilobyte. The series of a
source hardly change, so each line's series text is parsed once, by that library, and remembered
with what becomes of it; later scrapes only read the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from prometheus_client.parser import text_string_to_metric_families

SPARE = 1_000
"""How much more is remembered than twice what the last scrape had, before all is forgotten."""

T = TypeVar("T")


class SeriesReader(Generic[T]):
    """Pairs the samples of a text with what their series become. Comments are passed over.

    Args:
        resolve: Says what becomes of a series, from its name and its labels; None if nothing does.
    """

    def __init__(self, resolve: Callable[[str, dict[str, str]], T | None]) -> None:
        self._resolve = resolve
        self._targets: dict[str, T | None] = {}
        self._room = SPARE

    def samples(self, text: str) -> Iterator[tuple[T | None, float]]:
        """Yield each sample's target and its number; a line that is no sample is passed over."""
        if len(self._targets) > self._room:
            # Pods that come and go, or a text that changes each time, must not fill the memory.
            self._targets = {}
        count = 0
        for line in text.split("\n"):
            if not line or line[0] == "#":
                continue
            name, _, number = line.rpartition(" ")
            try:
                target = self._targets[name]
                value = float(number)
            except (KeyError, ValueError):
                for found in self._new(line, name):
                    count += 1
                    yield found
            else:
                count += 1
                yield target, value
        self._room = 2 * count + SPARE

    def _new(self, line: str, name: str) -> Iterator[tuple[T | None, float]]:
        """Parse a line that was not seen before."""
        try:
            parsed = [
                sample
                for family in text_string_to_metric_families(line + "\n")
                for sample in family.samples
            ]
        except (ValueError, KeyError, IndexError):  # no sample; the other lines may be some
            return
        for sample in parsed:
            target = self._resolve(sample.name, sample.labels)
            # With a time stamp or an exemplar the text before the last space is new each time.
            if name and sample.timestamp is None and sample.exemplar is None:
                self._targets[name] = target
            yield target, float(sample.value)
