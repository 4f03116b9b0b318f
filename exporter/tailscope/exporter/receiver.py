"""The OTLP receiver, apart from its transports: bytes in, records kept, a verdict out.

Protocol: https://opentelemetry.io/docs/specs/otlp/ (OTLP 1.x, traces).
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tailscope.exporter.health import Health
from tailscope.exporter.intake import Intake
from tailscope.exporter.spans import SpanReader

MAX_MESSAGE = 16 << 20
"""Largest message, in bytes, as it comes."""

MAX_UNPACKED = 64 << 20
"""Largest message, in bytes, decompressed."""

_MAX_JSON_DEPTH = 64


class BadMessage(ValueError):
    """The bytes are no OTLP message; the text never quotes them."""


class TooLarge(ValueError):
    """The message exceeds a limit."""


class Receiver:
    """Takes OTLP trace messages.

    Args:
        spans: Picks the requests out.
        intake: Keeps and counts them.
        health: State of the listener; ``source`` of the records.
    """

    def __init__(self, spans: SpanReader, intake: Intake, health: Health) -> None:
        self._spans = spans
        self._intake = intake
        self._health = health

    def accept(self, message: ExportTraceServiceRequest) -> ExportTraceServiceResponse:
        """Keep the requests of a message, then say so.

        Raises:
            StoreFull: If the disk is too slow.
            StoreError: If the disk refuses.
        """
        batch = self._spans.read(message)
        self._intake.accept(self._health.source, batch.records, batch.rejected, batch.clamped)
        self._health.success(message="receives spans")
        response = ExportTraceServiceResponse()
        if batch.rejected:
            response.partial_success.rejected_spans = batch.rejected.total()
            response.partial_success.error_message = ", ".join(sorted(batch.rejected))
        return response


def decode_protobuf(body: bytes) -> ExportTraceServiceRequest:
    """Decode a binary message.

    Raises:
        BadMessage: If it is none.
    """
    try:
        return ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        raise BadMessage("the body is no ExportTraceServiceRequest") from None


def decode_json(body: bytes) -> ExportTraceServiceRequest:
    """Decode a JSON message; OTLP writes ids in hexadecimal, where protobuf's JSON has base64.

    Raises:
        BadMessage: If it is none.
    """
    try:
        value = json.loads(body)
        if not isinstance(value, dict):
            raise BadMessage("the body is JSON, but no object")
        for span in _spans(value):
            for name in ("traceId", "spanId", "parentSpanId", "trace_id", "span_id"):
                if isinstance(span.get(name), str):
                    span[name] = base64.b64encode(binascii.unhexlify(span[name])).decode()
            span.pop("links", None)
            span.pop("events", None)
        return ParseDict(
            value,
            ExportTraceServiceRequest(),
            ignore_unknown_fields=True,
            max_recursion_depth=_MAX_JSON_DEPTH,
        )
    except (ParseError, RecursionError, ValueError, TypeError, AttributeError):
        raise BadMessage("the body is no ExportTraceServiceRequest in JSON") from None


def _spans(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Find the spans in a JSON message, whatever else is in it."""
    level: list[Any] = [value]
    for names in (
        ("resourceSpans", "resource_spans"),
        ("scopeSpans", "scope_spans"),
        ("spans",),
    ):
        level = [
            child
            for item in level
            if isinstance(item, dict)
            for name in names
            if isinstance(item.get(name), list)
            for child in item[name]
        ]
    return (item for item in level if isinstance(item, dict))


def unpack(body: bytes, encoding: str) -> bytes:
    """Undo a content encoding, within the limit.

    Raises:
        BadMessage: If the encoding is unknown or the bytes are not in it.
        TooLarge: If more than ``MAX_UNPACKED`` comes out.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise BadMessage(f"content encoding {encoding[:20]!r} is not known; use gzip or none")
    machine = zlib.decompressobj(wbits=47)  # gzip or zlib, by its header
    try:
        plain = machine.decompress(body, MAX_UNPACKED)
        if machine.unconsumed_tail:
            raise TooLarge(f"more than {MAX_UNPACKED} bytes when unpacked")
        if not machine.eof:
            raise BadMessage(f"the body is not whole {encoding}")
    except zlib.error:
        raise BadMessage(f"the body is no {encoding}") from None
    return plain
