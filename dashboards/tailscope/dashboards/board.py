"""A board: rows of panels under the same variables, as Grafana's classic JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from tailscope.dashboards.annotations import ANNOTATIONS
from tailscope.dashboards.grid import COLUMNS, Place, pack
from tailscope.dashboards.legacy import current_board
from tailscope.dashboards.panels import Panel, row
from tailscope.dashboards.style import SCHEMA_VERSION, TAG
from tailscope.dashboards.variables import TRIAGE_APP, VARIABLES

_SHARED_CROSSHAIR: Final = 1
# grafanalib's ExternalLink lacks most of what Grafana's type asks for.
_TRIAGE_APP: Final[dict[str, Any]] = {
    "type": "link",
    "title": "Triage app",
    "url": "${triage}/",
    "icon": "external link",
    "tooltip": "The requests themselves: which were slow, and whose load it was",
    "asDropdown": False,
    "includeVars": False,
    "keepTime": False,
    "tags": [],
    "targetBlank": True,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and its panels; its number never changes, as theirs.

    Attributes:
        id: Number.
        title: Heading.
        panels: In reading order.
        closed: Whether the panels are hidden, and ask for nothing, until somebody opens the row.
    """

    id: int
    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard.

    Attributes:
        uid: Name in the address; it never changes.
        title: Name for people.
        description: When to open it.
        rows: In the order in which one looks for trouble.
        variables: Those of this board alone.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[dict[str, Any], ...] = ()

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
            templating=core.Templating([*VARIABLES, *self.variables, TRIAGE_APP]),
            annotations=core.Annotations(list(ANNOTATIONS)),
            links=[
                core.DashboardLink(
                    title="Tailscope", tags=[TAG], asDropdown=True, keepTime=True, includeVars=True
                ),
                dict(_TRIAGE_APP),
            ],
            panels=self._placed(),
        )
        found = json.loads(json.dumps(made.to_json_data(), cls=DashboardEncoder))
        return current_board(found)

    def text(self) -> str:
        """Return the content of its file."""
        return json.dumps(self.json(), indent=2, sort_keys=True) + "\n"

    def _placed(self) -> list[dict[str, Any]]:
        placed: list[dict[str, Any]] = []
        top = 0
        for each in self.rows:
            panels = each.panels if each.closed else (row(each.id, each.title), *each.panels)
            within, below = _pack(panels, top + 1 if each.closed else top)
            if each.closed:
                within = [row(each.id, each.title, within).json(Place(0, top, COLUMNS, 1))]
                below = top + 1
            placed, top = [*placed, *within], below
        numbers = Counter(number for panel in placed for number in _numbers(panel))
        for number, count in numbers.items():
            if count > 1:
                raise ValueError(f"{self.uid}: {count} panels have the number {number}")
        return placed


def _pack(panels: Sequence[Panel], top: int) -> tuple[list[dict[str, Any]], int]:
    """The panels in their places from the line ``top`` on, and the line below them."""
    places = list(pack([(panel.width, panel.height) for panel in panels], top))
    placed = [panel.json(place) for panel, place in zip(panels, places, strict=True)]
    return placed, max((place.y + place.h for place in places), default=top)


def _numbers(panel: Mapping[str, Any]) -> Iterator[int]:
    yield panel["id"]
    yield from (each["id"] for each in panel.get("panels", ()))
