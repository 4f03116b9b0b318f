"""Values of attributes: what an ``AnyValue`` holds, if it fits.

The usual encodings of a number or a short text are read where they lie; protobuf decodes the rest.
"""

from __future__ import annotations

import math
import re
import struct

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tailscope.exporter.otlp import BadMessage
from tailscope.records.record import MAX_TEXT, printable

# A tag is a field number, shifted, with the wire type: string_value = 1, int_value = 3,
# double_value = 4.
_TEXT, _INTEGER, _DOUBLE = 1 << 3 | 2, 3 << 3 | 0, 4 << 3 | 1
_DOUBLE_SIZE = 9
_unpack_double = struct.Struct("<Bd").unpack
_MAX_INT = 2**63 - 1
_NUMBER = re.compile(r"[-+]?[0-9]{1,19}(?:\.[0-9]{1,19})?(?:[eE][-+]?[0-9]{1,3})?")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|[µμu]s|ms|s)")
_UNITS = {"ns": 1e-9, "ms": 1e-3, "s": 1.0}


def read_float(raw: bytes) -> float | None:
    """Read a finite number, also one that is written as a text; None if it is something else."""
    tag: int
    number: float
    if len(raw) == _DOUBLE_SIZE:
        tag, number = _unpack_double(raw)
        if tag == _DOUBLE and number - number == 0:  # it is neither infinite nor NaN
            return number
    found = _number(raw)
    return None if found is None else float(found)


def read_int(raw: bytes) -> int | None:
    """Read a whole number that fits into 64 bits, also one that is written as a text."""
    if len(raw) == 2 and raw[0] == _INTEGER and raw[1] < 0x80:
        return raw[1]
    if len(raw) == 3 and raw[0] == _INTEGER and raw[1] >= 0x80 > raw[2]:
        return raw[1] & 0x7F | raw[2] << 7
    found = _number(raw)
    if isinstance(found, float):
        return int(found) if found.is_integer() and abs(found) <= _MAX_INT else None
    return found


def read_text(raw: bytes) -> str | None:
    """Read a text that is no longer than an identifier; None if it is something else.

    Of a list of texts, the first.
    """
    if len(raw) > 2 and raw[0] == _TEXT and raw[1] == len(raw) - 2 < 0x80:
        try:
            return printable(raw[2:].decode())
        except UnicodeDecodeError:
            raise BadMessage("a text is no UTF-8") from None
    value = _decode(raw)
    text = value.string_value
    if value.WhichOneof("value") == "array_value" and value.array_value.values:
        text = value.array_value.values[0].string_value
    return printable(text) if 0 < len(text) <= MAX_TEXT else None


def read_name(raw: bytes) -> str | None:
    """Read a text, or a whole number as one: some name a tenant by its number."""
    text = read_text(raw)
    if text is None and (number := read_int(raw)) is not None:
        return str(number)
    return text


def read_duration(raw: bytes) -> float | None:
    """Read seconds, also out of a text such as ``12.3ms``, as Rust writes a duration."""
    hit = _DURATION.fullmatch(read_text(raw) or "")
    return float(hit[1]) * _UNITS.get(hit[2], 1e-6) if hit else read_float(raw)


def _number(raw: bytes) -> int | float | None:
    value = _decode(raw)
    match value.WhichOneof("value"):
        case "int_value":
            return value.int_value
        case "double_value":
            number = value.double_value
        case "string_value" if _NUMBER.fullmatch(value.string_value):
            # Collectors and gateways that make texts of all attributes.
            number = float(value.string_value)
        case _:
            return None
    return number if math.isfinite(number) else None


def _decode(raw: bytes) -> AnyValue:
    try:
        return AnyValue.FromString(raw)
    except DecodeError:
        raise BadMessage("the value of an attribute is none") from None
