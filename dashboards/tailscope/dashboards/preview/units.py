"""Values as text, each in its unit, in the style of Grafana."""

from __future__ import annotations

from typing import Final

from tailscope.dashboards.style import Unit

_DECIMAL: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_TIMES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_AFTER: Final = {
    Unit.REQUESTS_PER_SECOND: " req/s",
    Unit.PER_SECOND: "/s",
    Unit.COUNT: "",
    Unit.WATTS: " W",
    Unit.JOULES: " J",
    Unit.HERTZ: "Hz",
    Unit.CELSIUS: " °C",
}
_SUFFIX: Final = "suffix:"


def text(value: float, unit: str) -> str:
    """Return a value with its unit, at three significant digits or so."""
    if unit == Unit.SECONDS:
        return _time(value)
    if unit == Unit.RATIO:
        return f"{_short(value * 100)}%"
    if unit in (Unit.BYTES, Unit.BYTES_PER_SECOND):
        return _scaled(value, _BINARY, " B", " ") + ("/s" if unit == Unit.BYTES_PER_SECOND else "")
    if unit.startswith(_SUFFIX):
        return _scaled(value, _DECIMAL, "") + unit.removeprefix(_SUFFIX)
    return _scaled(value, _DECIMAL, "") + _AFTER.get(Unit(unit), "")


def _time(seconds: float) -> str:
    for size, name in _TIMES:
        if abs(seconds) >= size:
            return f"{_short(seconds / size)} {name}"
    return "0 s" if seconds == 0 else f"{_short(seconds * 1e6)} µs"


def _scaled(
    value: float, steps: tuple[tuple[float, str], ...], base: str, between: str = ""
) -> str:
    for size, name in steps:
        if abs(value) >= size:
            return f"{_short(value / size)}{between}{name}"
    return f"{_short(value)}{base}"


def _short(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    rounded = f"{value:.{digits}f}"
    return rounded.rstrip("0").rstrip(".") if "." in rounded else rounded
