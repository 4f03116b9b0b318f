"""Requests that are sent again, and work that goes on for clients who have left.

A retry is load: where every slow request is sent again, the queue feeds itself. And an engine that
is not told that a client has gone works on; that is time of a tenant, too, and nobody gets it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.stages import Flags, floats, named

_LEFT = 0.5
"""Seconds that an engine may work on before it counts."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Repeated attempts and abandoned work.

    Attributes:
        attempts: Requests that were a second or later attempt.
        factor: Requests per call: 1.0 without retries.
        seconds: Time that they were in the engine.
        share: Part of the time of all requests in the engine.
        tenants: Repeated attempts by tenant, the most first.
        abandoned: Requests that the engine worked on after their client had left.
        abandoned_seconds: For how long.
    """

    attempts: int
    factor: float
    seconds: float
    share: float
    tenants: tuple[tuple[str, int], ...]
    abandoned: int
    abandoned_seconds: float

    @property
    def any(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.attempts or self.abandoned)


def again(frame: pd.DataFrame) -> Flags:
    """Which requests are a second or later attempt of a call, shape (n,).

    By the attempt's number where it is told. Otherwise by the key that the attempts of one call
    share (a session, an idempotency key, the gateway's span): the attempt before, of the same size
    as far as that is known, did not end well. Never by time.
    """
    attempt = floats(frame, "attempt")
    found: Flags = attempt > 1
    tenants = named(frame, "tenant", "").to_numpy()
    sessions = named(frame, "session", "").to_numpy()
    order = np.lexsort((frame["arrived_ns"].to_numpy(), sessions, tenants))
    one, next_ = order[:-1], order[1:]
    same = (sessions[one] == sessions[next_]) & (tenants[one] == tenants[next_])
    same &= (sessions[next_] != "") & np.isnan(attempt[next_])
    ended = frame["outcome"].fillna("ok").to_numpy()
    size = floats(frame, "input_tokens")
    equal = (size[one] == size[next_]) | np.isnan(size[one]) | np.isnan(size[next_])
    found[next_] |= same & equal & (ended[one] != "ok")
    return found


def retries(frame: pd.DataFrame) -> Retries:
    """Count the repeated attempts and the abandoned work of some requests."""
    repeated = again(frame)
    total = np.nan_to_num(floats(frame, "total_seconds"))
    beyond = total - floats(frame, "client_seconds")
    left = beyond >= _LEFT
    counts = named(frame[repeated], "tenant").value_counts()
    whole = float(total.sum())
    # A log that begins with second attempts has lost their first ones; one call is there at least.
    attempts = min(int(repeated.sum()), len(frame) - 1) if len(frame) else 0
    seconds = float(total[repeated].sum())
    return Retries(
        attempts=attempts,
        factor=len(frame) / (len(frame) - attempts) if attempts else 1.0,
        seconds=seconds,
        share=seconds / whole if whole > 0 else 0.0,
        tenants=tuple((str(name), int(count)) for name, count in counts.items()),
        abandoned=int(left.sum()),
        abandoned_seconds=float(beyond[left].sum()),
    )
