"""Which tenants get series of their own: those with the most load, and with few changes.

A tenant that comes while there is room gets a seat, and keeps it: its counters go on. Once all
seats are taken, a tenant without one waits, and its load is estimated in bounded memory. Once a
minute the seats are looked through: one whose tenant has been silent for an hour goes to the
heaviest tenant that waits; so does that of a tenant whose load is a small part of the other's.
Whoever loses a seat loses its series, all of them at once, as a scraper expects it of something
that has ended; if it comes back they begin anew at zero.

The estimate is that of Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and
top-k elements in data streams" (2005), with several entries let go at a time, and with loads that
fade by half in ten minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

QUIET_SECONDS = 3600.0
"""A seat of a tenant that has been silent for so long may go to another one."""

TENURE_SECONDS = 600.0
"""A seat is kept for so long, however small the load."""

REVIEW_SECONDS = 60.0
"""Time between two looks at the seats."""

HALF_LIFE_SECONDS = 600.0
"""Time in which a load fades by half."""

MARGIN = 4.0
"""A tenant must have so many times the load of the one whose seat it gets."""

_WAITING_PER_SEAT = 4
_SHARE_PER_REVIEW = 10


@dataclass(slots=True)
class _Seat:
    load: float
    since: float
    last: float


@dataclass(slots=True)
class _Waiting:
    """Load of a tenant without a seat.

    Attributes:
        most: What it may be, with what was forgotten before it came.
        least: What it is for certain.
    """

    most: float
    least: float


class Tenants:
    """Gives seats to tenants. Its owner holds the lock.

    Args:
        seats: How many there are.
        now: Monotonic clock, seconds.
    """

    def __init__(self, seats: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most = seats
        self._now = now
        self._seats: dict[str, _Seat] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._forgotten = 0.0
        self._reviewed = now()

    def admit(self, name: str, load: float) -> bool:
        """Count a tenant's load; returns whether the tenant has a seat.

        Args:
            name: The tenant.
            load: In seconds in the batch.
        """
        seat = self._seats.get(name)
        if seat is None:
            if len(self._seats) >= self._most:
                self._wait(name, load)
                return False
            now = self._now()
            self._seats[name] = _Seat(load, now, now)
            return True
        seat.load += load
        seat.last = self._now()
        return True

    def _wait(self, name: str, load: float) -> None:
        waiting = self._waiting.get(name)
        if waiting is None:
            room = _WAITING_PER_SEAT * self._most
            if len(self._waiting) >= 2 * room:
                ranked = sorted(self._waiting.items(), key=lambda item: item[1].most, reverse=True)
                self._waiting = dict(ranked[:room])
                self._forgotten = max(self._forgotten, ranked[room][1].most)
            waiting = self._waiting[name] = _Waiting(self._forgotten, 0.0)
        waiting.most += load
        waiting.least += load

    def review(self) -> list[str]:
        """Look through the seats if it is time; returns the tenants that lost theirs."""
        now = self._now()
        elapsed = now - self._reviewed
        if elapsed < REVIEW_SECONDS:
            return []
        self._reviewed = now
        self._fade(0.5 ** (elapsed / HALF_LIFE_SECONDS))
        if not self._waiting:
            return []
        left = self._silent(now) + self._outweighed(now)
        self._waiting = {name: one for name, one in self._waiting.items() if one.least > 1e-9}
        return left

    def _fade(self, factor: float) -> None:
        for seat in self._seats.values():
            seat.load *= factor
        for waiting in self._waiting.values():
            waiting.most *= factor
            waiting.least *= factor
        self._forgotten *= factor

    def _silent(self, now: float) -> list[str]:
        silent = [name for name, seat in self._seats.items() if seat.last <= now - QUIET_SECONDS]
        silent.sort(key=lambda name: self._seats[name].last)
        taken = silent[: len(self._waiting)]
        for name in taken:
            self._exchange(name, self._heaviest(), now)
        return taken

    def _outweighed(self, now: float) -> list[str]:
        left = []
        for _ in range(max(1, self._most // _SHARE_PER_REVIEW)):
            settled = [
                name for name, seat in self._seats.items() if seat.since <= now - TENURE_SECONDS
            ]
            if not settled or not self._waiting:
                break
            lightest, heaviest = min(settled, key=self._load), self._heaviest()
            if self._waiting[heaviest].least <= MARGIN * self._load(lightest):
                break
            self._exchange(lightest, heaviest, now)
            left.append(lightest)
        return left

    def _load(self, name: str) -> float:
        return self._seats[name].load

    def _heaviest(self) -> str:
        return max(self._waiting, key=lambda name: self._waiting[name].least)

    def _exchange(self, leaves: str, comes: str, now: float) -> None:
        del self._seats[leaves]
        self._seats[comes] = _Seat(self._waiting.pop(comes).least, now, now)
