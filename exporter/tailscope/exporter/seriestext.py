"""Reads an engine's Prometheus text into its series, and each series' text only once.

Parsing a scrape anew takes ``prometheus-client`` 28 ms for vLLM's 55 kB, at every second 3 % of a
core. The series of an engine hardly change, so each line's series text is parsed once and
remembered with what becomes of it; later scrapes only read the numbers. What is not mapped is
known by its name alone and takes no memory, so that a page may be large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TypeVar

from tailscope.catalogue import Engine
from tailscope.exporter.line import parse
from tailscope.exporter.mapping import NAME, Mapper, Series, Target
from tailscope.exporter.scrapeerror import NotPrometheus, TooManySeries

MAX_LINES = 500_000
"""Most lines in one scrape. vLLM gives 700; a Ray node with a hundred replicas, 100,000."""

MAX_FAMILY = 20_000
"""Most series of one mapped family, buckets apart. One with more is left out, the others not."""

MAX_COMMENT = 10_000
"""Longest comment that is remembered."""

SPARE = 1_000
"""How much more is remembered than twice what the last scrape had, before all is forgotten."""

T = TypeVar("T")


class _Overflow(Exception):
    """A family has more series than are remembered."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class SeriesText:
    """Reads one server of one engine, scrape by scrape.

    Args:
        engine: The catalogue's entry.
    """

    def __init__(self, engine: Engine) -> None:
        self._mapper = Mapper(engine)
        self._comments: set[str] = set()
        self._targets: dict[str, tuple[Target, ...]] = {}
        self._sizes: dict[str, int] = {}
        self._left_out: dict[str, bool] = {}
        self._room = SPARE

    @property
    def unmapped(self) -> Mapping[str, str]:
        """Families that are neither mapped nor ignored, with the first reason seen."""
        full = f"more than {MAX_FAMILY} series"
        return self._mapper.unmapped | {
            name: full for name, too_large in self._left_out.items() if too_large
        }

    def read(self, text: str) -> dict[Series, dict[str, float]]:
        """Return the parts of each mapped series.

        Raises:
            NotPrometheus: If no line of the text is a sample.
            TooManySeries: If there are more than ``MAX_LINES`` lines.
        """
        if text.count("\n") > MAX_LINES:
            raise TooManySeries(f"has more than {MAX_LINES} lines")
        if max(len(self._targets), len(self._comments), len(self._left_out)) > self._room:
            # Series that come and go, or a text that changes each time, must not fill the memory.
            self._forget()
        full: set[str] = set()
        while True:
            try:
                return self._parts(text)
            except _Overflow as overflow:
                # Once more without what was remembered of earlier scrapes, and then without it.
                self._forget()
                if overflow.name in full:
                    self._left_out[overflow.name] = True
                full.add(overflow.name)

    def _forget(self) -> None:
        self._targets = {}
        self._comments = set()
        self._sizes = {}
        self._left_out = {name: full for name, full in self._left_out.items() if full}
        self._mapper.forget()

    def _parts(self, text: str) -> dict[Series, dict[str, float]]:
        found: dict[Series, dict[str, float]] = {}
        count = 0
        for line in text.split("\n"):
            if not line:
                continue
            if line[0] == "#":
                if line not in self._comments:
                    self._comment(line)
                continue
            name, _, number = line.rpartition(" ")
            targets = self._targets.get(name)
            if targets is not None:
                try:
                    value = float(number)
                except ValueError:
                    targets = None
                else:
                    count += 1
                    if targets and isfinite(value):
                        _put(found, targets, value)
                    continue
            if name.partition("{")[0] in self._left_out:
                count += 1
            else:
                for targets, value in self._new(line, name):
                    count += 1
                    if isfinite(value):
                        _put(found, targets, value)
        if not count:
            raise NotPrometheus("no line is a sample")
        self._room = 2 * min(count, len(self._targets) + len(self._left_out)) + SPARE
        return found

    def _comment(self, line: str) -> None:
        changed = self._mapper.declare(line)
        if changed:
            # A family that changed its type is another family: forget what was remembered of it.
            self._targets = _but(self._targets, changed)
            self._left_out = _but(self._left_out, changed)
            self._mapper.unmapped = _but(self._mapper.unmapped, changed)
            self._comments = {one for one in self._comments if f" {changed} " not in one}
        if len(line) < MAX_COMMENT:
            self._comments.add(line)

    def _new(self, line: str, text: str) -> Iterator[tuple[tuple[Target, ...], float]]:
        """Parse a line that was not seen before, or of a family that is left out."""
        head = NAME.match(line)
        name = head[0] if head else ""
        if name in self._left_out:
            yield (), 0.0
            return
        for sample in parse(line):
            if name and not self._mapper.knows(sample.name):
                self._left_out[name] = False
                yield (), 0.0
                return
            targets = self._mapper.targets(sample.name, sample.labels)
            # With a time stamp or an exemplar the text before the last space is new each time.
            if text and sample.plain:
                self._remember(name, text, targets)
            yield targets, sample.value

    def _remember(self, name: str, text: str, targets: tuple[Target, ...]) -> None:
        self._targets[text] = targets
        size = self._sizes[name] = self._sizes.get(name, 0) + 1
        if size > MAX_FAMILY:
            raise _Overflow(name)


def _but(remembered: dict[str, T], family: str) -> dict[str, T]:
    return {text: one for text, one in remembered.items() if not text.startswith(family)}


def _put(found: dict[Series, dict[str, float]], targets: tuple[Target, ...], value: float) -> None:
    for series, part, scale, fixed in targets:
        parts = found.get(series)
        if parts is None:
            parts = found[series] = {}
        number = value * scale if fixed is None else fixed
        if series.viewed and part in parts:
            number = max(number, parts[part])
        parts[part] = number
