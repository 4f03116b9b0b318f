"""Things that are read in turn, a few at a time, so that no read has many calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Rotation(Generic[_T]):
    """Hands out all of them the first time, and then a few each time.

    Args:
        items: The things.
        interval: Seconds from one time to the next.
        round_seconds: Seconds within which each is to have its turn.
    """

    def __init__(self, items: Sequence[_T], interval: float, round_seconds: float) -> None:
        self._items = items
        self._some = min(len(items), math.ceil(len(items) * interval / round_seconds))
        self._next: int | None = None

    def due(self) -> list[_T]:
        """Return those whose turn it is."""
        if self._next is None:
            self._next = 0
            return list(self._items)
        first, self._next = self._next, self._next + self._some
        return [self._items[place % len(self._items)] for place in range(first, self._next)]
