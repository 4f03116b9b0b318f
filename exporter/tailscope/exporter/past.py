"""What the counters of one server have counted, over restarts and over replicas that left."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from tailscope.catalogue import Kind
from tailscope.exporter.alternation import RETURNS, Alternation, Name
from tailscope.exporter.carry import Carry
from tailscope.exporter.mapping import CREATED, Series
from tailscope.exporter.merge import Origin, buckets
from tailscope.exporter.reading import Buckets, Key
from tailscope.exporter.scrapeerror import SeveralServers

MISTRUST = 600
"""Reads after which a server that looked like several is believed again."""

SPARE = 1_000
"""Series that are remembered beyond twice those of the last scrape."""

_IN_TURN = "answers for several servers in turn: its counts go back and up again"
_TOGETHER = -1


class _One(NamedTuple):
    """A counter or histogram that was seen: its counts, and which series of ours it is part of."""

    carry: Carry
    key: Key


class Past:
    """Remembers each counter and histogram of one server."""

    def __init__(self) -> None:
        self._seen: dict[Name, _One] = {}
        self._alternation = Alternation()
        self._returns = 0
        self._mistrust = 0

    def check(self, found: Mapping[Series, Mapping[str, float]]) -> None:
        """Look whether it is still the one server that it was.

        Raises:
            SeveralServers: If an earlier life of a counter is back.
        """
        if self._mistrust:
            self._mistrust -= 1
            raise SeveralServers(_IN_TURN)
        if self._alternation.seen(_counts(found)):
            self._doubt()
            raise SeveralServers(_IN_TURN)
        if any(
            one.carry.earlier(parts.get(CREATED))
            for series, parts in found.items()
            if (one := self._seen.get(series.key)) is not None
        ):
            self._returns += 1
            if self._returns >= RETURNS:
                self._doubt()
            raise SeveralServers("answers for several servers in turn, by their start times")

    def _doubt(self) -> None:
        """Begin anew, but not at once: what was counted is a mixture, and so is what comes."""
        self._seen, self._alternation = {}, Alternation()
        self._returns, self._mistrust = 0, MISTRUST

    def carried(
        self, series: Series, key: Key, parts: dict[str, float]
    ) -> tuple[Mapping[str, float], bool]:
        """Take new counts; returns them with what earlier lives counted, and if one has ended."""
        one = self._seen.get(series.key)
        if one is None or one.key != key:
            one = self._seen[series.key] = _One(one.carry if one else Carry(), key)
        created = parts.pop(CREATED, None)
        reset = one.carry.update(parts, created)
        return one.carry.totals(), reset

    def add_gone(
        self,
        present: Set[Name],
        numbers: dict[Key, list[tuple[Origin, float]]],
        histograms: dict[Key, list[Buckets]],
    ) -> None:
        """Add what replicas counted that are gone: a sum must not go back when one leaves."""
        for name, one in self._seen.items():
            if name in present:
                continue
            totals = one.carry.totals()
            if one.key in numbers:
                if "" in totals:
                    numbers[one.key].append(((), totals[""]))
            elif (now := histograms.get(one.key)) is not None:
                whole = buckets(totals)
                # What was counted in other bounds has no place in those of now.
                if whole is not None and whole.counts.keys() == now[0].counts.keys():
                    now.append(whole)
        if len(self._seen) > 2 * len(present) + SPARE:
            self._seen = _folded(self._seen, present, numbers.keys() | histograms.keys())


def _counts(found: Mapping[Series, Mapping[str, float]]) -> dict[Name, float]:
    """Return one count of each series that has any: of a histogram, that of all."""
    counts = {}
    for series, parts in found.items():
        if series.measure.kind is not Kind.GAUGE and CREATED not in parts:
            count = parts.get("+Inf", parts.get(""))
            if count is not None:
                counts[series.key] = count
    return counts


def _folded(seen: Mapping[Name, _One], present: Set[Name], keys: Set[Key]) -> dict[Name, _One]:
    """Make one of all that is gone from each series of ours, and let go of the rest."""
    kept = {name: one for name, one in seen.items() if name in present}
    for name, one in seen.items():
        if name in present or one.key not in keys:
            continue
        together: Name = (_TOGETHER, one.key.metric, "\0".join(one.key.values))
        totals = dict(one.carry.totals())
        if (other := kept.get(together)) is not None:
            more = other.carry.totals()
            if more.keys() != totals.keys():
                continue
            totals = {part: value + more[part] for part, value in totals.items()}
        carry = Carry()
        carry.update(totals, None)
        kept[together] = _One(carry, one.key)
    return kept
