"""The request record: what is taken from a row, what is derived, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailscope.records.jsonl import MAX_LINE, parse_line
from tailscope.records.record import (
    COLUMNS,
    MAX_TEXT,
    RecordError,
    RequestRecord,
    complete,
    from_mapping,
    printable,
)

NOW_NS = 1_796_000_000_000_000_000
SECRET = "s3cret-prompt"


def made(**values: Any) -> RequestRecord:
    return from_mapping({"arrived_ns": NOW_NS, **values})


def completed(**values: Any) -> tuple[RequestRecord, int]:
    record = made(**values)
    return record, complete(record)


def test_columns_are_those_of_the_design() -> None:
    assert set(COLUMNS) >= {
        "source", "role", "span_id", "trace_id", "request_id", "tenant", "model", "server",
        "engine", "arrived_ns", "ended_ns", "frontend_seconds", "queue_seconds", "prefill_seconds",
        "decode_seconds", "ttft_seconds", "total_seconds", "input_tokens", "cached_tokens",
        "output_tokens", "max_tokens", "outcome", "status", "finish_reason", "session", "attempt",
        "priority", "adapter",
    }  # fmt: skip
    assert COLUMNS["arrived_ns"] is int
    assert COLUMNS["ttft_seconds"] is float
    assert COLUMNS["tenant"] is str


def test_what_is_not_told_is_none() -> None:
    record = made()
    told = {"source": "file", "role": "gateway", "arrived_ns": NOW_NS}
    for name in COLUMNS:
        assert getattr(record, name) == told.get(name), name


def test_other_keys_are_dropped() -> None:
    record = made(prompt=SECRET, messages=[SECRET], tenant="acme")
    assert SECRET not in repr(record)
    assert record.tenant == "acme"


def test_frontend_is_what_ttft_holds_beside_queue_and_prefill() -> None:
    record, clamped = completed(ttft_seconds=1.0, queue_seconds=0.25, prefill_seconds=0.5)
    assert (record.frontend_seconds, clamped) == (0.25, 0)
    for left_out in ("ttft_seconds", "queue_seconds", "prefill_seconds"):
        times = {"ttft_seconds": 1.0, "queue_seconds": 0.25, "prefill_seconds": 0.5}
        del times[left_out]
        assert completed(**times)[0].frontend_seconds is None


def test_a_frontend_that_is_told_stays() -> None:
    record, _ = completed(
        frontend_seconds=0.1, ttft_seconds=1.0, queue_seconds=0.25, prefill_seconds=0.5
    )
    assert record.frontend_seconds == 0.1


def test_negative_times_become_0_and_are_counted() -> None:
    record, clamped = completed(
        ttft_seconds=0.5, queue_seconds=0.4, prefill_seconds=0.2, decode_seconds=-0.001
    )
    assert (record.frontend_seconds, record.decode_seconds, clamped) == (0.0, 0.0, 2)


def test_an_end_before_the_arrival_is_a_total_of_0() -> None:
    record, clamped = completed(ended_ns=NOW_NS - 5)
    assert (record.total_seconds, clamped) == (0.0, 1)


@pytest.mark.parametrize("name", ["ttft_seconds", "total_seconds", "queue_seconds"])
def test_a_time_of_years_is_no_measurement(name: str) -> None:
    record, clamped = completed(**{name: 1e300})
    assert getattr(record, name) is None
    assert clamped == 0
    assert record.ended_ns is None


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cached_tokens", "max_tokens"])
@pytest.mark.parametrize("count", [-1, 2**62])
def test_a_count_that_cannot_be_is_none(name: str, count: int) -> None:
    record, _ = completed(**{name: count})
    assert getattr(record, name) is None


def test_end_and_total_follow_from_each_other() -> None:
    assert completed(total_seconds=1.5)[0].ended_ns == NOW_NS + 1_500_000_000
    assert completed(ended_ns=NOW_NS + 1_500_000_000)[0].total_seconds == 1.5


def test_an_end_beyond_64_bits_is_none() -> None:
    record = made(arrived_ns=2**63 - 1, total_seconds=1.0)
    complete(record)
    assert record.ended_ns is None


def test_ids_are_written_as_opentelemetry_writes_them() -> None:
    record = made(trace_id="ABCDEF" + "0" * 26, span_id="0" * 16, parent_span_id="00F067AA0BA902B7")
    assert record.trace_id == "abcdef" + "0" * 26
    assert record.span_id is None
    assert record.parent_span_id == "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "no_arrival"),
        ({"arrived_ns": None}, "no_arrival"),
        ({"arrived_ns": "1"}, "type"),
        ({"arrived_ns": True}, "type"),
        ({"arrived_ns": 1_796_000_000}, "range"),
        ({"arrived_ns": 1_796_000_000_000}, "range"),
        ({"arrived_ns": -1}, "range"),
        ({"arrived_ns": 2**63}, "range"),
        ({"arrived_ns": 1.7e308}, "range"),
        ({"arrived_ns": NOW_NS, "ttft_seconds": "1"}, "type"),
        ({"arrived_ns": NOW_NS, "ttft_seconds": 10**400}, "range"),
        ({"arrived_ns": NOW_NS, "input_tokens": 1.5}, "type"),
        ({"arrived_ns": NOW_NS, "tenant": 7}, "type"),
        ({"arrived_ns": NOW_NS, "tenant": [SECRET]}, "type"),
        ({"arrived_ns": NOW_NS, "tenant": "x" * (MAX_TEXT + 1)}, "text_too_long"),
        ({"arrived_ns": NOW_NS, "role": "judge"}, "role"),
        ({"arrived_ns": NOW_NS, "outcome": "great"}, "outcome"),
    ],
)
def test_a_row_that_is_no_record_says_why(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        from_mapping(row)
    assert caught.value.reason == reason
    assert SECRET not in str(caught.value)


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert made(input_tokens=7.0).input_tokens == 7


def test_texts_are_fit_for_a_terminal() -> None:
    assert made(tenant="a\x1b[2Jb\n").tenant == "a?[2Jb?"
    assert made(tenant="\ud800x").tenant == "?x"
    assert made(tenant="Café 東京").tenant == "Café 東京"
    assert made(tenant="").tenant is None
    assert printable("\ud800").encode() == b"?"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "json"),
        (b'{"tenant": "' + SECRET.encode() + b'" oops}', "json"),
        (b"\xff\xfe\x00", "json"),
        (b"[1]", "json"),
        (b"3", "json"),
        (b"null", "json"),
        (b"[" * 100_000, "json"),
        (b'{"arrived_ns": ' + b"9" * 5000 + b"}", "json"),
        (b'{"arrived_ns": NaN}', "range"),
        (b'{"arrived_ns": Infinity}', "range"),
        (b'{"x": "' + b"y" * MAX_LINE + b'"}', "too_long"),
    ],
)
def test_a_line_that_is_no_record_says_why_without_quoting_it(line: bytes, reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_line(line)
    assert caught.value.reason == reason
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(str(caught.value)) < 200


def test_a_line_is_completed() -> None:
    row = {"arrived_ns": NOW_NS, "ttft_seconds": 0.5, "queue_seconds": 0.4, "prefill_seconds": 0.2}
    record, clamped = parse_line(json.dumps(row).encode(), source="litellm")
    assert (record.source, record.frontend_seconds, clamped) == ("litellm", 0.0, 1)
