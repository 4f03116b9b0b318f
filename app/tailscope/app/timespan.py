"""Spans of time as people write them: ``15m``, ``2026-11-30T02:10Z``."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNIX = re.compile(r"\d{9,10}(?:\.\d+)?|\d{12,13}")
_LAST_NS = 2**63 - 1


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
    """Read a time; return UTC nanoseconds.

    Args:
        text: In ISO 8601 (UTC where no zone is given), Unix seconds, or Unix milliseconds, as
            Grafana has them in its addresses.

    Raises:
        ValueError: If it is none of these, or a time that no record can have.
    """
    text = text.strip()
    found = _unix(text) if _UNIX.fullmatch(text) else _iso(text)
    if not 0 <= found <= _LAST_NS:
        raise ValueError(f"{text!r} is not between the years 1970 and 2262")
    return found


def _unix(text: str) -> int:
    if len(text) in (12, 13) and text.isdecimal():
        return int(text) * 10**6
    whole, _, part = text.partition(".")
    return int(whole) * 10**9 + int(part[:9].ljust(9, "0"))


def _iso(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time such as 2026-11-30T02:10:00Z nor Unix seconds or "
            "milliseconds"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1e9)
