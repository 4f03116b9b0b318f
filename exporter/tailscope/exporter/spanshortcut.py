"""A quick way from the bytes of an engine's span to its record, for spans of a known layout.

What a layout makes of a span is settled once: which value fills which column, and which attribute
names the tenant. A layout that would need a decision per span is left to the reader of spans, as is
any span with a value that is not plain; both ways lead to the same record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
)
from tailscope.records.record import COLUMNS, EARLIEST_NS, RequestRecord, printable

MAX_LAYOUTS = 512
"""Layouts that are remembered; when there are more, all are forgotten."""

_MAX_SIZE = 16 << 10
_TRIES = 4
_CREDIT = 1024
_MAX_NUMBERS = 65_536
_MAX_INT = 2**63 - 1
_NO_SPAN, _NO_TRACE = bytes(8), bytes(16)
_INDEX = {name: index for index, name in enumerate(COLUMNS)}
_PLAIN = {(float, Held.DOUBLE), (int, Held.INTEGER), (str, Held.TEXT)}


class EngineSpans(NamedTuple):
    """What is read of an engine's spans.

    Attributes:
        engine: Name of the engine.
        name: Name of the spans.
        columns: Attributes, best first, each with the column that it fills.
        request_id: Patterns, the first of which that fits has the client's id in its first group.
    """

    engine: str
    name: str
    columns: Sequence[tuple[str, str]]
    request_id: Sequence[re.Pattern[str]]


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


class Shortcut:
    """A span of a known layout, on its way to its record."""

    __slots__ = ("_plan", "_values", "part")

    def __init__(self, plan: _Plan, values: tuple[Any, ...], part: bytes) -> None:
        self._plan = plan
        self._values = values
        self.part = part

    def record(self, tenant: str | None, server: str | None) -> RequestRecord | None:
        """Make the record; None if that takes the reader of spans.

        Args:
            tenant: What the resource says, for spans that name none.
            server: What the resource says.
        """
        try:
            return self._plan.record(self._values, tenant, server)
        except (Odd, UnicodeDecodeError):
            return None


class _Plan:
    """What becomes of spans of one layout."""

    __slots__ = (
        "_doubles",
        "_integers",
        "_known",
        "_parent",
        "_patterns",
        "_row",
        "_texts",
        "_trace",
        "layout",
    )

    def __init__(
        self, layout: Layout, spans: EngineSpans, tenant_attributes: Sequence[str]
    ) -> None:
        self.layout = layout
        if not {SPAN, START, END} <= layout.fields.keys():
            raise Odd
        self._known = [layout.fields[name] for name in (SPAN, START, END)]
        self._parent, self._trace = layout.fields.get(PARENT), layout.fields.get(TRACE)
        self._patterns = [pattern.fullmatch for pattern in spans.request_id]
        found = _chosen(layout.attributes, spans.columns)
        tenant = next((name for name in tenant_attributes if name in layout.attributes), None)
        if tenant is not None:
            found["tenant"] = layout.attributes[tenant]
        if any((COLUMNS[column], value.held) not in _PLAIN for column, value in found.items()):
            raise Odd
        of_kind = {
            held: [(_INDEX[column], one.place) for column, one in found.items() if one.held is held]
            for held in Held
        }
        self._doubles, self._integers = of_kind[Held.DOUBLE], of_kind[Held.INTEGER]
        self._texts = of_kind[Held.TEXT]
        self._row: list[Any] = [None] * len(COLUMNS)
        self._row[_SOURCE] = self._row[_ENGINE] = spans.engine
        self._row[_ROLE] = "engine"
        self._row[_OUTCOME] = "error" if layout.failed else "ok"

    def record(
        self, values: tuple[Any, ...], tenant: str | None, server: str | None
    ) -> RequestRecord | None:
        span, start, end = self._known
        parent, trace = self._parent, self._trace
        row = self._row.copy()
        row[_ARRIVED], row[_ENDED] = arrived, ended = values[start], values[end]
        span_id = values[span]
        if not EARLIEST_NS <= arrived <= _MAX_INT or not 0 < ended <= _MAX_INT:
            return None
        if span_id == _NO_SPAN:
            return None
        row[_SPAN_ID] = span_id.hex()
        if parent is not None and (parent_id := values[parent]) != _NO_SPAN:
            row[_PARENT_ID] = parent_id.hex()
        if trace is not None and (trace_id := values[trace]) != _NO_TRACE:
            row[_TRACE_ID] = trace_id.hex()
        row[_TENANT], row[_SERVER] = tenant, server
        for column, index in self._doubles:
            value = values[index]
            if value - value != 0:  # it is infinite or no number
                return None
            row[column] = value
        for column, index in self._integers:
            row[column] = _numbers[values[index]]
        for column, index in self._texts:
            row[column] = printable(values[index].decode())
        request_id = row[_REQUEST_ID]
        if request_id is not None:
            for match in self._patterns:
                if hit := match(request_id):
                    row[_REQUEST_ID] = hit[1]
                    break
        return RequestRecord(*row)


(
    _SOURCE, _ROLE, _ARRIVED, _ENDED, _SPAN_ID, _PARENT_ID, _TRACE_ID, _REQUEST_ID, _TENANT,
    _SERVER, _ENGINE, _OUTCOME,
) = (
    _INDEX[name]
    for name in (
        "source", "role", "arrived_ns", "ended_ns", "span_id", "parent_span_id", "trace_id",
        "request_id", "tenant", "server", "engine", "outcome",
    )
)  # fmt: skip


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

    def find(self, part: memoryview) -> Shortcut | None:
        """Find the way of a span; None if there is none."""
        plans = self._plans.get(len(part)) or []
        data = bytes(part)
        for index, plan in enumerate(plans):
            values = plan.layout.read(data)
            if values is not None:
                if index:
                    plans.insert(0, plans.pop(index))
                if self._credit < _CREDIT:
                    self._credit += 1
                return Shortcut(plan, values, data)
        if self._credit <= 0 or len(data) > _MAX_SIZE or not any(n in data for n in self._names):
            return None
        self._credit -= 1
        return self._learn(data)

    def _learn(self, data: bytes) -> Shortcut | None:
        try:
            layout = Layout(data, self._wanted)
            spans = self._engines.get(layout.name)
            if spans is None:
                return None
            plan = _Plan(layout, spans, self._tenant)
        except Odd:
            return None
        if self._count >= MAX_LAYOUTS:
            self._plans.clear()
            self._count = 0
        plans = self._plans.setdefault(len(data), [])
        plans.insert(0, plan)
        self._count += 1 - len(plans[_TRIES:])
        del plans[_TRIES:]
        values = layout.read(data)
        return None if values is None else Shortcut(plan, values, data)
