"""The stages of a request and where each lies on the clock.

A frame is what ``tailscope.records.reader.join`` returns: one row per request, nulls where unknown.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

STAGES = ("frontend", "queue", "prefill", "decode")
"""In the order in which a request meets them, and in which one looks for trouble."""

WHOLE = "stages unknown"
"""Stands for all stages of a request that has no stage times."""


def column(stage: str) -> str:
    """Name of the record's column that holds the seconds of a stage."""
    return f"{stage}_seconds"


def floats(frame: pd.DataFrame, name: str) -> Floats:
    """A numeric column as floats; NaN where it is null, or where there is no such column."""
    if name not in frame:
        return np.full(len(frame), np.nan)
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def rows(frame: pd.DataFrame, mask: Flags) -> pd.DataFrame:
    """The rows of a mask; the frame itself where that is all, for a copy of millions is dear."""
    return frame if mask.all() else frame[mask]


def named(frame: pd.DataFrame, name: str, missing: str = "unknown") -> pd.Series[str]:
    """A text column with a name for what is null."""
    return frame[name].fillna(missing)


def phases(frame: pd.DataFrame, origin_ns: int) -> pd.DataFrame:
    """When each request entered its stages, in seconds after ``origin_ns``; NaN where unknown.

    Returns:
        ``arrived``; ``queued`` (entered the engine's queue); ``started`` (got a place in the
        batch); ``first`` (first token); ``left`` (last token: gave the place back); ``ended``.
    """
    arrived = (frame["arrived_ns"].to_numpy(dtype=np.int64) - origin_ns) / 1e9
    # A request without a known frontend time is drawn as if it had none: the engines that do not
    # tell it stamp the arrival behind it.
    queued = arrived + np.nan_to_num(floats(frame, "frontend_seconds"))
    started = queued + floats(frame, "queue_seconds")
    first = started + floats(frame, "prefill_seconds")
    left = first + floats(frame, "decode_seconds")
    ended = arrived + floats(frame, "total_seconds")
    return pd.DataFrame(
        {
            "arrived": arrived,
            "queued": queued,
            "started": started,
            "first": first,
            "left": left,
            "ended": np.where(np.isnan(ended), left, ended),
        },
        index=frame.index,
    )


def intervals(frame: pd.DataFrame, origin_ns: int) -> pd.DataFrame:
    """The stages of requests as intervals, for a timeline.

    Args:
        frame: Requests.
        origin_ns: Where the time axis has its 0.

    Returns:
        ``row`` (index label of the request), ``stage``, ``start`` and ``end`` in seconds after the
        origin. A request without stage times has one interval, of the stage ``WHOLE``.
    """
    at = phases(frame, origin_ns)
    bounds = {
        "frontend": ("arrived", "queued"),
        "queue": ("queued", "started"),
        "prefill": ("started", "first"),
        "decode": ("first", "left"),
    }
    parts = [
        pd.DataFrame({"row": at.index, "stage": stage, "start": at[begin], "end": at[end]})
        for stage, (begin, end) in bounds.items()
    ]
    bare = at["started"].isna()
    parts.append(
        pd.DataFrame(
            {
                "row": at.index[bare],
                "stage": WHOLE,
                "start": at["arrived"][bare],
                "end": at["ended"][bare],
            }
        )
    )
    found = pd.concat(parts, ignore_index=True)
    return found[found["end"] > found["start"]].reset_index(drop=True)
