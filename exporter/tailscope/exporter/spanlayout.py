"""The layout of a span: where its values lie, as a format of ``struct``.

A producer writes the same attributes in the same order, span after span, and most values always
take as many bytes. A span that equals an earlier one in every byte but those of its values is
built as that one is, and its values are where they were there. One call takes them all out. Whether
it is so is asked of the span as one whole number: a bitwise and takes out what may differ.

A layout is made only of spans that have nothing but the fields below, each once; for any other
``Odd`` is raised. Encoding: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from enum import Enum
from functools import partial
from typing import NamedTuple

# Fields of a span in ``trace/v1/trace.proto``.
TRACE, SPAN, PARENT, START, END = "trace_id", "span_id", "parent_span_id", "start", "end"
_FIELDS = {1: (TRACE, 16), 2: (SPAN, 8), 4: (PARENT, 8), 7: (START, 8), 8: (END, 8)}
_NAME, _ATTRIBUTE, _STATUS, _FLAGS = 5, 9, 15, 16
_COUNTS = {6, 10, 12, 14}  # the kind of the span, and how many attributes and so on were dropped

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _INTEGER, _TEXT, _LONG_TEXT = 0x21, 0x18, 0x0A, 128
_STATUSES = {b"": 0, b"\x18\x01": 1, b"\x18\x02": 2}


bits = partial(int.from_bytes, byteorder="little")
"""Takes bytes as one whole number."""


class Odd(Exception):
    """A span has no layout of use."""


class Held(Enum):
    """What a value is, as it comes out: a number, the bytes of a whole number or of a text."""

    DOUBLE = "d"
    INTEGER = "i"
    TEXT = "t"


class Value(NamedTuple):
    """Which of the values that come out it is, and what it is."""

    place: int
    held: Held


class _Field(NamedTuple):
    number: int
    kind: int
    content: int
    end: int


class Layout:
    """The layout of a span.

    Args:
        part: The bytes of the span.
        wanted: Names of the attributes whose values are taken out.

    Attributes:
        name: Name of the span.
        failed: Whether its status is an error.
        fields: Indexes of the ids and times that it has.
        attributes: Attributes that were wanted and are there.
        names: Names of all attributes that are there.
        mask: The bits of such a span that are no values.
        fixed: What they are.
        unpack: Takes the values out of a span that has the same length and the fixed bits.

    Raises:
        Odd: If it has none of use.
    """

    __slots__ = ("_format", "_mask", "_values", "attributes", "failed", "fields", "fixed", "mask",
                 "name", "names", "unpack")  # fmt: skip

    def __init__(self, part: bytes, wanted: Container[str]) -> None:
        self.name, self.failed = "", False
        self.fields: dict[str, int] = {}
        self.attributes: dict[str, Value] = {}
        self._format, self._mask, self._values = ["<"], bytearray(), 0
        seen: set[int | str] = set()
        for field in _fields(part, 0, len(part)):
            key: int | str = field.number
            if field.number == _ATTRIBUTE and field.kind == _BYTES:
                key = self._attribute(part, field, wanted)
            else:
                self._field(part, field)
            if key in seen:
                raise Odd
            seen.add(key)
        self.names = frozenset(key for key in seen if isinstance(key, str))
        self._skip(len(part), len(part), "")
        self.mask = bits(self._mask)
        self.fixed = bits(part) & self.mask
        self.unpack = struct.Struct("".join(self._format)).unpack

    def _field(self, part: bytes, field: _Field) -> None:
        number, kind, content, end = field
        named, size = _FIELDS.get(number, ("", 0))
        if named and end - content == size and kind in (_BYTES, _FIXED64):
            if (kind == _FIXED64) is not (named in (START, END)):
                raise Odd
            self.fields[named] = self._skip(content, end, "Q" if kind == _FIXED64 else f"{size}s")
        elif kind == _BYTES and number == _NAME:
            self.name = _decoded(part[content:end])
        elif kind == _BYTES and number == _STATUS:
            code = _STATUSES.get(part[content:end])
            if code is None:
                raise Odd
            self.failed = code == 2
        elif not (
            (kind == _VARINT and number in _COUNTS) or (kind == _FIXED32 and number == _FLAGS)
        ):
            raise Odd

    def _attribute(self, part: bytes, field: _Field, wanted: Container[str]) -> str:
        parts = list(_fields(part, field.content, field.end))
        if [(one.number, one.kind) for one in parts] != [(1, _BYTES), (2, _BYTES)]:
            raise Odd
        name = _decoded(part[parts[0].content : parts[0].end])
        begin, end = parts[1].content, parts[1].end
        size = end - begin
        if name not in wanted:
            self._skip(begin, end, "")
        elif size == 9 and part[begin] == _DOUBLE:
            self.attributes[name] = Value(self._skip(begin + 1, end, "d"), Held.DOUBLE)
        elif 2 <= size <= 6 and part[begin] == _INTEGER:
            index = self._skip(begin + 1, end, f"{size - 1}s")
            self.attributes[name] = Value(index, Held.INTEGER)
        elif 2 < size < _LONG_TEXT and part[begin] == _TEXT and part[begin + 1] == size - 2:
            index = self._skip(begin + 2, end, f"{size - 2}s")
            self.attributes[name] = Value(index, Held.TEXT)
        else:
            raise Odd
        return name

    def _skip(self, begin: int, end: int, code: str) -> int:
        """Everything up to ``begin`` is fixed; from there to ``end`` there is a value.

        Args:
            begin: Where the value begins.
            end: Where it ends.
            code: Its format; empty if nobody reads it.
        """
        fixed, size = begin - len(self._mask), end - begin
        self._mask += b"\xff" * fixed + bytes(size)
        self._format.append(f"{fixed}x{code or f'{size}x'}")
        index = self._values
        self._values += bool(code)
        return index


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Odd from None


def _fields(data: bytes, position: int, end: int) -> Iterator[_Field]:
    while position < end:
        tag, position = _varint(data, position, end)
        kind, content = tag & 7, position
        if kind == _VARINT:
            _, position = _varint(data, position, end)
        elif kind == _BYTES:
            size, content = _varint(data, position, end)
            position = content + size
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise Odd
        if position > end:
            raise Odd
        yield _Field(tag >> 3, kind, content, position)


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read a length, or a number as short as one."""
    value = 0
    for shift in (0, 7, 14):
        if position >= end:
            raise Odd
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise Odd
