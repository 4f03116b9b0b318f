"""Recorded scrapes whose counters go on from one loop to the next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from tailscope.demo.recording import Scrape

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
    """The text of ``/metrics`` at any time of any loop.

    Counters, histograms and summaries are carried on: value + loops * (last - first), so that a
    new loop does not look like a restart of the engine. Everything else is as recorded. A series
    that appeared while it was recorded is there from the start of the second loop on; one that
    the last scrape lacks is there in the first loop only.

    Args:
        scrapes: Oldest first; at least one.
    """

    def __init__(self, scrapes: Sequence[Scrape]) -> None:
        self._scrapes = scrapes
        self._times = [scrape.at_ns for scrape in scrapes]
        self._last = list(_lines(scrapes[-1].text))
        first = _values(scrapes[0].text)
        # Decimal is exact here: a sum of floats could go back by its last digit at the edge.
        self._gain = {
            line.text: Decimal(line.value) - Decimal(first.get(line.text, 0))
            for line in self._last
            if line.cumulative
        }
        self._text = lru_cache(maxsize=4)(self._render)

    def at(self, loop: int, recorded_ns: int) -> str:
        """Return the latest scrape at a recorded time, as it is in a loop."""
        index = max(bisect_right(self._times, recorded_ns) - 1, 0)
        return self._text(index, loop)

    def _render(self, index: int, loop: int) -> str:
        text = self._scrapes[index].text
        if loop == 0:
            return text
        values = _values(text)
        lines = []
        for line in self._last:
            if not line.value:
                lines.append(line.text)
            elif line.cumulative:
                value = Decimal(values.get(line.text, 0)) + loop * self._gain[line.text]
                lines.append(f"{line.text} {float(value)}")
            elif line.text in values:
                lines.append(f"{line.text} {values[line.text]}")
        return "\n".join(lines) + "\n"


def _values(text: str) -> dict[str, str]:
    return {line.text: line.value for line in _lines(text) if line.value}
