"""Tells when the wall clock has jumped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

JUMP_SECONDS = 600.0
"""A clock that is set by more than this has jumped; less is drift that is made good."""

DOUBT_SECONDS = 3600.0
"""After a jump the clock is not trusted for so long: it may be set right again."""


def _running() -> float:
    """Seconds since the machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WallClock:
    """Compares the wall clock with one that cannot be set.

    Args:
        now: Wall clock, seconds.
        running: A clock that nobody sets, seconds.
    """

    def __init__(
        self, now: Callable[[], float] = time.time, running: Callable[[], float] = _running
    ) -> None:
        self._now = now
        self._running = running
        self._offset = now() - running()
        self._doubted_until: float | None = None

    def steady(self) -> bool:
        """Whether the clock can be trusted; says so in the log when it no longer can."""
        running = self._running()
        offset = self._now() - running
        jump = offset - self._offset
        self._offset = offset
        if abs(jump) > JUMP_SECONDS:
            log.warning(
                "the clock was set by %+.0f s; nothing is deleted for its age in the next hour",
                jump,
            )
            self._doubted_until = running + DOUBT_SECONDS
        return self._doubted_until is None or running >= self._doubted_until
