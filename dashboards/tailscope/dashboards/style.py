"""The house style: colours, units and limits, each with one meaning on every board."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

SCHEMA_VERSION: Final = 39
"""Schema of Grafana 10.4, which every later version reads; grafanalib's own is of 2016."""

TAG: Final = "tailscope"
"""Tag of every board; the links between boards go by it."""

DATASOURCE: Final[dict[str, str]] = {"type": "prometheus", "uid": "${datasource}"}


class Unit(StrEnum):
    """Grafana's name of a unit."""

    SECONDS = "s"
    RATIO = "percentunit"
    REQUESTS_PER_SECOND = "reqps"
    TOKENS_PER_SECOND = "suffix: tok/s"
    TOKENS = "suffix: tok"
    PER_SECOND = "cps"
    COUNT = "short"
    FACTOR = "suffix: x"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    WATTS = "watt"
    JOULES = "joule"
    CELSIUS = "celsius"
    HERTZ = "hertz"


class Colour(StrEnum):
    """Colours that stay apart for people who see red and green alike, after Okabe and Ito.

    The stages have the same ones in the triage app.
    """

    ORANGE = "#E69F00"
    SKY = "#56B4E9"
    GREEN = "#009E73"
    OLIVE = "#A9A11D"
    BLUE = "#3182BD"
    VIOLET = "#8B6BC7"
    RED = "#D55E00"
    PINK = "#CC79A7"
    GREY = "#8A949E"


SERIES: Final[dict[str, Colour]] = {
    "p50": Colour.SKY,
    "p95": Colour.ORANGE,
    "p99": Colour.RED,
    "mean": Colour.GREY,
    "frontend": Colour.OLIVE,
    "queue": Colour.RED,
    "prefill": Colour.VIOLET,
    "decode": Colour.BLUE,
    "running": Colour.BLUE,
    "waiting": Colour.RED,
    "before": Colour.GREY,
    "after": Colour.RED,
    "computed": Colour.ORANGE,
    "from cache": Colour.GREEN,
    "ok": Colour.GREEN,
    "error": Colour.RED,
    "rejected": Colour.ORANGE,
    "aborted": Colour.GREY,
    "queue_timeout": Colour.PINK,
    "generation_timeout": Colour.VIOLET,
    "stop": Colour.GREEN,
    "length": Colour.ORANGE,
    "abort": Colour.GREY,
}
"""Colour of a series by its name; Grafana chooses for the others."""

BY_NAME: Final = "palette-classic-by-name"
"""How it chooses: a server or a tenant has one colour on every panel, whoever else is there."""

FINISHED: Final = ("stop", "length", "abort", "error")
"""Reasons of an engine for which a request ended, that have a colour."""

Limits = tuple[tuple[float, Colour], ...]
"""From which value on a colour holds, in rising order."""

NEUTRAL: Final[Limits] = ()
"""For what is neither good nor bad in itself."""
UTILISATION: Final[Limits] = ((0.7, Colour.ORANGE), (0.8, Colour.RED))
"""The wait grows as u / (1 - u): 2.3 times the service time at 0.7, 4 times at 0.8."""
FAILURES: Final[Limits] = ((0.01, Colour.ORANGE), (0.05, Colour.RED))
SLOWER: Final[Limits] = ((1.2, Colour.ORANGE), (2, Colour.RED))
"""Times after over before: a fifth more is felt, twice is another service."""
ANY: Final[Limits] = ((1, Colour.RED),)
"""For counts of what should not be there at all."""


def thresholds(limits: Limits) -> dict[str, Any]:
    """Return Grafana's thresholds: a base colour, then the limits."""
    base = Colour.GREEN if limits else Colour.SKY
    steps: list[dict[str, Any]] = [{"color": base, "value": None}]
    steps += [{"color": colour, "value": value} for value, colour in limits]
    return {"mode": "absolute", "steps": steps}


def fixed_colour(name: str) -> dict[str, Any]:
    """Return the override that gives the series of that name its colour."""
    properties: list[dict[str, Any]] = [
        {"id": "color", "value": {"mode": "fixed", "fixedColor": SERIES[name]}}
    ]
    if name in ("mean", "before"):
        # Dashed: a mean is none of the quantiles that it lies beside, nor is the past the present.
        dash = {"fill": "dash", "dash": [8, 6]}
        properties.append({"id": "custom.lineStyle", "value": dash})
    return {"matcher": {"id": "byName", "options": name}, "properties": properties}


def right_axis(pattern: str, unit: Unit) -> dict[str, Any]:
    """Return the override that gives the series whose legend matches an axis on the right."""
    return {
        "matcher": {"id": "byRegexp", "options": pattern},
        "properties": [
            {"id": "unit", "value": unit},
            {"id": "custom.axisPlacement", "value": "right"},
        ],
    }
