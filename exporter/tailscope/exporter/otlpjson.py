"""OTLP trace messages in JSON.

OTLP writes ids in hexadecimal, where protobuf's own JSON has base64; for the rest protobuf's JSON
reader does it, span by span.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.exporter.otlp import (
    MAX_MESSAGE,
    MAX_PARTS,
    BadMessage,
    Group,
    TooLarge,
    decode_resource,
)

MAX_JSON = 4 << 20
"""Largest message in JSON, in bytes: as Python objects it takes 25 times that."""

_MAX_DEPTH = 64
_IDS = ("traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id")
_UNREAD = ("events", "links")


def read_json(body: bytes | bytearray) -> Iterator[Group]:
    """Walk a message in JSON, an ExportTraceServiceRequest.

    Raises:
        BadMessage: If it is none; also later, while the groups or their spans are walked.
        TooLarge: If it has more than ``MAX_JSON`` bytes.
    """
    if len(body) > MAX_JSON:
        raise TooLarge(f"more than {MAX_JSON} bytes of JSON; protobuf may have {MAX_MESSAGE}")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise BadMessage("the body is no JSON") from None
    parts = _Parts()
    for group in parts.of(_object(value), "resourceSpans", "resource_spans"):
        resource = Resource()
        _parse(_object(group.get("resource", {})), resource)
        yield Group(
            decode_resource(resource.SerializeToString()),
            (
                _encode_span(span)
                for scope in parts.of(group, "scopeSpans", "scope_spans")
                for span in parts.of(scope, "spans")
            ),
        )


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _no_json()
    return value


class _Parts:
    """The spans, scopes and resources of one message, and how many more it may have."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def of(self, value: dict[str, Any], *names: str) -> Iterator[dict[str, Any]]:
        """Yield what is in the lists of these names."""
        for name in names:
            items = value.get(name)
            if items is None:
                continue
            if not isinstance(items, list):
                raise _no_json()
            for item in items:
                self._left -= 1
                if self._left < 0:
                    raise TooLarge(f"more than {MAX_PARTS} spans, scopes and resources")
                yield _object(item)


def _encode_span(value: dict[str, Any]) -> bytes:
    for name in _UNREAD:
        value.pop(name, None)
    for name in _IDS:
        if isinstance(value.get(name), str):
            try:
                value[name] = base64.b64encode(binascii.unhexlify(value[name])).decode()
            except ValueError:
                raise _no_json() from None
    span = Span()
    _parse(value, span)
    return span.SerializeToString()


def _parse(value: dict[str, Any], message: Span | Resource) -> None:
    try:
        ParseDict(value, message, ignore_unknown_fields=True, max_recursion_depth=_MAX_DEPTH)
    except (ParseError, RecursionError, ValueError, TypeError, AttributeError):
        raise _no_json() from None


def _no_json() -> BadMessage:
    return BadMessage("the body is no ExportTraceServiceRequest in JSON")
