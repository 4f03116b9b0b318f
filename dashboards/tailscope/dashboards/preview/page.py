"""A whole board as one HTML page, its panels where Grafana would put them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from tailscope.dashboards.grid import COLUMNS
from tailscope.dashboards.preview.panel import Span, draw
from tailscope.dashboards.preview.prometheus import Prometheus
from tailscope.dashboards.preview.variables import put

WIDTH: Final = 1440
_GAP: Final = 8
_UNIT: Final = 30 + _GAP
"""Height of a line of Grafana's grid, with the gap below it."""
_TOP: Final = 80

_STYLE: Final = """
* { box-sizing: border-box; margin: 0 }
body { background: #f4f5f7; color: #24292e; font: 13px/1.35 "Inter", "Helvetica Neue",
  "Liberation Sans", Arial, sans-serif; position: relative }
header { padding: 12px 16px } h1 { font-size: 18px; font-weight: 500 } header p { color: #5b6472 }
section { position: absolute; background: #fff; border: 1px solid #dfe2e7; border-radius: 2px;
  overflow: hidden }
section h2 { font-size: 13px; font-weight: 500; padding: 4px 8px; height: 26px;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis }
section.row { background: none; border: 0 } section.row h2 { font-size: 14px; padding-left: 4px }
svg text { font-size: 11px } svg { display: block }
.value { font-size: 28px; text-align: center; height: 40px }
.none, .wrong { color: #5b6472; text-align: center; padding: 40px 16px } .wrong { color: #D55E00 }
.legend { padding: 0 8px; overflow: hidden; font-size: 11px; line-height: 17px }
.legend span { margin-right: 12px; display: inline-block; white-space: nowrap }
.legend i { display: inline-block; width: 10px; height: 3px;
  margin: 0 4px 3px 0 } .legend b { font-weight: 600 }
table { border-collapse: collapse; width: 100%; font-size: 12px }
th, td { text-align: left; padding: 3px 8px; border-bottom: 1px solid #eceef1;
  white-space: nowrap } th { color: #3182BD; font-weight: 500 }
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A board that was drawn.

    Attributes:
        html: The page, whole in itself.
        height: Its height in pixels.
        panels: How many panels it has.
        empty: Titles of those without data.
    """

    html: str
    height: int
    panels: int
    empty: tuple[str, ...]


def page(board: Mapping[str, Any], source: Prometheus, span: Span) -> Page:
    """Draw a board; closed rows are drawn open.

    Raises:
        UsageError: If Prometheus does not answer.
    """
    sections, empty, bottom, count = [], [], 0, 0
    for panel, top in _placed(board):
        place = panel["gridPos"]
        width = round(place["w"] * (WIDTH - _GAP) / COLUMNS) - _GAP
        height = place["h"] * _UNIT - _GAP
        bottom = max(bottom, top + place["h"])
        body = ""
        if panel["type"] != "row":
            drawn = draw(panel, source, span, width - 2, height - 2)
            body, count = drawn.html, count + 1
            empty += [panel["title"]] if drawn.empty else []
        left = _GAP + round(place["x"] * (WIDTH - _GAP) / COLUMNS)
        sections.append(
            f'<section class="{panel["type"]}" style="left:{left}px;top:{_TOP + top * _UNIT}px;'
            f'width:{width}px;height:{height}px" title="{escape(panel.get("description", ""))}">'
            f"<h2>{escape(put(panel['title'], span.variables))}</h2>{body}</section>"
        )
    height = _TOP + bottom * _UNIT + _GAP
    return Page(_html(board, span, height, sections), height, count, tuple(empty))


def _placed(board: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Each panel and its line; what a closed row hides pushes down what follows."""
    pushed = 0
    for panel in board["panels"]:
        yield panel, panel["gridPos"]["y"] + pushed
        hidden = panel.get("panels", ())
        for each in hidden:
            yield each, each["gridPos"]["y"] + pushed
        if hidden:
            ends = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in hidden)
            pushed += ends - panel["gridPos"]["y"] - panel["gridPos"]["h"]


def _html(board: Mapping[str, Any], span: Span, height: int, sections: list[str]) -> str:
    start, end = (
        datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
        for moment in (span.start, span.end)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(board['title'])}</title><style>{_STYLE}</style></head>"
        f'<body style="width:{WIDTH}px;height:{height}px"><header>'
        f"<h1>{escape(board['title'])}</h1><p>{start} to {end} UTC. A preview, not drawn by "
        f"Grafana. {escape(board['description'])}</p></header>{''.join(sections)}</body></html>\n"
    )
