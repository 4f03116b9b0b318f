"""The ledger's promise: every second of excess has exactly one owner."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.triage import blame
from tailscope.triage.ledger import accounts, ledger, matrix
from tailscope.triage.study import costing, slowdown
from tailscope.triage.work import works

seconds = st.integers(0, 30_000_000).map(lambda micros: micros / 1e6)
rows = st.tuples(
    st.integers(0, 10**11),
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from(["s1", "s2"]),
    seconds,
    seconds,
    seconds,
    seconds,
    st.integers(0, 50_000),
    st.integers(0, 50_000),
    st.integers(0, 2000),
)
COLUMNS = (
    "arrived_ns",
    "tenant",
    "server",
    "frontend_seconds",
    "queue_seconds",
    "prefill_seconds",
    "decode_seconds",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
)


def framed(made: list[tuple[object, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(made, columns=list(COLUMNS))
    stages = [name for name in COLUMNS if name.endswith("_seconds")]
    frame["total_seconds"] = frame[stages].sum(axis=1)
    frame["ttft_seconds"] = frame[stages[:3]].sum(axis=1)
    frame["outcome"] = "ok"
    return frame


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, min_size=1, max_size=60))
def test_the_ledger_adds_up_on_every_row(made: list[tuple[object, ...]]) -> None:
    for work in works(framed(made)):
        found = costing(work)
        slow = slowdown(found)
        books = accounts(work, found.cost)
        every = np.arange(len(work))
        book = ledger(work, found.cost, found.alone, books, slow, every)
        total = book.owed.sum(axis=(1, 2)) + book.engine + book.unexplained
        assert np.allclose(total, book.excess, rtol=0, atol=1e-9)
        assert np.allclose(book.stages.sum(axis=1), book.excess, rtol=0, atol=1e-9)
        assert (book.owed >= 0).all()
        assert np.isclose(matrix(work, book).sum(), book.owed.sum())


@settings(max_examples=40, deadline=None)
@given(st.lists(rows, min_size=1, max_size=60))
def test_the_matrix_of_all_requests_loses_no_second(made: list[tuple[object, ...]]) -> None:
    for work in works(framed(made)):
        found = costing(work)
        books = accounts(work, found.cost)
        seen = blame.matrix(work, found.cost, found.alone, books)
        waits = np.maximum(work.wait - found.alone.frontend, 0).sum()
        runs = np.maximum(
            work.prefill - found.alone.prefill + work.decode - found.alone.decode, 0
        ).sum()
        assert np.isclose(seen.sum(), waits + runs, rtol=1e-6, atol=1e-6)
