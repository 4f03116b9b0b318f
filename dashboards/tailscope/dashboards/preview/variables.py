"""Puts the values of variables into expressions and texts, as Grafana does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_NAME: Final = re.compile(r"\$(?:\{(\w+(?::text)?)(?::\w+)?\}|(\w+))")


_POINTS: Final = 240
"""Of a curve, at most."""


def step(seconds: float, scrape: float) -> float:
    """Return the seconds between two points of a curve over a time range."""
    return max(seconds / _POINTS, scrape, 1)


def values(
    board: Mapping[str, Any], chosen: Mapping[str, str], seconds: float, scrape: float
) -> dict[str, str]:
    """Return the value of every variable of a board.

    Args:
        board: The board's JSON.
        chosen: Values by name, in place of the board's own; unknown names are no harm.
        seconds: Length of the time range.
        scrape: Seconds between two scrapes.
    """
    variables = board["templating"]["list"]
    interval = step(seconds, scrape)
    found = {each["name"]: _default(each, "value") for each in variables}
    found |= {f"{each['name']}:text": _default(each, "text") for each in variables}
    found |= {
        "__range": f"{seconds:.0f}s",
        # As Grafana has it: no sample between two points is left out.
        "__rate_interval": f"{max(interval + scrape, 4 * scrape):.0f}s",
        "__interval": f"{interval:.0f}s",
    }
    return found | dict(chosen) | {f"{name}:text": value for name, value in chosen.items()}


def _default(variable: Mapping[str, Any], form: str) -> str:
    if "allValue" in variable:
        return str(variable["allValue"])
    return str(variable.get("current", {}).get(form, ""))


def put(text: str, known: Mapping[str, str]) -> str:
    """Return the text with its variables replaced; unknown ones stay."""
    return _NAME.sub(lambda hit: known.get(hit[1] or hit[2], hit[0]), text)


def legend(format: str, labels: Mapping[str, str]) -> str:
    """Return the legend of a series, ``{{label}}`` replaced."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda hit: labels.get(hit[1], ""), format)
