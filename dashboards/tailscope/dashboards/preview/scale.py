"""Axes: round numbers for values, round times for moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tailscope.dashboards.style import Unit

_TIME_STEPS: Final = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
_BINARY: Final = ("bytes", "Bps")
_LONG: Final = (20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
"""Steps between durations of minutes and more: 1.5 min and 2 min, not 1.67 min and 3.33 min."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values to pixels: ``low`` at pixel ``start``, ``high`` at pixel ``end``."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value, inside of the axis."""
        part = (value - self.low) / (self.high - self.low or 1)
        return round(self.start + min(max(part, 0), 1) * (self.end - self.start), 1)


def ticks(low: float, high: float, count: int = 4, unit: str = "") -> list[float]:
    """Return round numbers from at or below ``low`` to at or above ``high``."""
    rough = (high - low or abs(high) or 1) / count
    if unit == Unit.SECONDS and rough > _LONG[0] / 2:
        step = float(
            next((size for size in _LONG if size >= rough), math.ceil(rough / 86400) * 86400)
        )
        return _marks(low, high, step)
    base = 2.0 if unit in _BINARY else 10.0
    power = base ** math.floor(math.log(rough, base))
    factors = (1.0, 2.0) if base == 2 else (1.0, 2.0, 2.5, 5.0, 10.0)
    step = next((power * factor for factor in factors if power * factor >= rough), power * base)
    return _marks(low, high, step)


def _marks(low: float, high: float, step: float) -> list[float]:
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def moments(start: float, end: float, count: int = 5) -> list[tuple[float, str]]:
    """Return round moments between two Unix times, and their texts."""
    rough = (end - start) / count
    step = next((size for size in _TIME_STEPS if size >= rough), _TIME_STEPS[-1])
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%m-%d"
    first = math.ceil(start / step)
    return [
        (float(number * step), datetime.fromtimestamp(number * step, UTC).strftime(form))
        for number in range(first, int(end // step) + 1)
    ]
