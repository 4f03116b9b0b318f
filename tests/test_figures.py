"""What pages derive from a diagnosis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailscope.app import (
    account,
    blame,
    causes,
    heatmap,
    waterfall,
)
from tailscope.app.box import Box
from tailscope.app.pair import LEAST, Pair
from tailscope.app.source import Source
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.identity import find
from tests import recorded
from tests.shop import diagnosis, shop

__all__ = ["diagnosis", "shop"]


def test_the_ledger_of_a_request_sums_to_its_excess(diagnosis: Diagnosis) -> None:
    at = find(diagnosis.frame, "tail-0216-umbrella")
    assert at is not None
    book = diagnosis.account(at)
    assert book is not None
    found = account.entries(book)
    excess = float(book.excess[0])
    assert sum(entry.seconds for entry in found) == pytest.approx(excess, abs=1e-3)
    assert excess == pytest.approx(diagnosis.reckoning.excess[at], abs=1e-6)
    said = account.words(found, excess, "umbrella")
    assert said.startswith(f"It took {excess:.2f} s longer than it would alone")
    assert "initech" in said


def test_causes_over_time_sum_to_the_slow_seconds(diagnosis: Diagnosis) -> None:
    data = causes.seconds(diagnosis.best.studies, diagnosis.reckoning.origin_ns)
    assert data["seconds"].sum() == pytest.approx(diagnosis.best.excess_seconds, rel=1e-6)
    assert causes.draw(data) is not None
    assert causes.draw(causes.seconds((), 0)) is None


def test_the_matrix_loses_no_second_and_is_bounded(diagnosis: Diagnosis) -> None:
    (one,) = diagnosis.matrices
    data = blame.cells(one)
    assert data["seconds"].sum() == pytest.approx(one.seconds.sum())
    many = tuple(f"t{number}" for number in range(100))
    wide = type(one)("s", many, np.random.default_rng(0).random((100, 101)))
    data = blame.cells(wide)
    assert len(data) == blame.MOST * (blame.MOST + 1)
    assert data["seconds"].sum() == pytest.approx(wide.seconds.sum())


def test_the_band_spans_the_estimates(diagnosis: Diagnosis) -> None:
    data = blame.estimates(diagnosis.quick.suspects, diagnosis.attribution.suspects)
    assert len(data)
    assert (data["low"] <= data["saved"]).all() and (data["saved"] <= data["high"]).all()


def test_the_heatmap_counts_every_request_and_can_be_boxed() -> None:
    frame = recorded.frame()
    data = heatmap.counted(frame, np.ones(len(frame), dtype=bool), "total_seconds")
    assert data["requests"].sum() == len(frame)
    assert heatmap.TIME_BINS * heatmap.VALUE_BINS <= 5_000
    event = {"selection": {"box": {"time": [1.5e12, 1.6e12], "seconds": [3.0, 1.0]}}}
    box = heatmap.boxed(event, "total_seconds")
    assert box == Box(15 * 10**17, 16 * 10**17, 1.0, 3.0)
    assert box is not None and Box.parse(str(box)) == box
    assert heatmap.boxed({}, "total_seconds") is None
    assert heatmap.counted(frame, np.zeros(len(frame), dtype=bool), "ttft_seconds").empty


def test_the_waterfall_leaves_out_what_is_unknown(diagnosis: Diagnosis) -> None:
    frame = recorded.frame()
    chosen = diagnosis.reckoning.slow
    data = waterfall.means(frame, diagnosis.reckoning.stages, chosen)
    queue = data[(data["stage"] == "queue") & (data["group"] == "cohort")]["seconds"].iloc[0]
    assert queue == pytest.approx(frame["queue_seconds"][chosen].mean())
    bare = frame.assign(queue_seconds=float("nan"))
    assert "queue" not in set(waterfall.means(bare, diagnosis.reckoning.stages, chosen)["stage"])


def test_once_made_is_kept_and_bounded(shop: Path) -> None:
    loaded = Source(shop).window(None)
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert loaded.once(make, "a") == loaded.once(make, "a") == 1
    for number in range(100):
        loaded.once(make, number)
    assert loaded.once(make, "a") > 1


def test_requests_of_a_cell_owe_enough_to_its_worker(diagnosis: Diagnosis) -> None:
    pair = Pair("umbrella", "initech")
    chosen = np.flatnonzero(pair.inside(diagnosis))
    assert len(chosen)
    for position in chosen:
        book = diagnosis.account(int(position))
        assert book is not None
        owed = book.owed[0].sum(axis=1)[book.tenants.index("initech")]
        assert owed >= LEAST * book.excess[0] - 1e-9
    assert set(diagnosis.frame["tenant"].iloc[chosen]) == {"umbrella"}
    assert diagnosis.reckoning.slow[chosen].all()
    assert not Pair("umbrella", "nobody knows").inside(diagnosis).any()
