"""Which requests ran beside one request on the same server, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.stages import Floats, phases


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """One request and those beside it.

    Attributes:
        request: Its row, as a frame of one.
        others: Rows that overlapped it in time, with ``overlap_seconds`` (both were in the system),
            ``held_seconds`` (the other held a place in the batch while it was in the system) and
            ``held_waiting_seconds`` (... while it waited for its own place). Longest held first.
            The last two are NaN where the stages are not known.
    """

    request: pd.DataFrame
    others: pd.DataFrame


def neighbours(frame: pd.DataFrame, position: int) -> Neighbourhood:
    """Find the requests that overlapped the one at a position of the frame."""
    request = frame.iloc[[position]]
    at = phases(frame, int(request["arrived_ns"].iloc[0]))
    mine = at.iloc[position]
    same = frame["server"].fillna("").eq(request["server"].fillna("").iloc[0]).to_numpy(copy=True)
    same[position] = False
    overlap = _common(at, "arrived", "ended", mine["arrived"], mine["ended"])
    found = frame.assign(
        overlap_seconds=overlap,
        held_seconds=_common(at, "started", "left", mine["arrived"], mine["ended"]),
        held_waiting_seconds=_common(at, "started", "left", mine["arrived"], mine["started"]),
    )[same & (overlap > 0)]
    return Neighbourhood(
        request,
        found.sort_values(["held_seconds", "overlap_seconds"], ascending=False, kind="stable"),
    )


def _common(at: pd.DataFrame, begin: str, end: str, low: float, high: float) -> Floats:
    """Length of what each interval has in common with one; NaN where an end is unknown."""
    length = np.minimum(at[end].to_numpy(), high) - np.maximum(at[begin].to_numpy(), low)
    found: Floats = np.maximum(length, 0.0)
    return found


def held_by_tenant(around: Neighbourhood) -> pd.DataFrame:
    """Sum up the neighbours by tenant, the longest held first.

    Returns:
        ``tenant``, ``requests``, ``held_seconds`` and ``held_waiting_seconds``; the last two are
        NaN where no neighbour of the tenant has known stages.
    """
    by = around.others.assign(tenant=around.others["tenant"].fillna("unknown")).groupby("tenant")
    sums = by[["held_seconds", "held_waiting_seconds"]].sum(min_count=1)
    found = sums.assign(requests=by.size()).reset_index()
    return found.sort_values(
        ["held_waiting_seconds", "held_seconds"], ascending=False, kind="stable"
    ).reset_index(drop=True)
