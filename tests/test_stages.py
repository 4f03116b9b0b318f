"""Stages that come in spans of their own, as SGLang sends them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.catalogue.engines import engines
from tailscope.exporter import stages
from tailscope.exporter.otlp import read_protobuf
from tailscope.exporter.spans import SpanReader
from tailscope.records.reader import join_records
from tailscope.records.record import RequestRecord
from tests.otlp import LATENCY, NOW_NS, attributes, message, span_id

MILLISECOND = 10**6
TRACE = b"t" * 16
SOME = range(1, 31)


def request(number: int) -> Span:
    """The span of a request; its prefill holds the queue."""
    told = {
        "rid": f"r{number}",
        "gen_ai.request.id": f"r{number}",
        f"{LATENCY}time_to_first_token": 0.5,
        f"{LATENCY}e2e": 1.5,
        f"{LATENCY}time_in_model_prefill": 0.375,
        f"{LATENCY}time_in_model_decode": 1.0,
    }
    return _span(number << 8 | 1, None, f"Req r{number}", 0, 1500, told)


def rank(number: int, tp: int) -> list[Span]:
    """What a rank of the scheduler tells of a request, in the order of its messages."""
    thread = number << 8 | 16 * (tp + 1)
    own = {"thread_label": "Scheduler", "tp_rank": tp, "pid": 7}
    queue = 100 * number
    return [
        _span(thread + 1, thread, "request_process", 1, 2),
        _span(thread + 2, thread, "prefill_waiting", 2, 2 + queue),
        _span(thread + 3, thread, "chunked_prefill", 2 + queue, 10 + queue),
        _span(thread + 4, thread, "prefill_forward", 2 + queue, 52 + queue),
        _span(thread + 5, thread, "prefill_forward", 700, 900),
        _span(thread, number << 8 | 1, f"Scheduler [TP {tp}]", 1, 1499, own),
    ]


def _span(
    own: int,
    parent: int | None,
    name: str,
    start: int,
    end: int,
    told: dict[str, object] | None = None,
) -> Span:
    return Span(
        trace_id=TRACE,
        span_id=own.to_bytes(8),
        parent_span_id=b"client__" if parent is None else parent.to_bytes(8),
        name=name,
        start_time_unix_nano=NOW_NS + start * MILLISECOND,
        end_time_unix_nano=NOW_NS + end * MILLISECOND,
        attributes=attributes(told or {}),
    )


def kept(messages: Iterable[Iterable[Span]]) -> list[RequestRecord]:
    """What is kept of messages."""
    reader, rows = SpanReader(engines()), list[RequestRecord]()
    for spans in messages:
        batch = reader.read(read_protobuf(message(list(spans)).SerializeToString()))
        assert not batch.rejected
        rows += [*batch.records, *batch.fuller]
    return rows


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_stages_of_a_request_come_in_any_order(order: tuple[int, ...]) -> None:
    """Of two ranks, which tell the same; a second prefill follows a preemption."""
    first, second = rank(1, 0), rank(1, 1)
    messages = [[request(1)], first[:-1], first[-1:], second]
    found = join_records(kept(messages[index] for index in order))
    (row,) = found.to_dict("records")
    assert (row["span_id"], row["request_id"]) == (span_id(1), "r1")
    assert (row["queue_seconds"], row["prefill_seconds"]) == (0.1, 0.05)
    assert (row["ttft_seconds"], row["decode_seconds"]) == (0.5, 1.0)
    assert row["frontend_seconds"] == pytest.approx(0.35)


def test_requests_of_one_trace_have_stages_of_their_own() -> None:
    spans = [*rank(1, 0), *rank(2, 0), request(1), request(2), request(3)]
    rows = kept([spans])
    assert [row.queue_seconds for row in rows] == [0.1, 0.2, None]
    assert [row.prefill_seconds for row in rows] == [0.05, 0.05, None]


def test_a_message_that_is_sent_again_tells_the_same_again() -> None:
    """The disk may have refused what it told the first time."""
    last = rank(1, 0)[-1:]
    rows = kept([rank(1, 0)[:-1], [request(1)], last, last])
    assert [row.queue_seconds for row in rows] == [None, 0.1, 0.1]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_MOST_REQUESTS", 5)
    monkeypatch.setattr(stages, "_MOST_THREADS", 10)
    rows = kept([*rank(number, 0)[:-1], request(number), *rank(number, 0)[-1:]] for number in SOME)
    assert [row.queue_seconds for row in rows] == [number / 10 for number in SOME]
    reader = SpanReader(engines())
    for number in SOME:
        spans = [*rank(number, 0), request(number)]
        reader.read(read_protobuf(message(spans).SerializeToString()))
    held = [one for one in vars(reader._stages).values() if isinstance(one, dict)]
    assert max(map(len, held)) <= 10
