"""JSON that an engine serves, as Prometheus text, so that it takes the same way as the rest.

Rows of a list that every read empties are events: their sums, counts and histograms go on from
read to read. Rows of any other list are a state: sums and counts are those of the moment.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tailscope.catalogue.upstream import Document, Field, Reduce

Row = dict[str, object]


def rows(document: Document, content: bytes) -> list[Row] | None:
    """Return the rows of a body; None if it is not this document."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, list):
        return None
    found = [row for row in data if isinstance(row, dict)]
    if len(found) < len(data) or any(mark not in found[0] for mark in document.marks if found):
        return None
    return found


class DocumentReader:
    """Reads one document of one server again and again.

    Args:
        document: The catalogue's entry.
        prefix: What family names begin with.
    """

    def __init__(self, document: Document, prefix: str) -> None:
        self._document = document
        self._prefix = prefix
        self._totals: dict[Field, list[float]] = {}

    def text(self, found: Sequence[Row]) -> str:
        """Return the rows of one read as Prometheus text."""
        lines: list[str] = []
        for field in self._document.fields:
            values = [_value(field, row) for row in found]
            if not (field.when and None in values):
                lines += self._lines(field, [value for value in values if value is not None])
        return "".join(f"{self._prefix}{line}\n" for line in lines)

    def _lines(self, field: Field, values: list[float]) -> Iterator[str]:
        match field.reduce:
            case Reduce.LAST:
                if values:
                    yield f"{field.family} {values[-1]!r}"
            case Reduce.SUM | Reduce.COUNT:
                if values or self._document.drained:
                    news = math.fsum(values) if field.reduce is Reduce.SUM else float(len(values))
                    yield f"{field.family} {self._added(field, [news])[0]!r}"
            case Reduce.BUCKETS:
                counts = [0.0] * (len(field.bounds) + 1)
                for value in values:
                    counts[bisect_left(field.bounds, value)] += 1
                *counts, total = self._added(field, [*counts, math.fsum(values)])
                for bound, count in zip((*field.bounds, math.inf), accumulate(counts), strict=True):
                    text = "+Inf" if bound == math.inf else repr(bound)
                    yield f'{field.family}_bucket{{le="{text}"}} {count!r}'
                yield f"{field.family}_sum {total!r}"
                yield f"{field.family}_count {math.fsum(counts)!r}"

    def _added(self, field: Field, news: list[float]) -> list[float]:
        if self._document.drained:
            before = self._totals.get(field, [0.0] * len(news))
            news = [old + new for old, new in zip(before, news, strict=True)]
            self._totals[field] = news
        return news


def _value(field: Field, row: Row) -> float | None:
    if field.when and find(row, field.when) is not True:
        return 0.0
    value = _number(row, field.pointer)
    if value is None or not field.minus:
        return value
    earlier = _number(row, field.minus)
    return None if earlier is None or value < earlier else value - earlier


def _number(row: object, pointer: Sequence[str | int]) -> float | None:
    value = find(row, pointer)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def find(data: object, pointer: Sequence[str | int]) -> object:
    """Follow keys and indexes into JSON; None where they lead nowhere."""
    for step in pointer:
        if isinstance(step, str) and isinstance(data, dict):
            data = data.get(step)
        elif isinstance(step, int) and isinstance(data, list) and -len(data) <= step < len(data):
            data = data[step]
        else:
            return None
    return data
