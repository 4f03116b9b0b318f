"""SVG elements as text: escaped, and with attributes in Python's spelling."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def element(name: str, inner: str = "", **attributes: object) -> str:
    """Return an element; ``stroke_width=1`` becomes ``stroke-width="1"``."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{inner}</{name}>"


def label(x: float, y: float, text: str, anchor: str = "start", **more: object) -> str:
    """Return a text at a place."""
    return element("text", escape(text), x=round(x, 1), y=round(y, 1), text_anchor=anchor, **more)


def path(points: Iterable[tuple[float, float]], gap: float | None = None) -> str:
    """Return the ``d`` of a line; it breaks where points lie further apart than ``gap``."""
    found: list[str] = []
    last: float | None = None
    for x, y in points:
        joined = last is not None and (gap is None or x - last <= gap)
        found.append(f"{'L' if joined else 'M'}{x:g} {y:g}")
        last = x
    return "".join(found)
