"""Tells several servers that answer in turn at one address from one that restarts.

Where an engine gives the times at which its series were made, those tell. Without them each turn
looks like a restart: the counts go back, and then up again to where they were. An engine that
restarts needs seconds to load and begins at 0; it does not do that twice in a few reads.
"""

from __future__ import annotations

from collections.abc import Mapping

WINDOW = 10
"""Reads in which a return is still one to the level before a reset."""

RETURNS = 2
"""Returns within one window after another that are no chance."""

LEAST = 100.0
"""Counts below this are reached again at once after a real restart."""

Name = tuple[int, str, str]


class Alternation:
    """Watches the counts of one source."""

    def __init__(self) -> None:
        self._last: dict[Name, float] = {}
        self._before: dict[Name, float] = {}
        self._since = 0
        self._returns = 0

    def seen(self, counts: Mapping[Name, float]) -> bool:
        """Take the raw counts of a read; returns whether they come from several servers."""
        self._since += 1
        if self._since > WINDOW:
            self._before, self._returns = {}, 0
        back = {
            name: last
            for name, last in self._last.items()
            if last >= LEAST and counts.get(name, last) < last
        }
        again = sum(counts.get(name, 0.0) >= level for name, level in self._before.items())
        self._last = dict(counts)
        if back:
            self._before, self._since = back, 0
        elif again * 2 > len(self._before):
            self._returns += 1
            self._before, self._since = {}, 0
        return self._returns >= RETURNS
