"""What the GPUs went through, from the samples that a store holds."""

from __future__ import annotations

import time

import pandas as pd

from tailscope.records.reader import Reader
from tailscope.triage.gpu import LOOKBACK_NS, METRICS, examine, period
from tailscope.triage.hardware import Gpu
from tailscope.triage.scope import Scope

LONGEST_NS = 6 * 3600 * 10**9
"""Of a longer time only the end is looked at: eight GPUs write some 5 million samples a day."""


def examined(reader: Reader, frame: pd.DataFrame, scope: Scope) -> tuple[Gpu, ...]:
    """What the GPUs of a store went through while the requests of a scope ran.

    Args:
        reader: The store.
        frame: Requests.
        scope: Whose time window counts.

    Returns:
        Nothing where the store has no samples of GPUs.

    Raises:
        ReaderError: If the store cannot be read.
    """
    bounds = period(frame, scope)
    if bounds is None:
        return ()
    start, end = bounds
    start = max(start, min(end, time.time_ns()) - LONGEST_NS)
    samples = reader.samples(METRICS, max(start - LOOKBACK_NS, 0), end)
    return examine(samples, start, end)
