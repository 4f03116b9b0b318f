"""Moments at which something changed, as far as a store tells: engines that came, went or changed.

A comparison before and after wants to know when; nobody remembers that at night.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.stages import named

CAPACITY = "tailscope_engine_kv_cache_capacity_tokens"
RUNNING = "tailscope_engine_requests_running"
METRICS = (CAPACITY, RUNNING)

SILENT_NS = 20 * 10**9
"""An engine that gave no sample for so long was away, or started anew."""

EDGE_NS = 60 * 10**9
"""A server whose first request comes so long after the first of all is new."""

MOST = 20


@dataclass(frozen=True, slots=True)
class Change:
    """Something that changed.

    Attributes:
        at_ns: When, UTC nanoseconds.
        kind: ``restart`` (an engine was silent, and is back), ``capacity`` (its cache has another
            size, so its configuration or its model is another one) or ``began`` (first request).
        server: The engine.
        before: Tokens of the cache, or seconds of silence; None for ``began``.
        after: Tokens of the cache; None for others.
    """

    at_ns: int
    kind: str
    server: str
    before: float | None = None
    after: float | None = None


def found(samples: pd.DataFrame, frame: pd.DataFrame) -> tuple[Change, ...]:
    """What changed, the latest first.

    Args:
        samples: Of ``METRICS``, oldest first.
        frame: Requests.
    """
    changes = [*_began(frame)]
    if len(samples) and "server" in samples:
        whose = [name for name in ("server", "model", "rank") if name in samples]
        for (metric, server, *_), part in samples.groupby(["metric", *whose], dropna=False):
            known = part.drop_duplicates("time_ns")
            if metric == CAPACITY:
                changes += _resized(known, str(server))
            elif metric == RUNNING:
                changes += _silent(known, str(server))
    return tuple(sorted(set(changes), key=lambda one: -one.at_ns)[:MOST])


def _resized(part: pd.DataFrame, server: str) -> list[Change]:
    value, at = part["value"].to_numpy(dtype=np.float64), part["time_ns"].to_numpy()
    return [
        Change(int(at[n + 1]), "capacity", server, float(value[n]), float(value[n + 1]))
        for n in np.flatnonzero(np.diff(value) != 0)
    ]


def _silent(part: pd.DataFrame, server: str) -> list[Change]:
    at = part["time_ns"].to_numpy(dtype=np.int64)
    gaps = np.diff(at)
    return [
        Change(int(at[n + 1]), "restart", server, float(gaps[n]) / 1e9)
        for n in np.flatnonzero(gaps > SILENT_NS)
    ]


def _began(frame: pd.DataFrame) -> list[Change]:
    if frame.empty:
        return []
    first = frame.groupby(named(frame, "server"))["arrived_ns"].min()
    late = first[first > int(frame["arrived_ns"].min()) + EDGE_NS]
    return [Change(int(at), "began", str(server)) for server, at in late.items()]
