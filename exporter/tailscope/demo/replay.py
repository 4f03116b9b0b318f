"""What a loop sends: recorded OTLP requests and gateway rows with new times and new ids."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.demo.recording import Recording, ended_ns
from tailscope.demo.schedule import Loop

_REQUEST_ID = "gen_ai.request.id"


class Replay:
    """Turns a recording into the events of a loop.

    Durations, sizes and all other attributes stay as recorded. Times move to the loop. Trace,
    span and request ids are new, and stay the same between spans and gateway rows.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._request_ids: dict[bytes, list[str]] = defaultdict(list)
        for row in recording.gateway:
            if row.get("trace_id") and row.get("request_id"):
                self._request_ids[bytes.fromhex(row["trace_id"])].append(row["request_id"])

    def exports(self, loop: Loop) -> Iterator[tuple[int, bytes]]:
        """Yield when each OTLP request is due, UTC nanoseconds, and its body.

        What the engine sent while it started is sent in the first loop only.
        """
        for export in self._recording.exports:
            if loop.number and export.at_ns < self._recording.start_ns:
                continue
            yield loop.time(export.at_ns), self._export(export.body, loop)

    def rows(self, loop: Loop) -> Iterator[tuple[int, bytes]]:
        """Yield when each gateway row is due (its request's end), and the row as a JSON line."""
        for row in self._recording.gateway:
            line = json.dumps(_row(row, loop), separators=(",", ":")) + "\n"
            yield loop.time(ended_ns(row)), line.encode("utf-8")

    def _export(self, body: bytes, loop: Loop) -> bytes:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._renew(span, loop)
        return request.SerializeToString()

    def _renew(self, span: Span, loop: Loop) -> None:
        known = self._request_ids.get(span.trace_id, [])
        span.trace_id = loop.trace_id(span.trace_id)
        span.span_id = loop.span_id(span.span_id)
        span.parent_span_id = loop.span_id(span.parent_span_id)
        span.start_time_unix_nano = loop.time(span.start_time_unix_nano)
        span.end_time_unix_nano = loop.time(span.end_time_unix_nano)
        for event in span.events:
            event.time_unix_nano = loop.time(event.time_unix_nano)
        for attribute in span.attributes:
            if attribute.key == _REQUEST_ID:
                text = attribute.value.string_value
                attribute.value.string_value = _renamed(text, known, loop)


def _renamed(engine_id: str, known: list[str], loop: Loop) -> str:
    """Renew the client's id inside the engine's: ``cmpl-<id>-0``, ``chatcmpl-<id>``."""
    for client_id in known:
        if client_id in engine_id:
            return engine_id.replace(client_id, loop.request_id(client_id))
    return engine_id


def _row(row: Mapping[str, Any], loop: Loop) -> dict[str, Any]:
    new = dict(row)
    for name in ("arrived_ns", "ended_ns"):
        if row.get(name):
            new[name] = loop.time(row[name])
    if row.get("trace_id"):
        new["trace_id"] = loop.trace_id(bytes.fromhex(row["trace_id"])).hex()
    for name in ("span_id", "parent_span_id"):
        if row.get(name):
            new[name] = loop.span_id(bytes.fromhex(row[name])).hex()
    if row.get("request_id"):
        new["request_id"] = loop.request_id(row["request_id"])
    return new
