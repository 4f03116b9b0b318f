"""Counters that go back, as they do when what counts them restarts."""

from __future__ import annotations


class Carry:
    """Values of one upstream series, carried on over restarts of what counts them."""

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._offsets: dict[str, float] = {}

    def update(self, values: dict[str, float]) -> bool:
        """Take new raw values by part; returns whether they went back.

        A counter has one part; a histogram has its bounds, its sum and its count.
        """
        known = self._values
        reset = False
        if known:
            if values.keys() != known.keys():
                # Other bounds: what was counted in the old ones has no place in the new ones.
                self._offsets = {}
                reset = True
            elif any(values[part] < known[part] for part in values):
                for part, value in known.items():
                    self._offsets[part] = self._offsets.get(part, 0.0) + value
                reset = True
        self._values = values
        return reset

    def totals(self) -> dict[str, float]:
        """Values with what earlier lives counted."""
        if not self._offsets:
            return self._values
        return {part: value + self._offsets.get(part, 0.0) for part, value in self._values.items()}
