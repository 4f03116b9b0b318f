"""OTLP spans to request records.

What is read is listed in the catalogue; every other attribute, event, link and text is dropped
here, at the first place that sees it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tailscope.catalogue import Engine, SpanMapping
from tailscope.catalogue.spans import (
    GATEWAY_ATTRIBUTES,
    GATEWAY_MARKS,
    SERVER_ATTRIBUTES,
    TENANT_ATTRIBUTES,
)
from tailscope.records.record import COLUMNS, MAX_TEXT, RequestRecord, complete

_MAX_TIME = 2**63 - 1
_MAX_INT = 2**63 - 1


@dataclass(slots=True)
class Batch:
    """Records of one message.

    Attributes:
        records: In the order of the message.
        rejected: Requests that could make no record, by reason.
        clamped: Negative stage times that were set to 0.
    """

    records: list[RequestRecord] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    clamped: int = 0


class SpanReader:
    """Picks the requests out of spans.

    Args:
        engines: Engines whose spans are read.
        tenant_attributes: Where the tenant is; the first attribute that is there wins.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        tenant_attributes: Sequence[str] = TENANT_ATTRIBUTES,
    ) -> None:
        self._engines = {
            engine.spans.name: (engine.name, engine.spans)
            for engine in engines.values()
            if engine.spans
        }
        self._tenant = tuple(tenant_attributes)

    def read(self, message: ExportTraceServiceRequest) -> Batch:
        """Turn a message into records. Spans that are no requests are passed over."""
        batch = Batch()
        for resource_spans in message.resource_spans:
            resource = _texts(
                resource_spans.resource.attributes, (*self._tenant, *SERVER_ATTRIBUTES)
            )
            tenant = _first(resource, self._tenant)
            server = _first(resource, SERVER_ATTRIBUTES)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    known = self._engines.get(span.name)
                    record: RequestRecord | None
                    if known is not None:
                        record = self._engine(span, *known, batch)
                    else:
                        record = self._gateway(span, tenant, batch)
                    if record is None:
                        continue
                    record.tenant = record.tenant or tenant
                    if record.role == "engine":
                        record.server = server
                    batch.clamped += complete(record)
                    batch.records.append(record)
        return batch

    def _engine(
        self, span: Span, engine: str, mapping: SpanMapping, batch: Batch
    ) -> RequestRecord | None:
        record = _base(span, engine, "engine", batch)
        if record is None:
            return None
        _fill(record, span.attributes, mapping.attributes)
        record.engine = engine
        record.tenant = _first(_texts(span.attributes, self._tenant), self._tenant)
        # vLLM ends a span for finished requests only, and leaves its status unset.
        record.outcome = "error" if span.status.code == Status.STATUS_CODE_ERROR else "ok"
        if record.request_id:
            for pattern in mapping.request_id:
                if hit := pattern.fullmatch(record.request_id):
                    record.request_id = hit[1]
                    break
        return record

    def _gateway(self, span: Span, tenant: str | None, batch: Batch) -> RequestRecord | None:
        keys = {attribute.key for attribute in span.attributes}
        if not keys.intersection(GATEWAY_MARKS):
            return None
        own = _first(_texts(span.attributes, self._tenant), self._tenant)
        if own is None and tenant is None:
            return None
        record = _base(span, "otlp", "gateway", batch)
        if record is None:
            return None
        _fill(record, span.attributes, GATEWAY_ATTRIBUTES)
        record.tenant = own
        failed = span.status.code == Status.STATUS_CODE_ERROR or "error.type" in keys
        record.outcome = "error" if failed or (record.status or 0) >= 400 else "ok"
        return record


def _base(span: Span, source: str, role: str, batch: Batch) -> RequestRecord | None:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if len(span.span_id) != 8 or not any(span.span_id):
        batch.rejected["no_span_id"] += 1
        return None
    if not start:
        batch.rejected["no_arrival"] += 1
        return None
    if start > _MAX_TIME or end > _MAX_TIME:
        batch.rejected["range"] += 1
        return None
    return RequestRecord(
        source,
        role,
        start,
        end or None,
        span.span_id.hex(),
        span.parent_span_id.hex() if len(span.parent_span_id) == 8 else None,
        span.trace_id.hex() if len(span.trace_id) == 16 and any(span.trace_id) else None,
    )


def _fill(
    record: RequestRecord, attributes: Iterable[KeyValue], mapping: Mapping[str, str]
) -> None:
    for attribute in attributes:
        column = mapping.get(attribute.key)
        if column is not None:
            value = _value(attribute.value, COLUMNS[column])
            if value is not None:
                setattr(record, column, value)


def _value(value: AnyValue, kind: type) -> Any:
    """Read an attribute as the column wants it; None if it is something else."""
    which = value.WhichOneof("value")
    if kind is str:
        if which == "array_value" and value.array_value.values:
            return _value(value.array_value.values[0], str)
        if which != "string_value" or not 0 < len(value.string_value) <= MAX_TEXT:
            return None
        return value.string_value
    if which == "double_value":
        number = value.double_value
        if kind is float:
            return number if math.isfinite(number) else None
        return int(number) if number.is_integer() and abs(number) <= _MAX_INT else None
    if which == "int_value":
        return kind(value.int_value)
    return None


def _texts(attributes: Iterable[KeyValue], names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for attribute in attributes:
        if attribute.key in names:
            text = _value(attribute.value, str)
            if text is not None:
                found.setdefault(attribute.key, text)
    return found


def _first(found: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((found[name] for name in names if name in found), None)
