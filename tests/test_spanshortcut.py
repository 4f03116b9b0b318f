"""The quick way to a record leads where the careful one does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tailscope.catalogue.engines import engines
from tailscope.catalogue.engines.vllm import SPANS
from tailscope.exporter import spanshortcut
from tailscope.exporter.otlp import BadMessage, TooLarge, read_protobuf
from tailscope.exporter.spans import Batch, SpanReader
from tailscope.exporter.spanshortcut import MAX_LAYOUTS
from tailscope.records.record import RequestRecord
from tailscope.records.tenancy import TENANT_ATTRIBUTES
from tests.bench.load import message as many_spans
from tests.otlp import NOW_NS, attributes, message, recorded, span

RESOURCE = {"service.instance.id": "a:1"}


def careful(body: bytes) -> Batch | str:
    return outcome(SpanReader(engines(), quick=False), body)


def outcome(reader: SpanReader, body: bytes) -> Batch | str:
    try:
        return reader.read(read_protobuf(body))
    except (BadMessage, TooLarge) as error:
        return str(error)


def shares(reader: SpanReader, body: bytes) -> tuple[int, int]:
    """How many spans take the quick way, and how many there are."""
    spans = [bytes(one) for _, found in read_protobuf(body) for one in found]
    return sum(quick(reader, one) for one in spans), len(spans)


def quick(reader: SpanReader, part: bytes) -> bool:
    return isinstance(reader._shortcuts.read([part], None, None)[0][0], RequestRecord)


@pytest.mark.parametrize("run", ["run1", "run2", "run11"])
def test_recorded_spans(run: str) -> None:
    reader = SpanReader(engines())
    for body in recorded(run) * 2:
        assert outcome(reader, body) == careful(body)


def test_what_vllm_sends_takes_the_quick_way() -> None:
    reader = SpanReader(engines())
    for first in range(0, 5000, 500):
        shares(reader, many_spans(first, 500))
    ways, spans = shares(reader, many_spans(6000, 500))
    assert ways >= 0.98 * spans


def test_a_span_that_is_too_large_for_it_is_not_looked_at() -> None:
    reader = SpanReader(engines())
    large = message([span(1, text="x" * 100_000)]).SerializeToString()
    assert shares(reader, large) == (0, 1)
    assert outcome(reader, large) == careful(large)


VALUES = st.one_of(
    st.integers(0, 2**40),
    st.integers(-5, 300),
    st.floats(),
    st.text(max_size=12),
    st.text("é\x00\n\u202e", max_size=3),
    st.booleans(),
    st.lists(st.text(max_size=3), max_size=2),
    st.sampled_from(["x" * 127, "x" * 128, "x" * 300, "chatcmpl-a", "cmpl-a-0", "cmpl-", ""]),
)
NAMES = st.sampled_from(
    [*SPANS.attributes, *TENANT_ATTRIBUTES, "gen_ai.request.n", "http.url", "error.type"]
)
PLAIN: dict[str, Any] = {
    name: 0.5 if "latency" in name else 100 if "tokens" in name else "chatcmpl-r1"
    for name in SPANS.attributes
}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=2, max_size=6), st.data())
def test_whatever_the_values_are(changes: list[dict[str, Any]], data: st.DataObject) -> None:
    reader = SpanReader(engines())
    spans = []
    for number, changed in enumerate(changes):
        one = span(number + 1)
        del one.attributes[:]
        one.attributes.extend(attributes({**PLAIN, **changed}))
        one.start_time_unix_nano = data.draw(st.sampled_from([NOW_NS, NOW_NS, 0, 5, 2**64 - 1]))
        one.status.code = data.draw(st.sampled_from(Status.StatusCode.values()))
        spans.append(one)
    body = message(spans * 2, RESOURCE).SerializeToString()
    assert outcome(reader, body) == outcome(reader, body) == careful(body)


def test_whatever_happens_to_the_bytes() -> None:
    """Each byte of a span is changed, and what is then no span is none either way."""
    rng, reader = random.Random(3), SpanReader(engines())
    whole = span(1, tenant__id="acme", gen_ai__request__temperature=0.7, trace=7)
    whole.status.code = Status.STATUS_CODE_OK
    data = whole.SerializeToString()
    refused = 0
    for position in range(len(data)):
        for change in (data[position] ^ 1, data[position] ^ 0x80, rng.randrange(256)):
            broken = data[:position] + bytes([change]) + data[position + 1 :]
            body = _message_of(broken)
            assert quick(reader, data), "it stays known"
            expected = careful(body)
            refused += isinstance(expected, str)
            assert outcome(reader, body) == expected, (position, change)
    assert refused > 100


def _message_of(part: bytes) -> bytes:
    for number in (2, 2, 1):  # a span of a scope of a resource
        part = bytes([number << 3 | 2]) + _length(len(part)) + part
    return part


def _with(number: int, name: str, text: str) -> Span:
    one = span(number + 1)
    one.attributes.extend(attributes({name: text}))
    return one


def _length(size: int) -> bytes:
    return bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])


def test_layouts_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spanshortcut, "_CREDIT", 10**6)
    reader = SpanReader(engines())
    for number in range(2 * MAX_LAYOUTS):
        one = _with(number, f"x{number}", "y" * (number % 100))
        quick(reader, one.SerializeToString())
        plans = reader._shortcuts._plans.values()
        assert sum(map(len, plans)) == reader._shortcuts._count <= MAX_LAYOUTS
    assert reader._shortcuts._count > 10


def test_spans_that_all_differ_are_soon_left_to_protobuf() -> None:
    reader = SpanReader(engines())
    found = [quick(reader, _with(n, f"x{n:05}", "y").SerializeToString()) for n in range(3000)]
    assert found[0]
    assert not found[-1]
