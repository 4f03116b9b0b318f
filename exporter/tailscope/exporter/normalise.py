"""An engine's Prometheus text to a reading in the catalogue's vocabulary.

Parsing a scrape anew takes ``prometheus-client`` 28 ms for vLLM's 55 kB, at every second 3 % of a
core. The series of an engine hardly change, so each line's series text is parsed once, by that
library, and remembered with what becomes of it; later scrapes only read the numbers. What is not
mapped is known by its name alone and takes no memory, so that a page may be large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import ClassVar, NamedTuple

from tailscope.catalogue import Across, Engine, Kind
from tailscope.exporter.alternation import Alternation
from tailscope.exporter.carry import Carry
from tailscope.exporter.derive import derive
from tailscope.exporter.line import parse
from tailscope.exporter.mapping import CREATED, NAME, Mapper, Series, Target
from tailscope.exporter.merge import Origin, added, buckets, one
from tailscope.exporter.reading import Buckets, Key, Reading
from tailscope.exporter.select import select

MAX_LINES = 500_000
"""Most lines in one scrape. vLLM gives 700; a Ray node with a hundred replicas, 100,000."""

MAX_FAMILY = 20_000
"""Most series of one mapped family, buckets apart. One with more is left out, the others not."""

MAX_COMMENT = 10_000
"""Longest comment that is remembered."""

MISTRUST = 600
"""Reads after which a server that looked like several is believed again."""

_IN_TURN = "answers for several servers in turn: its counts go back and up again"

SPARE = 1_000
"""How much more is remembered than twice what the last scrape had, before all is forgotten."""


class ScrapeError(ValueError):
    """A scrape cannot be used.

    Attributes:
        reason: Short, bounded word for a metric label.
    """

    reason: ClassVar[str]


class NotPrometheus(ScrapeError):
    """The text is no Prometheus exposition."""

    reason = "not_prometheus"


class TooManySeries(ScrapeError):
    """The text has more lines than an engine ever has."""

    reason = "too_many_series"


class SeveralServers(ScrapeError):
    """Scrapes come from more than one server in turn, so that their counters mean nothing."""

    reason = "several_servers"


class _Overflow(Exception):
    """A family has more series than are remembered."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


Name = tuple[int, str, str]
"""What an upstream series is called: its entry, its family, its labels."""


class _Past(NamedTuple):
    """A counter or histogram that was seen: its counts, and which series of ours it is part of."""

    carry: Carry
    key: Key


class Normaliser:
    """Reads one server of one engine, scrape by scrape.

    Args:
        engine: The catalogue's entry.
        server: Value of the ``server`` label, ``host:port``.

    Attributes:
        resets: How often a scrape had series that had gone back.
        models: Served models that the last scrape named.
        model: The served model, from elsewhere; for series that name none.
    """

    def __init__(self, engine: Engine, server: str) -> None:
        self.engine = engine
        self.server = server
        self.resets = 0
        self.models: frozenset[str] = frozenset()
        self.model = ""
        self._mapper = Mapper(engine)
        self._comments: set[str] = set()
        self._targets: dict[str, tuple[Target, ...]] = {}
        self._sizes: dict[str, int] = {}
        self._left_out: dict[str, bool] = {}
        self._past: dict[Name, _Past] = {}
        self._room = SPARE
        self._alternation = Alternation()
        self._mistrust = 0

    @property
    def unmapped(self) -> Mapping[str, str]:
        """Families that are neither mapped nor ignored, with the first reason seen."""
        full = f"more than {MAX_FAMILY} series"
        return self._mapper.unmapped | {
            name: full for name, too_large in self._left_out.items() if too_large
        }

    def read(self, text: str) -> Reading:
        """Turn one scrape into a reading.

        Raises:
            NotPrometheus: If no line of the text is a sample.
            TooManySeries: If there are more than ``MAX_LINES`` lines.
            SeveralServers: If an earlier life of a counter is back.
        """
        if text.count("\n") > MAX_LINES:
            raise TooManySeries(f"has more than {MAX_LINES} lines")
        if max(len(self._targets), len(self._comments), len(self._left_out)) > self._room:
            # Series that come and go, or a text that changes each time, must not fill the memory.
            self._forget()
        found = select(self._scrape(text))
        if self._mistrust:
            self._mistrust -= 1
            raise SeveralServers(_IN_TURN)
        if self._alternation.seen(_counts(found)):
            # What was counted so far is a mixture: begin anew after a while.
            self._past, self._alternation, self._mistrust = {}, Alternation(), MISTRUST
            raise SeveralServers(_IN_TURN)
        if any(
            past.carry.earlier(parts.get(CREATED))
            for series, parts in found.items()
            if (past := self._past.get(series.key)) is not None
        ):
            raise SeveralServers("answers for several servers in turn, by their start times")
        return self._reading(found)

    def _forget(self) -> None:
        self._targets = {}
        self._comments = set()
        self._sizes = {}
        self._left_out = {name: full for name, full in self._left_out.items() if full}
        self._mapper.forget()

    def _scrape(self, text: str) -> dict[Series, dict[str, float]]:
        while True:
            try:
                return self._parts(text)
            except _Overflow as overflow:
                self._forget()
                if text.count(f"\n{overflow.name}{{") > MAX_FAMILY:
                    self._left_out[overflow.name] = True

    def _parts(self, text: str) -> dict[Series, dict[str, float]]:
        found: dict[Series, dict[str, float]] = {}
        count = 0
        for line in text.split("\n"):
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
            if not line:
                continue
            if line[0] == "#":
                if line not in self._comments:
                    self._comment(line)
            elif name.partition("{")[0] in self._left_out:
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
        if self._mapper.declare(line):
            # A family that changed its type is another family: forget what was remembered.
            self._targets = {}
            self._comments = set()
            self._left_out = {name: full for name, full in self._left_out.items() if full}
            self._mapper.unmapped = {}
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

    def _reading(self, found: Mapping[Series, dict[str, float]]) -> Reading:
        self.models = frozenset(series.model for series in found if series.model)
        if not self.models and self.model:
            self.models = frozenset((self.model,))
        model = next(iter(self.models)) if len(self.models) == 1 else ""
        ranks = {series.rank for series in found if series.rank is not None}
        numbers: dict[Key, list[tuple[Origin, float]]] = {}
        histograms: dict[Key, list[Buckets]] = {}
        measures: dict[str, Series] = {}
        reset = False
        for series, parts in found.items():
            measure = series.measure
            measures[measure.name] = series
            rank = (series.rank or "") if len(ranks) > 1 else ""
            labels = (self.engine.name, self.server, series.model or model, rank, *series.more)
            key = Key(measure.name, labels)
            totals: Mapping[str, float] = parts
            if measure.kind is not Kind.GAUGE:
                totals, went_back = self._carried(series, key, parts)
                reset |= went_back
            if measure.kind is Kind.HISTOGRAM:
                if (whole := buckets(totals)) is not None:
                    histograms.setdefault(key, []).append(whole)
            elif "" in totals:
                numbers.setdefault(key, []).append((series.origin, totals[""]))
        self.resets += reset
        self._add_gone(found, numbers, histograms)
        merged = _merged(numbers, measures)
        derive(self.engine, merged)
        return Reading(
            merged,
            {
                key: whole
                for key, parts in histograms.items()
                if (whole := added(parts)) is not None
            },
        )

    def _carried(
        self, series: Series, key: Key, parts: dict[str, float]
    ) -> tuple[Mapping[str, float], bool]:
        past = self._past.get(series.key)
        if past is None or past.key != key:
            past = self._past[series.key] = _Past(past.carry if past else Carry(), key)
        created = parts.pop(CREATED, None)
        reset = past.carry.update(parts, created)
        return past.carry.totals(), reset

    def _add_gone(
        self,
        found: Mapping[Series, object],
        numbers: dict[Key, list[tuple[Origin, float]]],
        histograms: dict[Key, list[Buckets]],
    ) -> None:
        """Add what replicas counted that are gone: a sum must not go back when one leaves."""
        present = {series.key for series in found}
        for name, past in self._past.items():
            if name in present:
                continue
            totals = past.carry.totals()
            if past.key in histograms:
                if (whole := buckets(totals)) is not None:
                    histograms[past.key].append(whole)
            elif past.key in numbers and "" in totals:
                numbers[past.key].append(((), totals[""]))
        if len(self._past) > 2 * len(present) + SPARE:
            self._past = _folded(self._past, present, numbers.keys() | histograms.keys())


def _counts(found: Mapping[Series, Mapping[str, float]]) -> dict[Name, float]:
    """Return one count of each series that has any: of a histogram, that of all."""
    counts = {}
    for series, parts in found.items():
        if series.measure.kind is not Kind.GAUGE and CREATED not in parts:
            count = parts.get("+Inf", parts.get(""))
            if count is not None:
                counts[series.key] = count
    return counts


def _folded(past: Mapping[Name, _Past], present: set[Name], keys: set[Key]) -> dict[Name, _Past]:
    """Make one of all that is gone from each series of ours, and let go of the rest."""
    kept = {name: entry for name, entry in past.items() if name in present}
    for name, entry in past.items():
        if name in present or entry.key not in keys:
            continue
        together: Name = (-1, entry.key.metric, "\0".join(entry.key.values))
        totals = dict(entry.carry.totals())
        if (other := kept.get(together)) is not None:
            more = other.carry.totals()
            if more.keys() != totals.keys():
                continue
            totals = {part: value + more[part] for part, value in totals.items()}
        carry = Carry()
        carry.update(totals, None)
        kept[together] = _Past(carry, entry.key)
    return kept


def _put(found: dict[Series, dict[str, float]], targets: tuple[Target, ...], value: float) -> None:
    for series, part, scale, fixed in targets:
        parts = found.get(series)
        if parts is None:
            parts = found[series] = {}
        number = value * scale if fixed is None else fixed
        if series.viewed and part in parts:
            number = max(number, parts[part])
        parts[part] = number


def _merged(
    numbers: Mapping[Key, list[tuple[Origin, float]]], measures: Mapping[str, Series]
) -> dict[Key, float]:
    merged: dict[Key, float] = {}
    for key, values in numbers.items():
        measure = measures[key.metric].measure
        weights: dict[Origin, float] = {}
        if len(values) > 1 and measure.across is Across.MEAN:
            for other, others in numbers.items():
                if other.metric == measure.weighted_by:
                    for origin, value in others:
                        weights[origin] = weights.get(origin, 0.0) + value
        merged[key] = one(measure.across, values, weights)
    return merged
