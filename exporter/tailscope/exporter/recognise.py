"""Finds out which engine wrote a page of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tailscope.catalogue import Engine
from tailscope.catalogue.upstream import Mark
from tailscope.exporter.mapping import NAME, TYPE

_SAMPLE = re.compile(rf"^({NAME.pattern})([{{ \t].*)", re.MULTILINE)
_SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


def recognise(text: str, engines: Iterable[Engine]) -> Engine | None:
    """Say which engine wrote a scrape; None if none of the catalogue's did.

    One that stands in front of others may repeat their families, so the outermost counts; in one
    layer, the one of which more marks are there.
    """
    lines = _first_lines(text)
    best: tuple[int, int] = (0, 0)
    found: Engine | None = None
    for engine in engines:
        marks = sum(_there(engine, mark, lines) for mark in engine.recognise)
        if marks and (engine.layer, marks) > best:
            best, found = (engine.layer, marks), engine
    return found


def families(text: str, most: int = 5) -> list[str]:
    """Return the first families that a scrape names, for a message."""
    declared = [hit[1] for hit, _ in zip(TYPE.finditer(text), range(most), strict=False)]
    return declared or list(_first_lines(text))[:most]


def _first_lines(text: str) -> dict[str, str]:
    """Return each family with the rest of its first sample's line."""
    found: dict[str, str] = {}
    for hit in _SAMPLE.finditer(text):
        if hit[1] not in found:
            found[hit[1]] = hit[2]
    for name in list(found):
        found.setdefault(_SUFFIX.sub("", name), found[name])
    return found


def _there(engine: Engine, mark: Mark, lines: Mapping[str, str]) -> bool:
    for prefix in (*engine.prefixes, *filter(None, (engine.renamed,))):
        rest = lines.get(prefix + mark.family)
        if rest is not None and _fits(mark, rest):
            return True
    return False


def _fits(mark: Mark, rest: str) -> bool:
    return all(f'{label}="' in rest for label in mark.labels) and not any(
        f'{label}="' in rest for label in mark.lacks
    )
