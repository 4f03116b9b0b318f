"""The wall clock, and waits that end at once when it is stopped."""

from __future__ import annotations

import threading
import time

_LONGEST_WAIT = 1.0
"""Seconds; a clock that was set, or a machine that slept, is noticed within this time."""


class Clock:
    """Wall clock with interruptible waits. Safe to share between threads."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._interrupted = False

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` or ``interrupt`` was called."""
        return self._interrupted or self._stop.is_set()

    def now_ns(self) -> int:
        """Return the present, UTC nanoseconds."""
        return time.time_ns()

    def wait(self, seconds: float) -> bool:
        """Wait; return False as soon as the clock is stopped."""
        self._stop.wait(seconds)
        return not self.stopped

    def reach(self, due_ns: int) -> bool:
        """Wait until a time has come; return False as soon as the clock is stopped."""
        while (left := (due_ns - self.now_ns()) / 1e9) > 0:
            if not self.wait(min(left, _LONGEST_WAIT)):
                return False
        return not self.stopped

    def stop(self) -> None:
        """End all waits, now and later."""
        self._stop.set()

    def interrupt(self) -> None:
        """Stop, from a signal handler: waits end when their time is over.

        An event's own lock may be held by the very code that the signal interrupts.
        """
        self._interrupted = True
