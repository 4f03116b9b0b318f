"""Observations as an OTLP message in protobuf, written by hand: the standard library has none.

Protocol: https://github.com/open-telemetry/opentelemetry-proto, ``trace/v1/trace.proto``. Numbers
of fields are those of the messages there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tailscope.middleware.observation import Observation

_fixed = struct.Struct("<Q").pack
_double = struct.Struct("<d").pack
_SERVER = b"\x30\x02"  # kind = SPAN_KIND_SERVER


def message(observations: Iterable[Observation], service: str) -> bytes:
    """Write an ExportTraceServiceRequest."""
    resource = _field(1, _field(1, _text("service.name", service)))
    scope = _field(1, _field(1, b"tailscope.middleware"))
    spans = b"".join(_field(2, _span(one)) for one in observations)
    return _field(1, resource + _field(2, scope + spans))


def _span(one: Observation) -> bytes:
    context = one.context
    parts = [
        _field(1, context.trace),
        _field(2, context.span),
        _field(4, context.parent) if context.parent else b"",
        _field(5, b"request"),
        _SERVER,
        b"\x39" + _fixed(one.arrived_ns),
        b"\x41" + _fixed(one.arrived_ns + one.total_ns),
    ]
    parts += [_field(9, attribute) for attribute in _attributes(one)]
    return b"".join(parts)


def _attributes(one: Observation) -> Iterable[bytes]:
    yield _whole("tailscope.middleware", 1)
    if one.status is not None:
        yield _whole("http.response.status_code", one.status)
    if one.first_ns is not None:
        yield _key("tailscope.time_to_first_chunk", b"\x21" + _double(one.first_ns / 1e9))
    if one.attempt is not None:
        yield _whole("tailscope.attempt", one.attempt)
    for name, text in (
        ("tailscope.outcome", one.outcome),
        ("tailscope.tenant", one.tenant),
        ("tailscope.session", one.session),
        ("http.request.header.x-request-id", one.request_id),
    ):
        if text is not None:
            yield _text(name, text)


def _key(name: str, value: bytes) -> bytes:
    return _field(1, name.encode()) + _field(2, value)


def _text(name: str, value: str) -> bytes:
    return _key(name, _field(1, value.encode("utf-8", "replace")))


def _whole(name: str, value: int) -> bytes:
    return _key(name, b"\x18" + _varint(value))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
