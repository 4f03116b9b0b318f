"""OTLP spans to request records.

What is read is listed in the catalogue; every other attribute, event, link and text is dropped
here, at the first place that sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tailscope.catalogue import Engine
from tailscope.catalogue.spans import SERVER_ATTRIBUTES
from tailscope.exporter.otlp import Attributes, Group, Span, decode_span
from tailscope.exporter.spankinds import Kind, TenantPlaces, first, kinds
from tailscope.exporter.spanshortcut import EngineSpans, Shortcuts
from tailscope.exporter.stages import Key, Stages
from tailscope.records.record import EARLIEST_NS, RequestRecord, complete
from tailscope.records.tenancy import DEFAULT_RULES, TenantRule, parse_rules

_AT_A_TIME = 1024
_MAX_INT = 2**63 - 1
_NO_SPAN, _NO_TRACE = bytes(8), bytes(16)
_FAILED = Status.STATUS_CODE_ERROR


@dataclass(slots=True)
class Batch:
    """Records of one message.

    Attributes:
        records: In the order of the message.
        fuller: Records of earlier messages of which this one tells more.
        rejected: Requests that could make no record, by reason.
        clamped: Negative stage times that were set to 0.
    """

    records: list[RequestRecord] = field(default_factory=list)
    fuller: list[RequestRecord] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    clamped: int = 0


class SpanReader:
    """Picks the requests out of spans.

    Args:
        engines: Engines whose spans are read.
        rules: Where the tenant is, best first; None for the usual places.
        quick: Whether spans of a known layout are read without protobuf.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        rules: Sequence[TenantRule] | None = None,
        *,
        quick: bool = True,
    ) -> None:
        rules = parse_rules("", DEFAULT_RULES) if rules is None else rules
        declared = [engine.spans for engine in engines.values() if engine.spans]
        self._kinds = kinds(rules, declared)
        self._columns = {name: one for kind in declared for name, one in kind.stages.items()}
        self._between = {kind.between for kind in declared if kind.between}
        self._in_stages = {kind.source for kind in declared if kind.stages}
        self._stages = Stages(self._columns)
        places = TenantPlaces(rules)
        # The quick way knows attributes of the span and of the resource, and no other places.
        of_span, self._shared = places.plain or ((), ())
        quick = quick and places.plain is not None
        self._shortcuts = Shortcuts(self._quick_spans() if quick else (), of_span)

    def read(self, groups: Iterable[Group]) -> Batch:
        """Turn a message into records; one thread at a time.

        Spans that are no requests are passed over.

        Raises:
            BadMessage: If the message is none after all.
            TooLarge: If the message exceeds a limit.
        """
        batch, staged = Batch(), dict[Key, int]()
        for resource, spans in groups:
            shared = resource.attributes
            tenant = first(shared, self._shared)
            server = first(shared, SERVER_ATTRIBUTES)
            while some := list(islice(spans, _AT_A_TIME)):
                found, clamped = self._shortcuts.read(some, tenant, server)
                batch.clamped += clamped
                for one in found:
                    if not isinstance(one, bytes):
                        batch.records.append(one)
                    elif (span := decode_span(one)) is None:
                        batch.rejected["too_large"] += 1
                    elif (record := self._record(span, shared, server, batch)) is not None:
                        batch.clamped += complete(record)
                        if record.source in self._in_stages:
                            staged[self._stages.request(span, record)] = len(batch.records)
                        batch.records.append(record)
        self._fill(batch, staged)
        return batch

    def _fill(self, batch: Batch, staged: Mapping[Key, int]) -> None:
        """Put in what spans of stages told."""
        for key, record in self._stages.fuller():
            batch.clamped += complete(record)
            if key in staged:
                batch.records[staged[key]] = record
            else:
                batch.fuller.append(record)

    def _record(
        self, span: Span, shared: Attributes, server: str | None, batch: Batch
    ) -> RequestRecord | None:
        attributes = span.attributes
        names = frozenset(attributes)
        for kind in self._kinds:
            if kind.matches(span.name, names, attributes):
                break
        else:
            if span.name in self._columns:
                self._stages.stage(span)
            elif not self._between.isdisjoint(names):
                self._stages.thread(span)
            return None
        declared, values = kind.declared, kind.values(names, attributes)
        values["tenant"] = kind.tenant(attributes, shared, span.trace_state, values)
        if declared.needs_tenant and values["tenant"] is None:
            return None
        if declared.role == "engine":
            values["server"] = server
        record = _base(span, declared.source, declared.role, values, batch)
        if record is not None:
            record.outcome = kind.outcome(names, attributes, record, span.status.code == _FAILED)
        return record

    def _quick_spans(self) -> list[EngineSpans]:
        """Spans of engines that are known by their name and tell nothing but columns."""
        return [
            EngineSpans(
                one.engine,
                one.name,
                tuple(one.attributes.items()),
                one.patterns.get("request_id", ()),
                self._claims(kind),
            )
            for kind in self._kinds
            if (one := kind.declared).name and one.engine and not (one.outcomes or one.needs)
        ]

    def _claims(self, kind: Kind) -> Callable[[str, Set[str]], bool]:
        before = self._kinds[: self._kinds.index(kind)]

        def claims(name: str, names: Set[str]) -> bool:
            mine = kind.marked(name, names) and not any(one.marked(name, names) for one in before)
            return mine and "error.type" not in names

        return claims


def _base(
    span: Span, source: str, role: str, values: Mapping[str, Any], batch: Batch
) -> RequestRecord | None:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    span_id, parent, trace = span.span_id, span.parent_span_id, span.trace_id
    if len(span_id) != 8 or span_id == _NO_SPAN:
        batch.rejected["no_span_id"] += 1
        return None
    if not start:
        batch.rejected["no_arrival"] += 1
        return None
    if not EARLIEST_NS <= start <= _MAX_INT or end > _MAX_INT:
        batch.rejected["range"] += 1
        return None
    return RequestRecord(
        source,
        role,
        start,
        end or None,
        span_id.hex(),
        parent.hex() if len(parent) == 8 and parent != _NO_SPAN else None,
        trace.hex() if len(trace) == 16 and trace != _NO_TRACE else None,
        **values,
    )
