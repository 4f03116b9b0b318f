"""The grid: panels fill lines of 24 columns; a line starts below the highest panel of the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Place:
    """Position and size in units of the grid; a unit of height is 30 pixels."""

    x: int
    y: int
    w: int
    h: int


def pack(sizes: Iterable[tuple[int, int]], top: int) -> Iterator[Place]:
    """Yield a place for each (width, height), in reading order from the line ``top`` on.

    Raises:
        ValueError: If a width does not fit into the grid.
    """
    x = y = 0
    line = 0
    y = top
    for width, height in sizes:
        if not 0 < width <= COLUMNS:
            raise ValueError(f"a panel is 1 to {COLUMNS} columns wide, not {width}")
        if x + width > COLUMNS:
            x, y, line = 0, y + line, 0
        yield Place(x, y, width, height)
        x, line = x + width, max(line, height)
