"""The part of an OTLP trace message that is read, and the way to it.

A message is walked, and one span at a time is decoded: 16 MiB of empty spans, which come to 1.4 GB
when they are decoded as a whole, stay 16 MiB. Declared are only the fields that are read, so that
events, links and whatever else a span says are never looked at.

Protocol: https://github.com/open-telemetry/opentelemetry-proto, ``trace/v1/trace.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, cast

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Status

MAX_MESSAGE = 16 << 20
"""Largest message, in bytes: as it comes, and unpacked."""

MAX_SPAN = 1 << 20
"""Largest span or resource that is decoded, in bytes."""

MAX_PARTS = 50_000
"""Most spans, scopes and resources in a message."""


class BadMessage(ValueError):
    """The bytes are no OTLP message; the text never quotes them."""


class TooLarge(ValueError):
    """The message exceeds a limit."""


Attributes = Mapping[str, bytes]
"""Attributes by name, each an ``AnyValue`` that is not decoded."""


class Resource(Protocol):
    """Who sent the spans."""

    attributes: Attributes


class Span(Protocol):
    """What is read of a span."""

    trace_id: bytes
    span_id: bytes
    trace_state: str
    parent_span_id: bytes
    name: str
    start_time_unix_nano: int
    end_time_unix_nano: int
    attributes: Attributes
    status: Status


class Group(NamedTuple):
    """Spans of one resource, which are not decoded."""

    resource: Resource
    spans: Iterator[bytes]


_PACKAGE = "tailscope.otlp"
_SPAN = {
    "trace_id": (1, FieldDescriptorProto.TYPE_BYTES),
    "span_id": (2, FieldDescriptorProto.TYPE_BYTES),
    "trace_state": (3, FieldDescriptorProto.TYPE_STRING),
    "parent_span_id": (4, FieldDescriptorProto.TYPE_BYTES),
    "name": (5, FieldDescriptorProto.TYPE_STRING),
    "start_time_unix_nano": (7, FieldDescriptorProto.TYPE_FIXED64),
    "end_time_unix_nano": (8, FieldDescriptorProto.TYPE_FIXED64),
}
_SPAN_ATTRIBUTES, _SPAN_STATUS, _RESOURCE_ATTRIBUTES = 9, 15, 1


def _declare() -> DescriptorPool:
    file = FileDescriptorProto(
        name="tailscope/otlp.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[trace_pb2.DESCRIPTOR.name],
    )
    span = file.message_type.add(name="Span")
    for name, (number, type_) in _SPAN.items():
        span.field.add(
            name=name, number=number, type=type_, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    span.field.add(
        name="status",
        number=_SPAN_STATUS,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{Status.DESCRIPTOR.full_name}",
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    resource = file.message_type.add(name="Resource")
    for message, number in ((span, _SPAN_ATTRIBUTES), (resource, _RESOURCE_ATTRIBUTES)):
        # On the wire a map is a list of key-value messages, which is what attributes are, and a
        # message is bytes with a length. So declared, an attribute is found by its key, and one
        # that nobody asks for is never decoded: a third of the cost of a walk over the list.
        entry = message.nested_type.add(name="AttributesEntry")
        entry.options.map_entry = True
        entry.field.add(
            name="key",
            number=1,
            type=FieldDescriptorProto.TYPE_STRING,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
        entry.field.add(
            name="value",
            number=2,
            type=FieldDescriptorProto.TYPE_BYTES,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
        message.field.add(
            name="attributes",
            number=number,
            type=FieldDescriptorProto.TYPE_MESSAGE,
            type_name=f".{_PACKAGE}.{message.name}.AttributesEntry",
            label=FieldDescriptorProto.LABEL_REPEATED,
        )
    pool = trace_pb2.DESCRIPTOR.pool
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _message_class(pool: DescriptorPool, name: str) -> Any:
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_pool = _declare()
_decode_span = _message_class(_pool, "Span").FromString
_decode_resource = _message_class(_pool, "Resource").FromString


def read_protobuf(body: bytes | bytearray) -> Iterator[Group]:
    """Walk a binary message, an ExportTraceServiceRequest.

    Raises:
        BadMessage: If it is none; also later, while the groups are walked.
        TooLarge: If it holds too many parts.
    """
    data = bytes(body)
    walk = _Walk(data)
    for number, start, stop in walk.fields(0, len(data)):
        if number == 1:
            parts = list(walk.fields(start, stop))
            # A field that comes twice is one message in two pieces.
            resource = b"".join([data[start:stop] for number, start, stop in parts if number == 1])
            scopes = [(start, stop) for number, start, stop in parts if number == 2]
            yield Group(decode_resource(resource), walk.spans(scopes))


class _Walk:
    """One walk over a message, without decoding it.

    Args:
        data: The message.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MAX_PARTS

    def spans(self, scopes: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        for scope in scopes:
            for number, start, stop in self.fields(*scope):
                if number == 2:
                    yield self._data[start:stop]

    def fields(self, position: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield number, start and end of the fields that have a length; pass over the others."""
        data = self._data
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise TooLarge(f"more than {MAX_PARTS} spans, scopes and resources")
            tag = data[position]
            if tag < 0x80:
                position += 1
            else:
                tag, position = _varint(data, position)
            kind = tag & 7
            if kind == 2:
                # Most lengths take two bytes; the call that reads any takes a microsecond.
                if position + 1 < end and data[position] >= 0x80 > data[position + 1]:
                    length = data[position] & 0x7F | data[position + 1] << 7
                    position += 2
                else:
                    length, position = _varint(data, position)
                start, position = position, position + length
                if position > end:
                    raise _no_message()
                yield tag >> 3, start, position
            elif kind == 0:
                _, position = _varint(data, position)
            elif kind in _FIXED:
                position += _FIXED[kind]
            else:
                raise _no_message()
        if position > end:
            raise _no_message()


_FIXED = {1: 8, 5: 4}


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 63:
                raise _no_message()
    except IndexError:
        raise _no_message() from None


def _no_message() -> BadMessage:
    return BadMessage("the body is no ExportTraceServiceRequest")


def decode_resource(part: bytes) -> Resource:
    """Decode one resource.

    Raises:
        BadMessage: If it is none.
        TooLarge: If it has more than ``MAX_SPAN`` bytes.
    """
    if len(part) > MAX_SPAN:
        raise TooLarge(f"a resource of more than {MAX_SPAN} bytes")
    try:
        return cast(Resource, _decode_resource(part))
    except DecodeError:
        raise _no_message() from None


def decode_span(part: bytes) -> Span | None:
    """Decode one span; None if it is too large.

    Raises:
        BadMessage: If it is none.
    """
    if len(part) > MAX_SPAN:
        return None
    try:
        return cast(Span, _decode_span(part))
    except DecodeError:
        raise _no_message() from None
