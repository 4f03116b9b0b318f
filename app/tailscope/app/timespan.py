"""Spans of time as people write them: ``15m``, ``2026-11-30T02:10Z``."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNIX = re.compile(r"\d{9,10}(?:\.\d+)?")


def duration(text: str) -> float:
    """Read a duration such as ``90s``, ``15m``, ``6h`` or ``2d``; return seconds.

    Raises:
        ValueError: If it is none, or 0.
    """
    hit = _DURATION.fullmatch(text.strip())
    if hit is None or not (seconds := float(hit[1]) * _UNITS[hit[2]]):
        raise ValueError(f"{text!r} is no duration such as 90s, 15m, 6h or 2d")
    return seconds


def instant(text: str) -> int:
    """Read a time in ISO 8601 (UTC where no zone is given) or Unix seconds; return nanoseconds.

    Raises:
        ValueError: If it is neither.
    """
    text = text.strip()
    if _UNIX.fullmatch(text):
        return int(float(text) * 1e9)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time such as 2026-11-30T02:10:00Z nor Unix seconds"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1e9)
