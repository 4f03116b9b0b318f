"""What a question is about: a time window, and whose requests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tailscope.triage.slow import SlowRule
from tailscope.triage.stages import Flags, named

FAILED = ("rejected", "error")
"""Outcomes whose time says nothing about latency."""

CUT_SHORT = ("aborted", "queue_timeout", "generation_timeout")
"""Outcomes whose time is a lower bound: the request would have taken longer."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What to look at; an empty filter lets everything through.

    Attributes:
        start_ns: First arrival that counts, UTC nanoseconds; None for the beginning.
        end_ns: First arrival that no longer counts; None for the end.
        tenants: Whose latency is judged. The load of all tenants is counted in any case.
        models: Models that count.
        servers: Servers that count.
        slow: Which requests are slow.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    tenants: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    slow: SlowRule = field(default_factory=SlowRule)

    def window(self, frame: pd.DataFrame) -> Flags:
        """Rows that arrived in the time window."""
        arrived = frame["arrived_ns"].to_numpy(dtype=np.int64)
        inside = np.ones(len(frame), np.bool_)
        if self.start_ns is not None:
            inside &= arrived >= self.start_ns
        if self.end_ns is not None:
            inside &= arrived < self.end_ns
        return inside

    def places(self, frame: pd.DataFrame) -> Flags:
        """Rows of the chosen models and servers."""
        return _among(frame, "model", self.models) & _among(frame, "server", self.servers)

    def judged(self, frame: pd.DataFrame) -> Flags:
        """Rows of the chosen tenants."""
        return _among(frame, "tenant", self.tenants)

    def mine(self, frame: pd.DataFrame) -> Flags:
        """Rows that count in every respect."""
        return self.window(frame) & self.places(frame) & self.judged(frame)


def _among(frame: pd.DataFrame, name: str, wanted: tuple[str, ...]) -> Flags:
    if not wanted:
        return np.ones(len(frame), np.bool_)
    return named(frame, name).isin(wanted).to_numpy(dtype=np.bool_)


def measured(frame: pd.DataFrame) -> Flags:
    """Rows whose time is a latency: all but the refused and the failed."""
    return ~frame["outcome"].isin(FAILED).to_numpy(dtype=np.bool_)


def cut_short(frame: pd.DataFrame) -> Flags:
    """Rows whose time is a lower bound of their latency."""
    return frame["outcome"].isin(CUT_SHORT).to_numpy(dtype=np.bool_)
