"""Observations as an OTLP message in protobuf, written by hand: the standard library has none.

Protocol: https://github.com/open-telemetry/opentelemetry-proto, ``trace/v1/trace.proto``. Numbers
of fields are those of the messages there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tailscope.middleware.observation import Observation

_times = struct.Struct("<BQBQ").pack
_double = struct.Struct("<d").pack
_START, _END = 7 << 3 | 1, 8 << 3 | 1
_ONE_BYTE = [bytes([length]) for length in range(0x80)]


def message(observations: Iterable[Observation], service: str) -> bytes:
    """Write an ExportTraceServiceRequest."""
    resource = _field(1, _field(1, _key("service.name") + _field(2, _text(service))))
    scope = _field(1, _field(1, b"tailscope.middleware"))
    spans = b"".join([_field(2, _span(one)) for one in observations])
    return _field(1, resource + _field(2, scope + spans))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return _ONE_BYTE[number << 3 | 2] + _varint(len(content)) + content


def _key(name: str) -> bytes:
    return _field(1, name.encode())


def _text(value: str) -> bytes:
    return _field(1, value.encode("utf-8", "replace"))


_MARK = _field(9, _key("tailscope.middleware") + _field(2, b"\x18\x01"))
_HEAD = _field(5, b"request") + b"\x30\x02" + _MARK  # kind = SPAN_KIND_SERVER
_STATUS = _key("http.response.status_code")
_FIRST = _key("tailscope.time_to_first_chunk")
_ATTEMPT = _key("tailscope.attempt")
_TEXTS = (
    ("outcome", _key("tailscope.outcome")),
    ("tenant", _key("tailscope.tenant")),
    ("session", _key("tailscope.session")),
    ("request_id", _key("http.request.header.x-request-id")),
)


def _span(one: Observation) -> bytes:
    context = one.context
    parts = [
        b"\x0a\x10",
        context.trace,
        b"\x12\x08",
        context.span,
        _HEAD,
        _times(_START, one.arrived_ns, _END, one.arrived_ns + one.total_ns),
    ]
    if context.parent:
        parts += (b"\x22\x08", context.parent)
    if one.status is not None:
        parts.append(_attribute(_STATUS, b"\x18" + _varint(one.status)))
    if one.first_ns is not None:
        parts.append(_attribute(_FIRST, b"\x21" + _double(one.first_ns / 1e9)))
    if one.attempt is not None:
        parts.append(_attribute(_ATTEMPT, b"\x18" + _varint(one.attempt)))
    for name, key in _TEXTS:
        text = getattr(one, name)
        if text is not None:
            parts.append(_attribute(key, _text(text)))
    return b"".join(parts)


def _attribute(key: bytes, value: bytes) -> bytes:
    content = key + b"\x12" + _varint(len(value)) + value
    return b"\x4a" + _varint(len(content)) + content
