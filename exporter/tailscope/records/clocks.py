"""How far the clocks of gateways and engines are apart, from requests that both of them saw.

A request reaches the gateway before the engine, and leaves the engine before the gateway. With the
engine's clock ahead by s, the way there taking a and the way back b, both 0 or more::

    engine arrival - gateway arrival = s + a
    engine end     - gateway end     = s - b

So s lies between the largest of the second and the smallest of the first, and in their middle where
both ways take the same time (as NTP reckons, RFC 5905 section 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from tailscope.records.joining import MAX_NS, partners

COLUMNS = ("arrived_ns", "ended_ns", "total_seconds", "server")
"""What is needed of both rows."""

FEWEST = 5
"""Pairs that say something."""

EDGE = 0.01
"""Of the pairs, this part at either end may have been cut short or retried: it is left out."""


@dataclass(frozen=True, slots=True)
class Skew:
    """How far an engine's clock is ahead of the gateways'.

    Attributes:
        server: The engine.
        pairs: Requests that both saw.
        seconds: Best estimate; negative where the engine is behind.
        low: Least that it can be, as far as the pairs tell.
        high: Most.
    """

    server: str
    pairs: int
    seconds: float
    low: float
    high: float


def skews(tables: Sequence[pa.Table], start_ns: int = 0, end_ns: int = MAX_NS) -> tuple[Skew, ...]:
    """Measure the skew of each engine.

    Args:
        tables: Arrow tables with the columns that rows are joined by, and ``COLUMNS``.
        start_ns: First arrival that counts.
        end_ns: First arrival that no longer counts.

    Returns:
        One for each engine with enough pairs; none where nothing was joined.
    """
    engine, gateway = (one.to_pandas() for one in partners(tables, COLUMNS, start_ns, end_ns))
    if engine.empty:
        return ()
    there = (engine["arrived_ns"] - gateway["arrived_ns"]) / 1e9
    back = (_ended(engine) - _ended(gateway)) / 1e9
    told = pd.DataFrame({"server": engine["server"].fillna(""), "there": there, "back": back})
    return tuple(
        _skew(str(server), part)
        for server, part in told.dropna().groupby("server")
        if len(part) >= FEWEST
    )


def _ended(rows: pd.DataFrame) -> pd.Series[float]:
    arrived = rows["arrived_ns"].astype("float64")
    return rows["ended_ns"].astype("float64").fillna(arrived + rows["total_seconds"] * 1e9)


def _skew(server: str, part: pd.DataFrame) -> Skew:
    there, back = part["there"].to_numpy(), part["back"].to_numpy()
    low, high = float(np.quantile(back, 1 - EDGE)), float(np.quantile(there, EDGE))
    middle = float(np.median((there + back) / 2))
    # Where the pairs contradict each other the clocks drift, and the middle is all that is left.
    return Skew(server, len(part), middle, min(low, high, middle), max(low, high, middle))
