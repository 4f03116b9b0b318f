"""What a committed board asks Prometheus, with its variables put in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools import ROOT

BOARDS = sorted((ROOT / "dashboards" / "json").glob("*.json"))

EVERYTHING: Mapping[str, str] = {
    "job": ".+",
    "instance": ".+",
    "gpu": ".+",
    "model": ".*",
    "server": ".*",
    "tenant": ".*",
    "__rate_interval": "1m",
    "__range": "10m",
    "offset": "5m",
    "first": "2|2[.]0",
    "within": "30|30[.]0",
}
"""Every variable of a board at *All*, at a scrape interval of 15 s."""


class Asked(NamedTuple):
    """One query: the panel's title, PromQL, and whether it asks for one moment only."""

    title: str
    expr: str
    instant: bool


def load(path: Path) -> Any:
    """The board in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def panels(board: Mapping[str, Any]) -> Iterator[Any]:
    """All panels of a board but the headings, those of collapsed rows included."""
    for panel in board["panels"]:
        yield from panel.get("panels", ())
        if panel["type"] != "row":
            yield panel


def expressions(board: Mapping[str, Any], variables: Mapping[str, str] = EVERYTHING) -> list[Asked]:
    """Every query of a board, those of its annotations included, in the order of the board."""
    found = [
        Asked(panel["title"], substitute(target["expr"], variables), target["instant"])
        for panel in panels(board)
        for target in panel["targets"]
    ]
    notes = [note for note in board["annotations"]["list"] if "expr" in note]
    return found + [
        Asked(note["name"], substitute(note["expr"], variables), False) for note in notes
    ]


def substitute(expr: str, variables: Mapping[str, str]) -> str:
    """Put the values of variables in, as Grafana does."""
    for name in sorted(variables, key=len, reverse=True):
        expr = expr.replace(f"${name}", variables[name])
    return expr
