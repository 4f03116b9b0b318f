"""Colours. A tenant keeps its colour everywhere and for as long as the app runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from tailscope.app.text import tenant
from tailscope.triage.phrase import OTHERS as OTHERS
from tailscope.triage.phrase import UNKNOWN as UNKNOWN
from tailscope.triage.stages import WHOLE

COLOURS = (
    "#3182BD",  # blue
    "#E69F00",  # orange
    "#009E73",  # green
    "#CC79A7",  # pink
    "#56B4E9",  # sky
    "#D55E00",  # vermilion
    "#8B6BC7",  # violet
    "#A9A11D",  # olive
)
"""Told apart with every kind of colour blindness and on light and dark grounds, after Okabe and
Ito; their yellow and black, which vanish on one of the grounds, are replaced."""

GREY = "#8A949E"

STAGE_OPACITY: Mapping[str, float] = {
    "frontend": 0.22,
    "queue": 0.38,
    "prefill": 1.0,
    "decode": 0.72,
    WHOLE: 0.55,
}
"""Waiting is pale, work is strong."""

ACCENT = "#2B87B3"
"""What a chart without tenants points at; all else in it is grey."""


class TenantColours:
    """Gives out colours in the order of the names. Safe to share between threads."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._lock = threading.Lock()

    def learn(self, names: Iterable[str]) -> None:
        """Take in tenants; those that are new come behind the known ones."""
        with self._lock:
            self._order += sorted(set(names) - set(self._order) - {UNKNOWN, OTHERS})

    def colour(self, name: str) -> str:
        """Colour of a tenant; ``unknown`` and those nobody told of are grey."""
        if name not in self._order:
            return GREY
        return COLOURS[self._order.index(name) % len(COLOURS)]

    def scale(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Domain and range of a chart's colour scale, with the names as they are shown."""
        return [tenant(name) for name in names], [self.colour(name) for name in names]


def shown(names_by_load: Sequence[str]) -> list[str]:
    """The tenants that a chart tells apart: as many as there are colours, the largest first."""
    return [name for name in names_by_load if name != UNKNOWN][: len(COLOURS)]


CAUSES: Mapping[str, str] = {
    "queue": "#0B6E99",
    "contention": "#E69F00",
    "interference": "#D55E00",
    "batch": "#56B4E9",
    "engine": "#CC79A7",
    "unexplained": GREY,
}
"""What slow seconds are owed to."""

STAGES: Mapping[str, str] = {
    "frontend": "#8B6BC7",
    "queue": "#0B6E99",
    "prefill": "#E69F00",
    "decode": "#56B4E9",
}
"""Stages, where no tenant has a colour beside them."""
