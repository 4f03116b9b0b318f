"""The walk through a message in protobuf."""

from __future__ import annotations

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from tailscope.exporter.otlp import MAX_SPAN, BadMessage, TooLarge, read_protobuf
from tests.otlp import attributes, message, span
from tests.spanreading import READER, read


def test_a_resource_may_come_after_its_spans_and_in_pieces() -> None:
    whole = message([span(1)], {"tenant": "a"}).resource_spans[0]
    more = ResourceSpans()
    more.resource.attributes.extend(attributes({"service.instance.id": "i"}))
    scopes = ResourceSpans(scope_spans=whole.scope_spans).SerializeToString()
    resource = ResourceSpans(resource=whole.resource).SerializeToString()
    body = scopes + resource + more.SerializeToString()
    group = b"\x0a" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body
    (record,) = READER.read(read_protobuf(group)).records
    assert (record.tenant, record.server) == ("a", "i")


def test_fields_of_a_later_version_are_passed_over() -> None:
    unknown = b"\x78\x01" + b"\x7d1234" + b"\x7912345678" + b"\x7a\x03abc"
    body = unknown + message([span(1)]).SerializeToString() + unknown
    assert len(READER.read(read_protobuf(body)).records) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b",
        b"\x0c",
        b"\x0e\x01",
        b"\x79123",
        b"\xff" * 20,
        b"\x08" + b"\xff" * 20,
        b"\x0a\x02\x12\x05",
        b"no protobuf at all",
        b"<html>",
        b'{"resourceSpans": []}',
    ],
)
def test_what_is_no_message(body: bytes) -> None:
    with pytest.raises(BadMessage, match="no ExportTraceServiceRequest") as caught:
        READER.read(read_protobuf(body))
    assert caught.value.__cause__ is None


def test_a_message_that_is_cut_anywhere_is_none_or_a_shorter_one() -> None:
    body = message([span(1), span(2)], {"tenant": "a"}).SerializeToString()
    for length in range(1, len(body)):
        with pytest.raises(BadMessage):
            READER.read(read_protobuf(body[:length]))
    assert not READER.read(read_protobuf(b"")).records


def test_a_span_that_is_too_large_costs_nobody_else() -> None:
    large = span(2, x="y" * MAX_SPAN)
    batch = read(message([span(1), large, span(3)]))
    assert batch.rejected == {"too_large": 1}
    assert len(batch.records) == 2


def test_a_resource_that_is_too_large() -> None:
    with pytest.raises(TooLarge):
        read(message([span(1)], {"x": "y" * MAX_SPAN}))


@pytest.mark.parametrize("empty", [b"\x0a\x00", b"\x12\x00", b"\x78\x01"])
def test_too_many_parts(empty: bytes) -> None:
    with pytest.raises(TooLarge, match="more than 50000"):
        READER.read(read_protobuf(empty * 60_000))
    scope = ScopeSpans().SerializeToString() + b"\x12\x00" * 60_000
    group = ResourceSpans().SerializeToString() + _field(2, scope)
    with pytest.raises(TooLarge, match="more than 50000"):
        READER.read(read_protobuf(_field(1, group)))


def _field(number: int, content: bytes) -> bytes:
    """A field with a length."""
    head = bytearray([number << 3 | 2])
    length = len(content)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(head) + bytes([length]) + content
