"""Reads a source's Prometheus text scrape by scrape, and each series' text only once.

Parsing a scrape anew takes ``prometheus-client`` half a millisecond a kilobyte. The series of a
source hardly change, so each line's series text is parsed once, by that library, and remembered
with what becomes of it; later scrapes only read the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from prometheus_client.parser import text_string_to_metric_families

MAX_SERIES = 200_000

T = TypeVar("T")


class SeriesReader(Generic[T]):
    """Pairs the samples of a text with what their series become.

    Args:
        resolve: Says what becomes of a series, from its name, its labels and its whole text; None
            if nothing does.
        comment: Takes each comment line that was not seen before.
    """

    def __init__(
        self,
        resolve: Callable[[str, dict[str, str], str], T | None],
        comment: Callable[[str], None] | None = None,
    ) -> None:
        self._resolve = resolve
        self._comment = comment
        self._targets: dict[str, T | None] = {}
        self._comments: set[str] = set()

    def samples(self, text: str) -> Iterator[tuple[T | None, float]]:
        """Yield each sample's target and its number; a line that is no sample is passed over."""
        targets = self._targets
        if len(targets) > MAX_SERIES:
            self.forget()
        for line in text.split("\n"):
            if not line:
                continue
            if line[0] == "#":
                self._note(line)
                continue
            name, _, number = line.rpartition(" ")
            try:
                target = targets[name]
                value = float(number)
            except (KeyError, ValueError):
                yield from self._new(line, name)
            else:
                yield target, value

    def forget(self) -> None:
        """Parse every series anew from here on."""
        self._targets.clear()
        self._comments.clear()

    def _note(self, line: str) -> None:
        if self._comment is None or line in self._comments:
            return
        self._comment(line)
        if len(self._comments) < MAX_SERIES:
            self._comments.add(line)

    def _new(self, line: str, name: str) -> Iterator[tuple[T | None, float]]:
        """Parse a line that was not seen before."""
        try:
            parsed = [
                sample
                for family in text_string_to_metric_families(line + "\n")
                for sample in family.samples
            ]
        except (ValueError, KeyError, IndexError):
            return
        for sample in parsed:
            target = self._resolve(sample.name, sample.labels, name)
            # With a time stamp or an exemplar the text before the last space is new each time.
            if sample.timestamp is None and sample.exemplar is None:
                self._targets[name] = target
            yield target, float(sample.value)
