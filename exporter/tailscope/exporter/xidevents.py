"""XID events from what dcgm-exporter says of them: the last code, or its own counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from tailscope.catalogue import xid


class XidEvents:
    """Counts the XID events of each GPU while we look.

    From the last code alone it is a lower bound: the same code twice is one event here, two codes
    between two reads are one, and what is shown at first sight may be days old and is none. The
    exporter's own counts, where they are switched on, miss none, and the last code is not counted.

    Args:
        now: Wall clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._seen: set[str] = set()
        self._last: dict[str, set[int]] = {}
        self._totals: dict[str, dict[int, float]] = {}
        self._counts: dict[str, dict[int, float]] = {}
        self._times: dict[str, float] = {}

    def observe(self, uuid: str, last: Iterable[int], totals: Mapping[int, float]) -> None:
        """Take what one page says of a GPU.

        Args:
            uuid: The GPU.
            last: The last code, 0 if there was none; empty if it is not shown. There may be
                several: a GPU that is split by MIG repeats it for each instance, and not all
                change at once.
            totals: Events by code since the exporter started; empty if it does not count them, or
                has none to count.
        """
        first = uuid not in self._seen
        self._seen.add(uuid)
        shown = {*last}
        if not shown and not totals:
            return
        new = shown - self._last.get(uuid, shown) - {0}
        if shown:
            self._last[uuid] = shown
        counts = self._counts.setdefault(uuid, dict.fromkeys(xid.FORESEEN, 0.0))
        if totals or uuid in self._totals:
            new = self._count(uuid, totals, first)
        else:
            for code in shown - {0}:
                counts[code] = counts.get(code, 0.0) + (code in new)
        if new:
            self._times[uuid] = self._now()

    def _count(self, uuid: str, totals: Mapping[int, float], first: bool) -> set[int]:
        """Add what the exporter counted since the last page; returns the codes that it did."""
        counts, before = self._counts[uuid], self._totals.get(uuid, {})
        new: set[int] = set()
        for code, total in totals.items():
            if code in before:
                # It counts from 0 again when it starts again.
                more = total - before[code] if total >= before[code] else total
            else:
                # A code's series begins with its first event, which the last code may have shown
                # one page earlier; at our own start it is of the past.
                more = 0.0 if first else max(0.0, total - counts.get(code, 0.0))
            counts[code] = counts.get(code, 0.0) + more
            if more:
                new.add(code)
        # A code that is gone was forgotten by an exporter that started again.
        self._totals[uuid] = {**dict.fromkeys(before, 0.0), **totals}
        return new

    def keep(self, uuids: Iterable[str]) -> None:
        """Forget all other GPUs."""
        wanted = {*uuids}
        self._seen &= wanted
        for kept in (self._last, self._totals, self._counts, self._times):
            for uuid in kept.keys() - wanted:
                kept.pop(uuid)

    def counts(self, uuid: str) -> Mapping[int, float]:
        """Return the events of a GPU by code, 0 for the codes that matter most."""
        return self._counts.get(uuid, {})

    def time(self, uuid: str) -> float | None:
        """Return when a GPU last had an event, as Unix time."""
        return self._times.get(uuid)
