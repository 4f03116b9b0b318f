"""Recorded scrapes whose counters go on from one pass to the next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from tailscope.demo.recording import Scrape
from tailscope.demo.schedule import Schedule

_CUMULATIVE = {"counter", "histogram", "summary"}


class _Line(NamedTuple):
    """A line of a scrape: a comment (no value), or a series and its value."""

    text: str
    value: str = ""
    cumulative: bool = False


def _lines(text: str) -> Iterator[_Line]:
    cumulative = False
    for line in text.splitlines():
        if line.startswith("#"):
            if line.startswith("# TYPE "):
                cumulative = line.rsplit(" ", 1)[1] in _CUMULATIVE
            yield _Line(line)
        elif line:
            series, value = line.rsplit(" ", 1)
            # The quantiles of a summary are no counts. A `_created` has a TYPE of its own: gauge.
            yield _Line(series, value, cumulative and 'quantile="' not in series)


class Exposition:
    """The text of ``/metrics`` at any time of a schedule.

    Counters, histograms and summaries are carried on: what they gained in the passes before is
    added to what they had at the start of the run, so that a new pass does not look like a restart
    of the engine. Everything else is as recorded. All series of the last scrape are there from the
    start; a piece begins and ends with the scrapes nearest to its bounds.

    Args:
        scrapes: Oldest first; at least one.
        schedule: Says what was played before, and what is played now.
    """

    def __init__(self, scrapes: Sequence[Scrape], schedule: Schedule) -> None:
        self._scrapes = scrapes
        self._schedule = schedule
        self._times = [scrape.at_ns for scrape in scrapes]
        self._last = list(_lines(scrapes[-1].text))
        self._cumulative = [line.text for line in self._last if line.cumulative]
        self._counts = lru_cache(maxsize=None)(self._read)
        self._carried = lru_cache(maxsize=2)(self._carry)
        self._text = lru_cache(maxsize=4)(self._render)

    def at(self, now_ns: int) -> str:
        """Return the latest scrape of the present pass, with all that was counted before."""
        number, recorded_ns = self._schedule.position(now_ns)
        latest = bisect_right(self._times, recorded_ns) - 1
        begin = self._nearest(self._schedule.one(number).piece.start_ns)
        return self._text(max(latest, begin), number)

    def _nearest(self, at_ns: int) -> int:
        return min(range(len(self._times)), key=lambda index: abs(self._times[index] - at_ns))

    def _read(self, index: int) -> list[Decimal]:
        """The counters of a scrape. A series that it lacks had counted nothing yet."""
        values = _values(self._scrapes[index].text)
        # Decimal is exact here: a sum of floats could go back by its last digit at an edge.
        return [Decimal(values.get(name, 0)) for name in self._cumulative]

    def _carry(self, number: int) -> list[Decimal]:
        """What is added to the counters that were recorded, in a pass."""
        total = self._counts(0)
        for piece, times in self._schedule.played(number).items():
            begin = self._counts(self._nearest(piece.start_ns))
            end = self._counts(self._nearest(piece.end_ns))
            total = [t + times * (e - b) for t, b, e in zip(total, begin, end, strict=True)]
        begin = self._counts(self._nearest(self._schedule.one(number).piece.start_ns))
        return [t - b for t, b in zip(total, begin, strict=True)]

    def _render(self, index: int, number: int) -> str:
        counts = zip(self._counts(index), self._carried(number), strict=True)
        carried = iter([count + before for count, before in counts])
        values = _values(self._scrapes[index].text)
        lines = []
        for line in self._last:
            if not line.value:
                lines.append(line.text)
            elif line.cumulative:
                lines.append(f"{line.text} {float(next(carried))}")
            elif line.text in values:
                lines.append(f"{line.text} {values[line.text]}")
        return "\n".join(lines) + "\n"


def _values(text: str) -> dict[str, str]:
    return {line.text: line.value for line in _lines(text) if line.value}
