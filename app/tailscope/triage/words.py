"""Numbers as people read them: three digits, always with a unit."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds(value: float) -> str:
    """A duration in seconds: ``0.239 s``, ``4.68 s``, ``123 s``."""
    if value == 0:
        return "0 s"
    if value < 0.001:
        return "<0.001 s"
    digits = 3 if value < 0.9995 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} s"


def percent(share: float) -> str:
    """A share of 0 to 1 in percent; what is there but rounds to 0 is ``<1 %``."""
    text = f"{share:.0%}".replace("%", " %").removeprefix("-" if share > -0.005 else "")
    return "<1 %" if 0 < share < 0.005 else text


def moment(ns: int) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(ns: int) -> str:
    """A time of day in UTC, to the second."""
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%H:%M:%S")


def iso(ns: int) -> str:
    """A time in UTC as ISO 8601, to the millisecond."""
    text = datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{ns % 10**9 // 10**6:03d}Z"


def plural(count: int, one: str, many: str = "") -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
