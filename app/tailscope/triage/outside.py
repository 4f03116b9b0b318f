"""Seconds that clients saw and the engine did not: queues, retries and networks before it.

A gateway's row has the client's time, its engine row the engine's. What usually lies between them
(the median) is the way there and back. What is above it, in the requests that were slowest for
their clients, was lost outside of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.stages import Flags, Floats, floats

_FEWEST = 20
_SLOWEST = 0.05


@dataclass(frozen=True, slots=True)
class Outside:
    """Time lost outside of the engine, of the requests that were slowest for their clients.

    Attributes:
        requests: Requests with both times.
        usual: Median of what lies between the two times, seconds.
        seconds: Time above that of the slowest twentieth, by client time.
        engine_seconds: Excess of the same requests in the engine.
    """

    requests: int
    usual: float
    seconds: float
    engine_seconds: float

    @property
    def share(self) -> float:
        """Part of the time lost that was lost outside."""
        whole = self.seconds + self.engine_seconds
        return self.seconds / whole if whole > 0 else 0.0


def outside(frame: pd.DataFrame, excess: Floats, judged: Flags) -> Outside | None:
    """Compare the clients' times with the engine's; None where too few requests have both.

    Args:
        frame: Requests, joined with the gateway's.
        excess: Excess of each in the engine, seconds; NaN where unknown.
        judged: Which of them count.
    """
    between = floats(frame, "client_seconds") - floats(frame, "total_seconds")
    both = judged & np.isfinite(between) & np.isfinite(excess)
    if both.sum() < _FEWEST:
        return None
    usual = float(np.median(between[both]))
    lost = np.maximum(between[both] - usual, 0.0)
    all_ = lost + excess[both]
    count = max(round(_SLOWEST * len(all_)), 1)
    slowest = np.argpartition(all_, -count)[-count:]
    return Outside(
        int(both.sum()), usual, float(lost[slowest].sum()), float(excess[both][slowest].sum())
    )
