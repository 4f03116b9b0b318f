"""Values of attributes, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tailscope.exporter.anyvalue import read_float, read_int, read_text
from tailscope.exporter.otlp import BadMessage
from tailscope.records.record import MAX_TEXT
from tests.otlp import value


@pytest.mark.parametrize(
    ("item", "as_float", "as_int", "as_text"),
    [
        (1.5, 1.5, None, None),
        (0.0, 0.0, 0, None),
        (-2.0, -2.0, -2, None),
        (float("nan"), None, None, None),
        (float("inf"), None, None, None),
        (1e300, 1e300, None, None),
        (2.0**63, 2.0**63, None, None),
        (0, 0.0, 0, None),
        (1, 1.0, 1, None),
        (127, 127.0, 127, None),
        (128, 128.0, 128, None),
        (16383, 16383.0, 16383, None),
        (16384, 16384.0, 16384, None),
        (-1, -1.0, -1, None),
        (2**63 - 1, float(2**63 - 1), 2**63 - 1, None),
        (True, None, None, None),
        ("x", None, None, "x"),
        ("", None, None, None),
        ("x" * 125, None, None, "x" * 125),
        ("x" * 126, None, None, "x" * 126),
        ("x" * MAX_TEXT, None, None, "x" * MAX_TEXT),
        ("x" * (MAX_TEXT + 1), None, None, None),
        ("東京", None, None, "東京"),
        ("7", 7.0, 7, "7"),
        ("-0.5", -0.5, None, "-0.5"),
        ("1e3", 1000.0, 1000, "1e3"),
        ("nan", None, None, "nan"),
        ("1_000", None, None, "1_000"),
        ("429 Too Many", None, None, "429 Too Many"),
        ("9" * 30, None, None, "9" * 30),
        (b"x", None, None, None),
        (["a", "b"], None, None, "a"),
        ([], None, None, None),
        ([1], None, None, None),
        ([["a"]], None, None, None),
    ],
)
def test_values(item: Any, as_float: float | None, as_int: int | None, as_text: str | None) -> None:
    raw = value(item).SerializeToString()
    assert (read_float(raw), read_int(raw), read_text(raw)) == (as_float, as_int, as_text)


def test_values_in_an_unusual_encoding() -> None:
    seven = value(7).SerializeToString()
    assert read_int(b"\x18\x87\x00") == 7, "more bytes than needed"
    assert read_int(value(6).SerializeToString() + seven) == 7, "the last one wins"
    assert read_int(seven + b"\x98\x06\x01") == 7, "a field of a later version"
    assert (read_int(b""), read_float(b""), read_text(b"")) == (None, None, None)
    assert AnyValue.FromString(b"\x18\x87\x00").int_value == 7


@pytest.mark.parametrize("raw", [b"\x0a\x03\xff\xfe\xfd", b"\x0a\x7fx", b"\x21\0", b"\xff" * 11])
def test_a_value_that_is_none_at_all(raw: bytes) -> None:
    for reader in (read_float, read_int, read_text):
        with pytest.raises(BadMessage):
            reader(raw)
