"""Attempts of one call."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tailscope.records.reader import join_records
from tailscope.records.record import RequestRecord
from tailscope.triage.retries import again, retries

NOW_NS = 1_796_000_000_000_000_000


def row(number: int, **more: Any) -> RequestRecord:
    values: dict[str, Any] = {"tenant": "acme", "outcome": "ok", "request_id": str(number), **more}
    return RequestRecord("x", "gateway", NOW_NS + number * 10**9, **values)


def frame(*rows: RequestRecord) -> pd.DataFrame:
    return join_records(rows)


def test_attempts_that_are_numbered() -> None:
    found = frame(row(1), row(2, attempt=1), row(3, attempt=2, tenant="globex"), row(4, attempt=3))
    assert again(found).tolist() == [False, False, True, True]
    told = retries(found)
    assert (told.attempts, told.factor) == (2, 2.0)
    assert sorted(told.tenants) == [("acme", 1), ("globex", 1)]


def test_attempts_that_share_a_key() -> None:
    found = frame(
        row(1, session="a", outcome="queue_timeout"),
        row(2, session="b"),
        row(3, session="a", outcome="rejected"),
        row(4, session="b"),  # the next turn of a talk
        row(5, session="a", tenant="globex"),  # another tenant's key
        row(6, session="a"),
        row(7, session="c", outcome="error", input_tokens=10),
        row(8, session="c", input_tokens=900),  # another call
    )
    assert again(found).tolist() == [False, False, True, False, False, True, False, False]


def test_attempts_of_one_span() -> None:
    """A client's span that called the gateway twice: one call, two attempts."""
    trace = "a" * 32
    found = frame(
        row(1, trace_id=trace, span_id="c" * 16, session=None),
        row(2, trace_id=trace, span_id="1" * 16, parent_span_id="c" * 16, outcome="rejected"),
        row(3, trace_id=trace, span_id="2" * 16, parent_span_id="c" * 16),
    )
    assert found["session"].tolist() == ["c" * 16] * 2
    assert again(found).tolist() == [False, True]


@pytest.mark.parametrize("rows", [(), (row(1), row(2)), (row(1, attempt=2),)])
def test_without_retries_there_is_nothing_to_say(rows: tuple[RequestRecord, ...]) -> None:
    assert not retries(frame(*rows)).any
