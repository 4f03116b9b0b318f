"""Counters of one GPU that go on where those of its driver begin anew."""

from __future__ import annotations

from collections.abc import Hashable

from tailscope.exporter.reading import Key


class Ledger:
    """What was counted for one GPU, over reloads of its driver. For one thread at a time."""

    def __init__(self) -> None:
        self._totals: dict[Key, float] = {}
        self._last: dict[tuple[Key, Hashable], float] = {}

    def carry(self, key: Key, raw: float, origin: Hashable = None) -> float:
        """Take what the driver counted; returns our total.

        Args:
            key: Our series.
            raw: The driver's counter; one that went back began anew at 0.
            origin: Which of the driver's counters it is, where there are several for one series.
        """
        last = self._last.get((key, origin))
        self._last[key, origin] = raw
        total = self._totals.get(key)
        if total is None:
            total = raw
        elif last is not None:
            total += raw - last if raw >= last else raw
        self._totals[key] = total
        return total

    def add(self, key: Key, amount: float) -> float:
        """Add to a counter of our own; returns the total."""
        total = self._totals[key] = self._totals.get(key, 0.0) + amount
        return total
