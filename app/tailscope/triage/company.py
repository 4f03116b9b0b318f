"""What an engine was busy with when a request came: as dimensions to compare slow ones by."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from tailscope.triage.exposure import running
from tailscope.triage.study import Costing
from tailscope.triage.work import Floats, Work

DIMENSIONS = ("waiting at arrival", "running at arrival", "tokens held at arrival")


def company(costings: Iterable[Costing], rows: int) -> pd.DataFrame:
    """Load of the engine at the arrival of each request, without the request itself.

    Args:
        costings: Engines.
        rows: Length of the frame that their requests come from.

    Returns:
        One column for each of ``DIMENSIONS``; NaN for requests without an engine time.
    """
    found = np.full((rows, len(DIMENSIONS)), np.nan)
    for one in costings:
        work = one.work
        found[work.rows] = np.column_stack(
            [
                _open(work.arrived, work.arrived, work.start),
                _open(work.arrived, work.start, work.done),
                _held(work),
            ]
        )
    return pd.DataFrame(found, columns=list(DIMENSIONS))


def _open(when: Floats, begin: Floats, end: Floats) -> Floats:
    """How many intervals are open just before each time."""
    times, count = running(begin, end)
    at = np.searchsorted(times, when, side="left") - 1
    return np.where(at >= 0, count[np.maximum(at, 0)], 0).astype(np.float64)


def _held(work: Work) -> Floats:
    size = work.context + 0.5 * work.output
    times = np.concatenate([work.done, work.start])
    order = np.argsort(times, kind="stable")
    total = np.cumsum(np.concatenate([-size, size])[order])
    at = np.searchsorted(times[order], work.arrived, side="left") - 1
    found: Floats = np.where(at >= 0, total[np.maximum(at, 0)], 0.0)
    return np.maximum(found, 0.0)
