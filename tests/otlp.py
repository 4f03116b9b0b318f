"""OTLP messages: made by hand, and recorded."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from tailscope.records.jsonl import parse_line
from tailscope.records.record import RequestRecord

CAPTURES = Path(__file__).parent / "captures" / "otlp"
NOW_NS = 1_796_000_000_000_000_000
PROTOBUF = "application/x-protobuf"
JSON = "application/json"

LATENCY = "gen_ai.latency."
STAGES = {
    f"{LATENCY}time_to_first_token": 0.5,
    f"{LATENCY}e2e": 1.5,
    f"{LATENCY}time_in_queue": 0.25,
    f"{LATENCY}time_in_model_prefill": 0.125,
    f"{LATENCY}time_in_model_decode": 1.0,
    "gen_ai.usage.prompt_tokens": 100,
    "gen_ai.usage.completion_tokens": 11,
}


def value(item: Any) -> AnyValue:
    """An attribute's value."""
    if isinstance(item, bool):
        return AnyValue(bool_value=item)
    if isinstance(item, int):
        return AnyValue(int_value=item)
    if isinstance(item, float):
        return AnyValue(double_value=item)
    if isinstance(item, bytes):
        return AnyValue(bytes_value=item)
    if isinstance(item, list):
        return AnyValue(array_value=ArrayValue(values=map(value, item)))
    return AnyValue(string_value=item)


def attributes(items: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes, in their order."""
    return [KeyValue(key=key, value=value(item)) for key, item in items.items()]


def span(number: int, *, name: str = "llm_request", trace: int | None = None, **more: Any) -> Span:
    """A span whose ids follow from a number; ``more`` are attributes, with ``__`` for a dot."""
    items = {key.replace("__", "."): item for key, item in more.items()}
    if name == "llm_request":
        items = {**STAGES, "gen_ai.request.id": f"chatcmpl-r{number}", **items}
    return Span(
        trace_id=(number if trace is None else trace).to_bytes(16),
        span_id=(number << 8 | 1).to_bytes(8),
        parent_span_id=(number << 8 | 2).to_bytes(8),
        name=name,
        start_time_unix_nano=NOW_NS + number,
        end_time_unix_nano=NOW_NS + number + 1_500_000_000,
        attributes=attributes(items),
    )


def span_id(number: int) -> str:
    """The id, in hexadecimal, of ``span(number)``."""
    return (number << 8 | 1).to_bytes(8).hex()


def parent_id(number: int) -> str:
    """The id, in hexadecimal, of the span that called ``span(number)``."""
    return (number << 8 | 2).to_bytes(8).hex()


def trace_id(number: int) -> str:
    """A trace's id in hexadecimal."""
    return number.to_bytes(16).hex()


def message(
    spans: Sequence[Span], resource: Mapping[str, Any] | None = None
) -> ExportTraceServiceRequest:
    """A message with the spans of one resource."""
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=attributes(resource or {})),
                scope_spans=[ScopeSpans(spans=spans)],
            )
        ]
    )


def body(*numbers: int) -> bytes:
    """A message in protobuf, with the spans of these numbers."""
    return message([span(number) for number in numbers]).SerializeToString()


def recorded(run: str) -> list[bytes]:
    """The messages that vLLM sent in a recorded run."""
    with gzip.open(CAPTURES / f"{run}.otlp.gz") as file:
        return [base64.b64decode(line) for line in file]


def clients(run: str) -> list[RequestRecord]:
    """What the client knew of a recorded run."""
    with gzip.open(CAPTURES / f"{run}.clients.jsonl.gz") as file:
        return [parse_line(line)[0] for line in file]


def in_json(request: ExportTraceServiceRequest) -> dict[str, Any]:
    """A message as OTLP writes it in JSON: ids in hexadecimal, numbers for enumerations."""
    groups = []
    for group in request.resource_spans:
        scopes = [{"spans": list(map(_span_json, scope.spans))} for scope in group.scope_spans]
        resource = {"attributes": list(map(_attribute_json, group.resource.attributes))}
        groups.append({"resource": resource, "scopeSpans": scopes})
    loaded: dict[str, Any] = json.loads(json.dumps({"resourceSpans": groups}))
    return loaded


def _span_json(one: Span) -> dict[str, Any]:
    return {
        "traceId": one.trace_id.hex(),
        "spanId": one.span_id.hex(),
        "parentSpanId": one.parent_span_id.hex(),
        "name": one.name,
        "kind": 2,
        "startTimeUnixNano": str(one.start_time_unix_nano),
        "endTimeUnixNano": str(one.end_time_unix_nano),
        "attributes": list(map(_attribute_json, one.attributes)),
        "status": {},
    }


def _attribute_json(attribute: KeyValue) -> dict[str, Any]:
    names = {"string_value": "stringValue", "int_value": "intValue", "double_value": "doubleValue"}
    which = attribute.value.WhichOneof("value")
    assert which in names, which
    item = getattr(attribute.value, which)
    return {
        "key": attribute.key,
        "value": {names[which]: str(item) if which == "int_value" else item},
    }
