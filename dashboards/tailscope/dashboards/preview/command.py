"""Draws boards into a folder, as HTML and, where wanted, as PNG."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailscope.dashboards.board import Board
from tailscope.dashboards.preview.page import WIDTH, page
from tailscope.dashboards.preview.panel import Span
from tailscope.dashboards.preview.picture import picture
from tailscope.dashboards.preview.prometheus import Prometheus
from tailscope.dashboards.preview.variables import values


def preview(
    boards: Sequence[Board],
    source: Prometheus,
    directory: Path,
    *,
    seconds: float,
    end: float | None = None,
    scrape: float = 15,
    chosen: Mapping[str, str] | None = None,
    png: bool = False,
) -> None:
    """Draw boards over the last seconds, and say which panels are empty.

    Args:
        boards: What to draw.
        source: Where the data is.
        directory: Where the files go; it is made if it is missing.
        seconds: Length of the time range.
        end: Its end as Unix time; by default now.
        scrape: Seconds between two scrapes.
        chosen: Values of variables, in place of the boards' own.
        png: Take a picture of each page too.

    Raises:
        UsageError: If Prometheus does not answer, or there is no browser for the pictures.
        OSError: If a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    until = time.time() if end is None else end
    for board in boards:
        data = board.json()
        known = values(data, chosen or {}, seconds, scrape)
        drawn = page(data, source, Span(until - seconds, until, scrape, known))
        html = directory / f"{board.uid}.html"
        html.write_text(drawn.html, encoding="utf-8")
        if png:
            picture(html, html.with_suffix(".png"), WIDTH, drawn.height)
        empty = f"; empty: {', '.join(drawn.empty)}" if drawn.empty else ""
        print(f"{html}: {drawn.panels} panels, {len(drawn.empty)} empty{empty}")
