"""Spans that are read: messages in, records out."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.catalogue.engines import engines
from tailscope.exporter.otlp import read_protobuf
from tailscope.exporter.spans import Batch, SpanReader
from tailscope.records.record import RequestRecord
from tests.otlp import message, span

READER = SpanReader(engines())


def read(request: ExportTraceServiceRequest) -> Batch:
    return READER.read(read_protobuf(request.SerializeToString()))


def read_one(one: Span, resource: dict[str, Any] | None = None) -> RequestRecord:
    (record,) = read(message([one], resource)).records
    return record


def gateway(number: int, **more: Any) -> Span:
    given = {"gen_ai__operation__name": "chat", "tenant__id": "acme", **more}
    return span(number, name="litellm_request", **given)
