"""When to try again what did not work."""

from __future__ import annotations


class Backoff:
    """Waits twice as long after each try.

    Args:
        first: Seconds from the first try to the second.
        most: Most seconds between two tries.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._wait = first
        self._due: float | None = None

    def ready(self, now: float) -> bool:
        """Whether it is time to try; always before the first try."""
        return self._due is None or now >= self._due

    def tried(self, now: float) -> None:
        """Note a try."""
        self._due = now + self._wait
        self._wait = min(2 * self._wait, self._most)

    def reset(self) -> None:
        """Note that it works."""
        self._wait, self._due = self._first, None
