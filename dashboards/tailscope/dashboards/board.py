"""A board: rows of panels under the same variables, as Grafana's classic JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from tailscope.catalogue.promql import Query, compare
from tailscope.dashboards.grid import pack
from tailscope.dashboards.legacy import current_board
from tailscope.dashboards.panels import Panel, row
from tailscope.dashboards.query import SCOPE
from tailscope.dashboards.style import DATASOURCE, SCHEMA_VERSION, TAG, Colour
from tailscope.dashboards.variables import VARIABLES

_SHARED_CROSSHAIR: Final = 1


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and its panels; its number never changes, as theirs."""

    id: int
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard.

    Attributes:
        uid: Name in the address; it never changes.
        title: Name for people.
        description: When to open it.
        rows: In the order in which one looks for trouble.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]

    def json(self) -> dict[str, Any]:
        """Return Grafana's form of it.

        Raises:
            ValueError: If two panels have the same number.
        """
        made = core.Dashboard(
            title=self.title,
            uid=self.uid,
            description=self.description,
            tags=[TAG],
            editable=False,
            timezone="browser",
            refresh="30s",
            time=core.Time("now-1h", "now"),
            graphTooltip=_SHARED_CROSSHAIR,
            schemaVersion=SCHEMA_VERSION,
            templating=core.Templating(list(VARIABLES)),
            annotations=core.Annotations([_BUILT_IN, _RESTARTS]),
            links=[
                core.DashboardLink(
                    title="Tailscope", tags=[TAG], asDropdown=True, keepTime=True, includeVars=True
                )
            ],
            panels=self._placed(),
        )
        found = json.loads(json.dumps(made.to_json_data(), cls=DashboardEncoder))
        return current_board(found)

    def text(self) -> str:
        """Return the content of its file."""
        return json.dumps(self.json(), indent=2, sort_keys=True) + "\n"

    def _placed(self) -> list[dict[str, Any]]:
        panels = [panel for each in self.rows for panel in (row(each.id, each.title), *each.panels)]
        places = pack([(panel.width, panel.height) for panel in panels], 0)
        placed = [panel.json(place) for panel, place in zip(panels, places, strict=True)]
        for number, count in Counter(panel["id"] for panel in placed).items():
            if count > 1:
                raise ValueError(f"{self.uid}: {count} panels have the number {number}")
        return placed


_BUILT_IN: Final[dict[str, Any]] = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": Colour.SKY,
    "name": "Annotations & Alerts",
    "type": "dashboard",
}
_RESTARTS: Final[dict[str, Any]] = {
    "datasource": DATASOURCE,
    "enable": True,
    "expr": compare(Query("2m", SCOPE).increase("source_resets_total", ("source",)), ">", 0),
    "hide": False,
    "iconColor": Colour.PINK,
    "name": "Engine restarts",
    "step": "60s",
    "tagKeys": "source",
    "textFormat": "Counters of {{source}} went back",
    "titleFormat": "Restart",
}
