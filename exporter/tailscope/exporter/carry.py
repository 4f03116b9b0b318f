"""Carries the counts of one upstream series on over restarts of its engine.

Prometheus would forgive a counter that goes back; an integral, a sum over several engines or a
store of samples would not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

SUM = "sum"
"""The part of a histogram that is no count."""

_SLACK = 1e-9
"""Relative loss that is still no restart: sums over several files differ in their last digits."""

_MAX_LIVES = 8


class Carry:
    """The parts of one counter (one part) or histogram (its bounds, ``sum`` and ``count``)."""

    __slots__ = ("_lives", "_offsets", "_values")

    def __init__(self) -> None:
        self._values: Mapping[str, float] = {}
        self._offsets: dict[str, float] = {}
        self._lives: list[float] = []

    def earlier(self, created: float | None) -> bool:
        """Return whether a series of an earlier life is back: another server has answered.

        Args:
            created: When the engine made the series, as Unix time; None where it does not say.
        """
        return created is not None and created in self._lives[:-1]

    def update(self, values: Mapping[str, float], created: float | None) -> bool:
        """Take new raw values.

        Returns:
            Whether the counts began anew.
        """
        known, self._values = self._values, values
        renewed = self._renewed(created)
        if not known or (values == known and not renewed):
            return False
        if values.keys() != known.keys() and _counts(values) != _counts(known):
            # Other bounds: what was counted in the old ones has no place in the new ones.
            self._offsets = {}
            return True
        if renewed or _went_back(known, values):
            for part in known.keys() | values.keys():
                # A sum that is lacking in one life is unknown over all of them.
                earlier = known.get(part, math.nan)
                self._offsets[part] = self._offsets.get(part, 0.0) + earlier
            return True
        return False

    def _renewed(self, created: float | None) -> bool:
        if created is None or (self._lives and created == self._lives[-1]):
            return False
        self._lives = [*self._lives[1 - _MAX_LIVES :], created]
        return len(self._lives) > 1

    def totals(self) -> Mapping[str, float]:
        """Return the values with what earlier lives of the engine counted."""
        if not self._offsets:
            return self._values
        totals = {
            part: value + self._offsets.get(part, 0.0) for part, value in self._values.items()
        }
        return {part: total for part, total in totals.items() if math.isfinite(total)}


def _counts(values: Mapping[str, float]) -> set[str]:
    return values.keys() - {SUM}


def _went_back(known: Mapping[str, float], values: Mapping[str, float]) -> bool:
    for part, before in known.items():
        if part != SUM and values[part] < before and values[part] < before * (1 - _SLACK):
            return True
    return False
