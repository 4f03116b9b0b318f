"""Attempts of one call, and timeouts that cut the tail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailscope.records.reader import join_records
from tailscope.records.record import RequestRecord
from tailscope.triage.attempts import amplification, cut, retried

NOW_NS = 1_796_000_000_000_000_000


def row(number: int, **more: Any) -> RequestRecord:
    values: dict[str, Any] = {"tenant": "acme", "outcome": "ok", "request_id": str(number), **more}
    return RequestRecord("x", "gateway", NOW_NS + number * 10**9, **values)


def frame(*rows: RequestRecord) -> pd.DataFrame:
    return join_records(rows)


def test_attempts_that_are_numbered() -> None:
    found = frame(row(1), row(2, attempt=1), row(3, attempt=2, tenant="globex"), row(4, attempt=3))
    assert retried(found).tolist() == [False, False, True, True]
    told = amplification(found)
    assert told is not None
    assert (told.requests, told.retries, told.factor) == (4, 2, 2.0)
    assert told.tenants == (("acme", 3, 1), ("globex", 1, 1))
    assert told.text() == (
        "Retries add 100.0% to the load: 2 of 4 requests are second or later attempts, "
        "1 of them by acme."
    )


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
    assert retried(found).tolist() == [False, False, True, False, False, True, False, False]


def test_attempts_of_one_span() -> None:
    """A client's span that called the gateway twice: one call, two attempts."""
    trace = "a" * 32
    found = frame(
        row(1, trace_id=trace, span_id="c" * 16, session=None),
        row(2, trace_id=trace, span_id="1" * 16, parent_span_id="c" * 16, outcome="rejected"),
        row(3, trace_id=trace, span_id="2" * 16, parent_span_id="c" * 16),
    )
    assert found["session"].tolist() == ["c" * 16] * 2
    assert retried(found).tolist() == [False, True]


@pytest.mark.parametrize("rows", [(), (row(1), row(2)), (row(1, attempt=2),)])
def test_without_retries_there_is_nothing_to_say(rows: tuple[RequestRecord, ...]) -> None:
    assert amplification(frame(*rows)) is None


def served(count: int, given_up: int, at: float) -> pd.DataFrame:
    random = np.random.default_rng(7)
    seconds = [float(one) for one in random.lognormal(0.0, 0.5, count)]
    rows = [row(number, total_seconds=one) for number, one in enumerate(seconds)]
    rows += [
        row(count + number, total_seconds=at * (1 + 1e-3 * random.random()), outcome="aborted")
        for number in range(given_up)
    ]
    return frame(*rows)


def test_a_timeout_that_cuts_the_tail() -> None:
    found = cut(served(969, 31, 10.0))
    assert found is not None
    assert found.seconds == pytest.approx(10.0, rel=1e-3)
    assert (found.requests, found.share, found.level) == (31, 0.031, 0.99)
    assert found.text() == "p99 is cut at 10.0 s: 3.1% of requests end there."


def test_one_that_cuts_no_percentile() -> None:
    found = cut(served(993, 7, 10.0))
    assert found is not None
    assert found.text() == "Requests are given up at 10.0 s: 0.7% of requests end there."


def test_aborts_here_and_there_are_no_timeout() -> None:
    random = np.random.default_rng(7)
    rows = [
        row(number, total_seconds=float(one), outcome="aborted" if number % 20 == 0 else "ok")
        for number, one in enumerate(random.lognormal(0.0, 0.5, 1000))
    ]
    assert cut(frame(*rows)) is None
    assert cut(frame()) is None


def test_the_clients_view_is_cut_where_the_engines_is_not() -> None:
    trace = "{:032x}".format
    rows = []
    for number in range(1, 101):
        ends = number > 90
        span = f"{number:016x}"
        rows.append(
            row(
                *(number,),
                trace_id=trace(number),
                span_id=span,
                total_seconds=5.0 if ends else 1.0,
                outcome="queue_timeout" if ends else "ok",
            )
        )
        rows.append(
            RequestRecord(
                *("vllm", "engine", NOW_NS + number * 10**9),
                trace_id=trace(number),
                parent_span_id=span,
                span_id=f"{number + 1000:016x}",
                total_seconds=20.0 if ends else 1.0,
                outcome="ok",
            )
        )
    found = cut(frame(*rows))
    assert found is not None
    assert (found.seconds, found.share, found.level) == (5.0, 0.1, 0.95)
