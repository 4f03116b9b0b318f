"""An engine's Prometheus text to a reading in the catalogue's vocabulary.

Parsing a scrape anew takes ``prometheus-client`` 28 ms for vLLM's 55 kB, at every second 3 % of a
core. The series of an engine hardly change, so each line's series text is parsed once, by that
library, and remembered with what becomes of it; later scrapes only read the numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tailscope.catalogue import METRICS, Across, Engine, Kind
from tailscope.exporter.carry import SUM, Carry
from tailscope.exporter.mapping import CREATED, TYPE, Mapper, Target
from tailscope.exporter.reading import Buckets, Key, Reading

MAX_SERIES = 50_000
"""Most samples in one scrape. vLLM gives 600, an engine with 1,024 fine buckets a few thousand."""

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
    """The text has more samples than an engine ever has."""

    reason = "too_many_series"


class SeveralServers(ScrapeError):
    """Scrapes come from more than one server in turn, so that their counters mean nothing."""

    reason = "several_servers"


class _Series(NamedTuple):
    """One upstream series of a scrape: what becomes of it, its parts, when it was made."""

    target: Target
    parts: dict[str, float]


class Normaliser:
    """Reads one server of one engine, scrape by scrape.

    Args:
        engine: The catalogue's entry.
        server: Value of the ``server`` label, ``host:port``.

    Attributes:
        resets: How often a scrape had series that had gone back.
        models: Served models that the last scrape named.
    """

    def __init__(self, engine: Engine, server: str) -> None:
        self.engine = engine
        self.server = server
        self.resets = 0
        self.models: frozenset[str] = frozenset()
        self._mapper = Mapper(engine)
        self._comments: set[str] = set()
        self._targets: dict[str, Target | None] = {}
        self._carries: dict[tuple[str, str], Carry] = {}
        self._room = SPARE

    @property
    def unmapped(self) -> Mapping[str, str]:
        """Families that are neither mapped nor ignored, with the first reason seen."""
        return self._mapper.unmapped

    def read(self, text: str) -> Reading:
        """Turn one scrape into a reading.

        Raises:
            NotPrometheus: If no line of the text is a sample.
            TooManySeries: If there are more than ``MAX_SERIES`` of them.
            SeveralServers: If an earlier life of a counter is back.
        """
        if max(len(self._targets), len(self._comments)) > self._room:
            # Series that come and go, or a text that changes each time, must not fill the memory.
            self._forget()
        series = _newest(self._scrape(text))
        if any(
            carry.earlier(entry.parts.get(CREATED))
            for entry in series
            if (carry := self._carries.get(entry.target.series)) is not None
        ):
            raise SeveralServers("answers for several servers in turn, by their start times")
        return self._reading(series)

    def _forget(self) -> None:
        self._targets = {}
        self._comments = set()
        self._mapper.forget()

    def _scrape(self, text: str) -> list[_Series]:
        if _too_many(text):
            raise TooManySeries(f"has more than {MAX_SERIES} series")
        found: dict[tuple[str, str], _Series] = {}
        samples = 0
        for target, value in self._samples(text):
            samples += 1
            if target is None or not math.isfinite(value):
                continue
            entry = found.get(target.series)
            if entry is None:
                entry = found[target.series] = _Series(target, {})
            entry.parts[target.part] = (
                value * target.scale if target.fixed_value is None else target.fixed_value
            )
        if not samples:
            raise NotPrometheus("no line is a sample")
        self._room = 2 * samples + SPARE
        return list(found.values())

    def _samples(self, text: str) -> Iterator[tuple[Target | None, float]]:
        for line in text.split("\n"):
            if line.startswith("#"):
                if line not in self._comments:
                    self._comment(line)
                continue
            name, _, number = line.rpartition(" ")
            try:
                target = self._targets[name]
                value = float(number)
            except (KeyError, ValueError):
                if line:
                    yield from self._new(line, name)
            else:
                yield target, value

    def _comment(self, line: str) -> None:
        if self._mapper.declare(line):
            # A family that changed its type is another family: forget what was remembered.
            self._targets = {}
            self._comments = set()
            self._mapper.unmapped = {}
        self._comments.add(line)

    def _new(self, line: str, name: str) -> Iterator[tuple[Target | None, float]]:
        """Parse a line that was not seen before."""
        try:
            parsed = [
                sample
                for family in text_string_to_metric_families(line + "\n")
                for sample in family.samples
            ]
        except (ValueError, IndexError):  # no sample; the other lines may be some
            return
        for sample in parsed:
            target = self._mapper.target(sample.name, sample.labels)
            # With a time stamp or an exemplar the text before the last space is new each time.
            if name and sample.timestamp is None and sample.exemplar is None:
                self._targets[name] = target
            yield target, float(sample.value)

    def _reading(self, series: list[_Series]) -> Reading:
        self.models = frozenset(entry.target.model for entry in series if entry.target.model)
        model = next(iter(self.models)) if len(self.models) == 1 else ""
        ranks = {entry.target.rank for entry in series if entry.target.rank is not None}
        numbers: dict[Key, list[float]] = {}
        histograms: dict[Key, list[Buckets]] = {}
        reset = False
        for target, parts in series:
            rank = (target.rank or "") if len(ranks) > 1 else ""
            labels = (self.engine.name, self.server, target.model or model, rank, *target.more)
            key = Key(target.metric.name, labels)
            if target.metric.kind is Kind.GAUGE:
                numbers.setdefault(key, []).append(parts[""])
                continue
            totals, went_back = self._carried(target, parts)
            reset |= went_back
            if target.metric.kind is Kind.HISTOGRAM:
                if (buckets := _buckets(totals)) is not None:
                    histograms.setdefault(key, []).append(buckets)
            elif "" in totals:
                numbers.setdefault(key, []).append(totals[""])
        self.resets += reset
        self._prune(series)
        return Reading(
            {key: _merge(METRICS[key.metric].across, values) for key, values in numbers.items()},
            {key: whole for key, parts in histograms.items() if (whole := _add(parts)) is not None},
        )

    def _carried(self, target: Target, parts: dict[str, float]) -> tuple[Mapping[str, float], bool]:
        carry = self._carries.get(target.series)
        if carry is None:
            carry = self._carries[target.series] = Carry()
        created = parts.pop(CREATED, None)
        reset = carry.update(parts, created)
        return carry.totals(), reset

    def _prune(self, series: list[_Series]) -> None:
        """Let go of series that are gone, but only if they are many: one may come back."""
        if len(self._carries) > 2 * len(series) + SPARE:
            present = {entry.target.series for entry in series}
            self._carries = {key: self._carries[key] for key in present & self._carries.keys()}


def _too_many(text: str) -> bool:
    """Count the samples before any is parsed: parsing a million takes a minute."""
    if text.count("\n") <= MAX_SERIES:
        return False
    return sum(line[:1] not in ("", "#") for line in text.split("\n")) > MAX_SERIES


def _newest(series: list[_Series]) -> list[_Series]:
    """Leave out old names of families that are there under a newer name as well.

    An engine that renames a family gives both names for some versions; the sum would be double.
    """
    newest: dict[int, int] = {}
    for target, _ in series:
        newest[target.upstream] = min(target.age, newest.get(target.upstream, target.age))
    return [entry for entry in series if entry.target.age == newest[entry.target.upstream]]


def _buckets(values: Mapping[str, float]) -> Buckets | None:
    """Order the parts of a histogram; None if it is not whole."""
    bounds = sorted((part for part in values if part not in (SUM, "count", "+Inf")), key=float)
    total = values.get("+Inf", values.get("count"))
    if total is None:
        return None
    counts = {bound: values[bound] for bound in bounds}
    counts["+Inf"] = total
    return Buckets(counts, values.get(SUM))


def _merge(across: Across, values: list[float]) -> float:
    if across is Across.MAX:
        return max(values)
    total = math.fsum(values)
    return total / len(values) if across is Across.MEAN else total


def _add(parts: list[Buckets]) -> Buckets | None:
    """Add histograms; None if their bounds differ, for then the sum would lie."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.counts.keys() != first.counts.keys() for part in parts):
        return None
    sums = [part.sum for part in parts if part.sum is not None]
    return Buckets(
        {bound: sum(part.counts[bound] for part in parts) for bound in first.counts},
        math.fsum(sums) if len(sums) == len(parts) else None,
    )


def recognise(text: str, engines: Iterable[Engine]) -> Engine | None:
    """Say which engine wrote a scrape; None if none of the catalogue's did."""
    for engine in engines:
        for prefix in engine.prefixes:
            for family in (mark.family for mark in engine.recognise):
                if re.search(rf"^{re.escape(prefix + family)}(_total)?[ {{]", text, re.MULTILINE):
                    return engine
    return None


def families(text: str, most: int = 5) -> list[str]:
    """Return the first families that a scrape names, for a message."""
    return [hit[1] for hit, _ in zip(TYPE.finditer(text), range(most), strict=False)]
