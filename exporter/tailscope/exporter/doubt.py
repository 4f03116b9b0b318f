"""Doubt about activity that is 0 while the GPU works hard.

After some XIDs the profiling counters stand still without an error (dcgm-exporter issue 662, DCGM
issue 303). That SM activity is 0 while a kernel runs all the time is no proof: "utilisation" may
be stuck at 100 % after a process was killed. With the power of a busy GPU it is; where the limit of
the power is not told, as by dcgm-exporter, with memory that is read and written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from tailscope.catalogue import PREFIX
from tailscope.catalogue.nvml import SM_ACTIVE
from tailscope.exporter.reading import Key

READS = 5
"""Reads in a row that have to be odd before GPM begins anew, and again before it is dropped."""

_GRAPHICS_ACTIVE = f"{PREFIX}gpu_graphics_active_ratio"

_IDLE = 0.001  # one thread on one of 132 multiprocessors is 0.0076
_BUSY = 0.95
_WARM = 0.5
_MOVING = 0.05  # share of the time in which memory is read or written


class Verdict(Enum):
    """What to do with the activity that was read."""

    BELIEVE = auto()
    BEGIN_ANEW = auto()
    DROP = auto()


class Doubt:
    """Watches one GPU."""

    def __init__(self) -> None:
        self._odd = 0

    def judge(self, numbers: Mapping[Key, float], activity: Mapping[Key, float]) -> Verdict:
        """Compare the activity with the other readings."""
        active = _of(activity, SM_ACTIVE)
        if active is None:
            active = _of(activity, _GRAPHICS_ACTIVE)
        if active is None:
            return Verdict.BELIEVE
        odd = active < _IDLE and _works(numbers)
        self._odd = self._odd + 1 if odd else 0
        if self._odd == READS:
            return Verdict.BEGIN_ANEW
        return Verdict.DROP if self._odd > 2 * READS else Verdict.BELIEVE


def _works(numbers: Mapping[Key, float]) -> bool:
    if (_of(numbers, f"{PREFIX}gpu_utilization_ratio") or 0.0) < _BUSY:
        return False
    limit = _of(numbers, f"{PREFIX}gpu_power_limit_watts")
    if limit is None:
        return (_of(numbers, f"{PREFIX}gpu_memory_utilization_ratio") or 0.0) >= _MOVING
    return (_of(numbers, f"{PREFIX}gpu_power_watts") or 0.0) > _WARM * limit


def _of(numbers: Mapping[Key, float], metric: str) -> float | None:
    return next((value for key, value in numbers.items() if key.metric == metric), None)
