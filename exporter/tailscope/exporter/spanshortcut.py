"""A quick way from the bytes of an engine's span to its record, for spans of a known layout.

What a layout makes of a span is settled once: which value fills which column, and which attribute
names the tenant. A layout that would need a decision per span is left to the reader of spans, as is
any span with a value that is not plain; both ways lead to the same record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import repeat
from typing import Any, NamedTuple

from tailscope.exporter.spanlayout import (
    END,
    PARENT,
    SPAN,
    START,
    TRACE,
    Held,
    Layout,
    Odd,
    Value,
    bits,
)
from tailscope.records.record import (
    COLUMNS,
    EARLIEST_NS,
    MAX_MEASURED,
    MEASURED,
    RequestRecord,
    complete,
    printable,
)

MAX_LAYOUTS = 512
"""Layouts that are remembered; when there are more, all are forgotten."""

_MAX_SIZE = 16 << 10
_TRIES = 4
_CREDIT = 2048
_PRICE = 2
_MAX_NUMBERS = 65_536
_MAX_INT = 2**63 - 1
_NO_SPAN, _NO_TRACE = bytes(8), bytes(16)
_PLAIN = {(float, Held.DOUBLE), (int, Held.INTEGER), (str, Held.TEXT)}


class EngineSpans(NamedTuple):
    """What is read of an engine's spans.

    Attributes:
        engine: Name of the engine.
        name: Name of the spans.
        columns: Attributes, best first, each with the column that it fills.
        request_id: Patterns, the first of which that fits has the client's id in its first group.
        claims: Whether a span of this name that has attributes of these names is of these spans.
    """

    engine: str
    name: str
    columns: Sequence[tuple[str, str]]
    request_id: Sequence[re.Pattern[str]]
    claims: Callable[[str, Set[str]], bool]


class _Numbers(dict[bytes, int]):
    """Whole numbers by their bytes."""

    def __missing__(self, raw: bytes) -> int:
        number = 0
        for index, byte in enumerate(raw):
            number |= (byte & 0x7F) << 7 * index
            if (byte < 0x80) is not (index == len(raw) - 1):
                raise Odd
        if len(self) < _MAX_NUMBERS:
            self[raw] = number
        return number


_numbers = _Numbers()


class _Plan:
    """What becomes of spans of one layout."""

    __slots__ = ("_columns", "_constant", "_layout", "_patterns", "_tenant", "fixed", "mask")

    def __init__(
        self, layout: Layout, spans: EngineSpans, tenant_attributes: Sequence[str]
    ) -> None:
        if not {SPAN, START, END} <= layout.fields.keys():
            raise Odd
        if not spans.claims(layout.name, layout.names):
            raise Odd
        found = _chosen(layout.attributes, spans.columns)
        tenant = next((name for name in tenant_attributes if name in layout.attributes), None)
        if tenant is not None:
            found["tenant"] = layout.attributes[tenant]
        if any((COLUMNS[column], value.held) not in _PLAIN for column, value in found.items()):
            raise Odd
        self.mask, self.fixed = layout.mask, layout.fixed
        self._layout = layout
        self._columns = [(column, *value) for column, value in found.items()]
        self._patterns = [pattern.fullmatch for pattern in spans.request_id]
        self._tenant = tenant is not None
        self._constant = {
            "source": spans.engine,
            "role": "engine",
            "engine": spans.engine,
            "outcome": "error" if layout.failed else "ok",
        }

    def records(
        self, spans: Sequence[bytes], tenant: str | None, server: str | None
    ) -> tuple[list[RequestRecord], int]:
        """Make the records of spans, complete; returns also how many negative times were set to 0.

        Args:
            spans: Those of this layout.
            tenant: What the resource says, for spans that name none.
            server: What the resource says.

        Raises:
            Odd: If a value is not plain.
        """
        values = list(zip(*map(self._layout.unpack, spans), strict=True))
        columns = self._identities(values)
        for column, place, held in self._columns:
            columns[column] = _READ[held](values[place])
        if (request_ids := columns.get("request_id")) is not None:
            columns["request_id"] = list(map(self._client_id, request_ids))
        plain = _completed(columns)
        constant = {**self._constant, "server": server}
        if not self._tenant:
            constant["tenant"] = tenant
        rows = [columns.get(name) or repeat(constant.get(name), len(spans)) for name in COLUMNS]
        records = list(map(RequestRecord, *rows))
        return records, 0 if plain else sum(map(complete, records))

    def _identities(self, values: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
        fields = self._layout.fields
        spans, starts, ends = (values[fields[name]] for name in (SPAN, START, END))
        if _NO_SPAN in spans or min(starts) < EARLIEST_NS or min(ends) <= 0:
            raise Odd
        if max(starts) > _MAX_INT or max(ends) > _MAX_INT:
            raise Odd
        columns = {"arrived_ns": starts, "ended_ns": ends, "span_id": list(map(bytes.hex, spans))}
        for name, column, nothing in (
            (PARENT, "parent_span_id", _NO_SPAN),
            (TRACE, "trace_id", _NO_TRACE),
        ):
            if name in fields:
                ids = values[fields[name]]
                columns[column] = (
                    [None if one == nothing else one.hex() for one in ids]
                    if nothing in ids
                    else list(map(bytes.hex, ids))
                )
        return columns

    def _client_id(self, text: str) -> str:
        for match in self._patterns:
            if hit := match(text):
                return hit[1]
        return text


def _completed(columns: dict[str, Sequence[Any]]) -> bool:
    """Add the columns that follow from others, as ``complete`` does; whether that was all."""
    stages = [columns.get(name) for name in ("ttft_seconds", "queue_seconds", "prefill_seconds")]
    if "frontend_seconds" not in columns and None not in stages:
        columns["frontend_seconds"] = [
            ttft - queue - prefill for ttft, queue, prefill in zip(*stages, strict=True)
        ]
    if "total_seconds" not in columns:
        columns["total_seconds"] = [
            (end - start) / 1e9
            for start, end in zip(columns["arrived_ns"], columns["ended_ns"], strict=True)
        ]
    measured = [columns[name] for name in MEASURED if name in columns]
    return all(min(column) >= 0 and max(column) <= MAX_MEASURED for column in measured)


def _finite(column: Sequence[float]) -> Sequence[float]:
    total = sum(column)
    if total - total != 0:  # it is infinite or no number
        raise Odd
    return column


def _whole(column: Sequence[bytes]) -> Sequence[int]:
    return [_numbers[raw] for raw in column]


def _texts(column: Sequence[bytes]) -> Sequence[str]:
    try:
        texts = [raw.decode() for raw in column]
    except UnicodeDecodeError:
        raise Odd from None
    return texts if "".join(texts).isprintable() else list(map(printable, texts))


_READ: dict[Held, Callable[[Any], Sequence[Any]]] = {
    Held.DOUBLE: _finite,
    Held.INTEGER: _whole,
    Held.TEXT: _texts,
}


def _chosen(
    attributes: Mapping[str, Value], columns: Iterable[tuple[str, str]]
) -> dict[str, Value]:
    """Choose one attribute for each column: where there are several, the first one."""
    found: dict[str, Value] = {}
    for attribute, column in columns:
        if attribute in attributes:
            found.setdefault(column, attributes[attribute])
    return found


class Shortcuts:
    """Knows layouts and gets to know new ones. Its owner holds a lock.

    Args:
        engines: Spans that are read.
        tenant_attributes: Where the tenant is; the first attribute that is there wins.
    """

    def __init__(self, engines: Iterable[EngineSpans], tenant_attributes: Sequence[str]) -> None:
        self._engines = {spans.name: spans for spans in engines}
        self._names = [name.encode() for name in self._engines]
        self._tenant = tenant_attributes
        self._wanted = {
            *tenant_attributes,
            *(attribute for spans in self._engines.values() for attribute, _ in spans.columns),
        }
        self._plans: dict[int, list[_Plan]] = {}
        self._count = 0
        # New layouts cost more than they bring where each span has another one.
        self._credit = _CREDIT

    def read(
        self, parts: Sequence[bytes], tenant: str | None, server: str | None
    ) -> tuple[list[RequestRecord | bytes], int]:
        """Make the records of spans, in their order; what takes the careful way stays as it is.

        Returns also how many negative times were set to 0.

        Args:
            parts: The spans.
            tenant: What their resource says, for those that name none.
            server: What their resource says.
        """
        found: list[RequestRecord | bytes] = list(parts)
        clamped = 0
        groups: dict[_Plan, list[int]] = {}
        for index, part in enumerate(parts):
            plan = self._known(part) or self._learn(part)
            if plan is None:
                continue
            if plan in groups:
                groups[plan].append(index)
            else:
                groups[plan] = [index]
        for plan, indexes in groups.items():
            self._credit = min(_CREDIT, self._credit + len(indexes))
            spans = [parts[index] for index in indexes]
            records, mended = _records(plan, spans, tenant, server)
            clamped += mended
            for index, record in zip(indexes, records, strict=True):
                if record is not None:
                    found[index] = record
        return found, clamped

    def _known(self, part: bytes) -> _Plan | None:
        plans = self._plans.get(len(part))
        if plans:
            number = bits(part)
            for place, plan in enumerate(plans):
                if number & plan.mask == plan.fixed:
                    if place:
                        plans.insert(0, plans.pop(place))
                    return plan
        return None

    def _learn(self, part: bytes) -> _Plan | None:
        if self._credit <= 0 or len(part) > _MAX_SIZE or not any(n in part for n in self._names):
            return None
        self._credit -= _PRICE
        try:
            layout = Layout(part, self._wanted)
            spans = self._engines.get(layout.name)
            if spans is None:
                return None
            plan = _Plan(layout, spans, self._tenant)
        except Odd:
            return None
        if self._count >= MAX_LAYOUTS:
            self._plans.clear()
            self._count = 0
        plans = self._plans.setdefault(len(part), [])
        plans.insert(0, plan)
        self._count += 1 - len(plans[_TRIES:])
        del plans[_TRIES:]
        return plan


def _records(
    plan: _Plan, spans: Sequence[bytes], tenant: str | None, server: str | None
) -> tuple[Sequence[RequestRecord | None], int]:
    try:
        return plan.records(spans, tenant, server)
    except Odd:
        if len(spans) == 1:
            return [None], 0
    # One of them is odd; the others go the quick way by themselves.
    some = [_records(plan, [span], tenant, server) for span in spans]
    return [one for ones, _ in some for one in ones], sum(clamped for _, clamped in some)
