"""What a pass sends: recorded OTLP requests and gateway rows with new times and new ids."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.demo.recording import Export, Piece, Recording, ended_ns
from tailscope.demo.schedule import Pass

_REQUEST_ID = "gen_ai.request.id"


class Replay:
    """Turns a recording into the events of a pass.

    A pass holds the requests that arrived in its piece. Durations, sizes and all other attributes
    stay as recorded. Times move to the pass. Trace, span and request ids are new, and stay the
    same between spans and gateway rows.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._bodies: dict[Piece, list[Export]] = {}
        self._request_ids: dict[bytes, list[str]] = defaultdict(list)
        for row in recording.gateway:
            if row.get("trace_id") and row.get("request_id"):
                self._request_ids[bytes.fromhex(row["trace_id"])].append(row["request_id"])

    def exports(self, one: Pass) -> Iterator[tuple[int, bytes]]:
        """Yield when each OTLP request is due, UTC nanoseconds, and its body.

        What the engine sent while it started is sent in the first pass only.
        """
        if one.number == 0:
            for export in self._recording.exports:
                if export.at_ns < self._recording.whole.start_ns:
                    yield one.time(export.at_ns), self._export(export.body, one)
        if one.piece not in self._bodies:
            self._bodies[one.piece] = list(self._within(one.piece))
        for export in self._bodies[one.piece]:
            yield one.time(export.at_ns), self._export(export.body, one)

    def rows(self, one: Pass) -> Iterator[tuple[int, bytes]]:
        """Yield when each gateway row is due (its request's end), and the row as a JSON line."""
        for row in self._recording.gateway:
            if one.piece.holds(row["arrived_ns"]):
                line = json.dumps(_row(row, one), separators=(",", ":")) + "\n"
                yield one.time(ended_ns(row)), line.encode("utf-8")

    def _within(self, piece: Piece) -> Iterator[Export]:
        """Yield what was sent of the requests that arrived in a piece."""
        for export in self._recording.exports:
            request = ExportTraceServiceRequest.FromString(export.body)
            kept = 0
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    spans = [s for s in scope.spans if piece.holds(s.start_time_unix_nano)]
                    del scope.spans[:]
                    scope.spans.extend(spans)
                    kept += len(spans)
            if kept:
                yield Export(export.at_ns, request.SerializeToString())

    def _export(self, body: bytes, one: Pass) -> bytes:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._renew(span, one)
        return request.SerializeToString()

    def _renew(self, span: Span, one: Pass) -> None:
        known = self._request_ids.get(span.trace_id, [])
        span.trace_id = one.trace_id(span.trace_id)
        span.span_id = one.span_id(span.span_id)
        span.parent_span_id = one.span_id(span.parent_span_id)
        span.start_time_unix_nano = one.time(span.start_time_unix_nano)
        span.end_time_unix_nano = one.time(span.end_time_unix_nano)
        for event in span.events:
            event.time_unix_nano = one.time(event.time_unix_nano)
        for attribute in span.attributes:
            if attribute.key == _REQUEST_ID:
                text = attribute.value.string_value
                attribute.value.string_value = _renamed(text, known, one)


def _renamed(engine_id: str, known: list[str], one: Pass) -> str:
    """Renew the client's id inside the engine's: ``cmpl-<id>-0``, ``chatcmpl-<id>``."""
    for client_id in known:
        if client_id in engine_id:
            return engine_id.replace(client_id, one.request_id(client_id))
    return engine_id


def _row(row: Mapping[str, Any], one: Pass) -> dict[str, Any]:
    new = dict(row)
    for name in ("arrived_ns", "ended_ns"):
        if row.get(name):
            new[name] = one.time(row[name])
    if row.get("trace_id"):
        new["trace_id"] = one.trace_id(bytes.fromhex(row["trace_id"])).hex()
    for name in ("span_id", "parent_span_id"):
        if row.get(name):
            new[name] = one.span_id(bytes.fromhex(row[name])).hex()
    if row.get("request_id"):
        new["request_id"] = one.request_id(row["request_id"])
    return new
