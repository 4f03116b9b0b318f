"""Attempts of one call, and timeouts that cut the tail.

Attempts are linked by what the sources say, never by time: the number of the attempt, or the key
that the attempts of one call share (a session, an idempotency key, the gateway's span) together
with how the one before ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.stages import Flags, Floats, floats, named
from tailscope.triage.survival import timeout
from tailscope.triage.work import CENSORED

LEVELS = (0.5, 0.95, 0.99)

_NEAR = 0.01
"""Times this near to each other, as a share, are one time, as in ``survival.timeout``."""


@dataclass(frozen=True, slots=True)
class Amplification:
    """How many requests the retries add.

    Attributes:
        requests: All that came, attempts of every number.
        retries: Those of them that are a second or later attempt.
        tenants: Tenant, its requests, its retries; most retries first, those without any left out.
    """

    requests: int
    retries: int
    tenants: tuple[tuple[str, int, int], ...]

    @property
    def factor(self) -> float:
        """Requests per call: 1.0 without retries."""
        return self.requests / (self.requests - self.retries)

    def text(self) -> str:
        """Say it in a sentence."""
        first = self.tenants[0]
        return (
            f"Retries add {self.retries / (self.requests - self.retries):.1%} to the load: "
            f"{self.retries:,} of {self.requests:,} requests are second or later attempts, "
            f"{first[2]:,} of them by {first[0]}."
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """A constant timeout at which requests are given up.

    Attributes:
        seconds: The timeout.
        requests: Given up there.
        share: Their part of all requests.
        level: Lowest of the usual percentiles that is cut, 0-1; None if none of them is.
    """

    seconds: float
    requests: int
    share: float
    level: float | None

    def text(self) -> str:
        """Say it in a sentence."""
        share = f"{self.share:.1%} of requests end there"
        if self.level is None:
            return f"Requests are given up at {self.seconds:.1f} s: {share}."
        return f"p{self.level * 100:g} is cut at {self.seconds:.1f} s: {share}."


def amplification(frame: pd.DataFrame) -> Amplification | None:
    """Count the retries; None where no source tells of any.

    Args:
        frame: One row per request, as ``tailscope.records.reader.join`` returns it.
    """
    again = retried(frame)
    if not again.any():
        return None
    tenants = named(frame, "tenant").to_numpy()
    counts = pd.DataFrame({"tenant": tenants, "again": again}).groupby("tenant")["again"]
    found = counts.agg(["size", "sum"]).sort_values("sum", ascending=False, kind="stable")
    listed = tuple(
        (str(name), int(size), int(total))
        for name, size, total in zip(found.index, found["size"], found["sum"], strict=True)
        if total
    )
    # A log that begins with second attempts has lost their first ones; one call is there at least.
    retries = min(int(again.sum()), len(frame) - 1)
    return Amplification(len(frame), retries, listed) if retries else None


def retried(frame: pd.DataFrame) -> Flags:
    """Which requests are a second or later attempt of a call, shape (n,).

    By the attempt's number where it is told. Otherwise by the session: the attempt before, of the
    same size as far as that is known, did not end well.
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


def cut(frame: pd.DataFrame) -> Cut | None:
    """Find the timeout that cuts the tail; None if none shows.

    Args:
        frame: One row per request; the client's view is taken where it is known.
    """
    seen = (
        floats(frame, "client_seconds")
        if "client_seconds" in frame
        else np.full(len(frame), np.nan)
    )
    seconds: Floats = np.where(np.isnan(seen), floats(frame, "total_seconds"), seen)
    given_up = np.isin(frame["outcome"].fillna("ok").to_numpy(), CENSORED)
    known = ~np.isnan(seconds)
    seconds, given_up = seconds[known], given_up[known]
    if not len(seconds) or (at := timeout(seconds, given_up)) is None:
        return None
    there = given_up & (np.abs(seconds - at) <= _NEAR * at)
    observed = np.quantile(seconds, LEVELS)
    level = next(
        (one for one, value in zip(LEVELS, observed, strict=True) if value >= at * (1 - _NEAR)),
        None,
    )
    return Cut(at, int(there.sum()), float(there.mean()), level)
