"""ServeGen's client rates, as arrivals: the one public source with real tenants.

It tells, for each client and each ten minutes, the rate and the distribution of the times between
requests. Arrivals are drawn from it, the same ones at each import. Lengths are not in these files
and stay unknown. https://github.com/alibaba/ServeGen (Apache-2.0, arXiv 2505.09999).
"""

from __future__ import annotations

import csv
import heapq
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

from tailscope.records.record import RequestRecord
from tailscope.records.translation import ORIGIN_NS

COLUMNS = ("client", "t_s", "rate_rps", "iat_cv", "iat_family", "param1", "param2")
"""Of a table of several clients; ServeGen's own files begin with ``t_s`` and have no header."""

_OWN = re.compile(r"chunk-(\w+)-trace\.csv(?:\.gz)?")
_WINDOW_SECONDS = 600.0
_MOST = 20.0
"""So many times the arrivals that a rate promises are drawn at most: parameters that give no times
between requests would never come to an end."""


class Window(NamedTuple):
    """Ten minutes of one client."""

    start: float
    rate: float
    family: str
    first: float
    second: float


def recognises(path: Path, columns: Iterable[str]) -> bool:
    """Whether a table is one of rates, by its name or by its columns."""
    return _OWN.fullmatch(path.name) is not None or set(COLUMNS) <= set(columns)


def arrivals(path: Path, file: TextIO) -> Iterator[RequestRecord]:
    """Draw the arrivals of all clients of a table, in their order.

    Args:
        path: Names the client of one of ServeGen's own files; its folder names the model.
        file: The table, from its beginning.
    """
    own = _OWN.fullmatch(path.name)
    rows: Iterable[Mapping[str, str]]
    if own:
        named = {"client": own[1], "model": path.parent.name}
        rows = ({**named, **row} for row in csv.DictReader(file, COLUMNS[1:]))
    else:
        rows = csv.DictReader(file)
    clients: dict[tuple[str, str], list[Window]] = {}
    for row in rows:
        window = _window(row)
        if window is not None:
            clients.setdefault((row.get("model") or "", row["client"]), []).append(window)
    return heapq.merge(
        *(_client(*name, windows) for name, windows in clients.items()),
        key=lambda record: record.arrived_ns,
    )


def _window(row: Mapping[str, str]) -> Window | None:
    try:
        start, rate, first, second = (
            float(row[name] or 0.0) for name in ("t_s", "rate_rps", "param1", "param2")
        )
    except (ValueError, TypeError, KeyError):
        return None
    family = (row["iat_family"] or "").strip().lower()
    known = all(map(math.isfinite, (start, rate, first, second))) and rate > 0 and start >= 0
    return Window(start, rate, family, first, second) if known else None


def _client(model: str, client: str, windows: list[Window]) -> Iterator[RequestRecord]:
    windows.sort()
    draw = random.Random(f"{model}/{client}")  # noqa: S311 - a simulation
    for window in windows:
        since = _next(draw, window)
        for _ in range(math.ceil(_MOST * (1.0 + window.rate * _WINDOW_SECONDS))):
            if since >= _WINDOW_SECONDS:
                break
            yield RequestRecord(
                "servegen",
                "gateway",
                ORIGIN_NS + round((window.start + since) * 1e9),
                tenant=f"client-{client}",
                model=model or None,
            )
            since += _next(draw, window)


def _next(draw: random.Random, window: Window) -> float:
    """Seconds to the next request."""
    if window.first > 0 and window.second > 0:
        if window.family == "gamma":
            return draw.gammavariate(window.first, window.second)
        if window.family == "weibull":
            return draw.weibullvariate(window.second, window.first)
    return draw.expovariate(window.rate)
