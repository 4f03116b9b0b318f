"""Chooses, of series that tell the same truth several times, those that count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tailscope.exporter.mapping import Series

T = TypeVar("T")


def select(found: Mapping[Series, T]) -> dict[Series, T]:
    """Leave out what would count twice.

    An engine that renames a family gives both names for some versions; tensor-parallel ranks all
    count the same requests; a total may stand beside its parts.
    """
    best: dict[int, int] = {}
    lowest: dict[tuple[int, str, str], tuple[tuple[int, str], ...]] = {}
    totals: set[tuple[int, str, str]] = set()
    for series in found:
        if series.age < best.get(series.slot, series.age + 1):
            best[series.slot] = series.age
        if series.twins is not None:
            lowest[series.twins] = min(series.copy, lowest.get(series.twins, series.copy))
        if series.siblings is not None and series.total:
            totals.add(series.siblings)
    return {
        series: parts
        for series, parts in found.items()
        if series.age == best[series.slot]
        and (series.twins is None or series.copy == lowest[series.twins])
        and (series.siblings is None or series.total or series.siblings not in totals)
    }
