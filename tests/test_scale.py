"""What makes large windows bearable changes no number, and holds no more than it should."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailscope.app import loaded as kept
from tailscope.app.loaded import Loaded, Question
from tailscope.app.source import Source
from tailscope.app.views import overview, tenants
from tailscope.records.lone import lone
from tailscope.records.record import RequestRecord
from tailscope.triage import cost
from tailscope.triage.calibration import most_tokens
from tailscope.triage.cohort import associations
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.removal import Admission, admission, waits
from tailscope.triage.scope import Scope
from tailscope.triage.study import costing
from tailscope.triage.work import Floats, Work, works
from tests import recorded
from tests.openpage import Open, open_page, words

__all__ = ["open_page"]


def spans(*names: str | None) -> pa.Table:
    count = len(names)
    columns = {"role": ["engine"] * count, "arrived_ns": list(range(count)), "span_id": names}
    return pa.table(
        columns,
        schema=pa.schema([("role", "string"), ("arrived_ns", pa.int64()), ("span_id", "string")]),
    )


@pytest.mark.parametrize("form", ["{:016x}", "{:032x}", "{:x}"])
def test_a_span_that_occurs_twice_is_seen(form: str) -> None:
    names = [form.format(number) for number in range(300)]
    half = spans("0" * 16, *names).slice(1)  # begins within its buffers
    assert lone([half])
    assert lone([half, spans(*(form.format(number) for number in range(300, 400)))])
    assert not lone([half, spans(names[7])])
    assert not lone([half, spans(None)])
    assert lone([half, spans()])


def naive(work: Work, busy: Floats, stay: Floats, found: Admission) -> Floats:
    """The rule of admission as it is written: each in turn, as soon as there is room."""
    size = work.context + 0.5 * work.output
    starts: list[float] = []
    ends: list[float] = []
    free = 0.0
    for number in range(len(work)):
        at = max(float(work.arrived[number]), starts[-1] if starts else 0.0, free)
        while True:
            inside = [one for one, end in enumerate(ends) if end > at]
            held = float(size[inside].sum()) + size[number]
            if not inside or (len(inside) < found.slots and held <= found.cache + 1e-6):
                break
            at = min(ends[one] for one in inside)
        starts.append(at)
        ends.append(at + stay[number])
        free = at + busy[number]
    return np.array(starts) - work.arrived


@pytest.fixture(scope="module")
def work() -> Work:
    found = works(recorded.frame())[0]
    return found.take(np.arange(min(len(found), 250)))


@pytest.mark.parametrize("slots", [3.0, 1000.0, np.inf])
@pytest.mark.parametrize("share", [0.3, 50.0])
@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_admission_is_that_of_the_rule(
    work: Work, slots: float, share: float, kappa: float
) -> None:
    prices = costing(work).cost
    limits = Admission("", slots, share * most_tokens(work), kappa, 0.0)
    busy = kappa * (prices.own_token * work.computed + prices.own_pair * work.attention)
    stay = work.prefill + work.decode
    expected = naive(work, busy, stay, limits)
    assert waits(work, prices, limits, stay) == pytest.approx(expected, abs=1e-6)
    assert admission(work, prices).fidelity <= 1.0


@pytest.mark.parametrize("rows", [5, 256, 1000])
def test_the_triangle_has_the_same_squares(rows: int) -> None:
    matrix = np.random.default_rng(0).normal(size=(rows, 4))
    triangle = cost._triangle(matrix)
    assert triangle.T @ triangle == pytest.approx(matrix.T @ matrix)
    assert len(triangle) == 4


def test_rows_without_a_value_are_one_value_of_a_dimension() -> None:
    frame = recorded.frame()
    frame["tenant"] = frame["tenant"].where(np.arange(len(frame)) % 3 > 0)
    slow = frame["tenant"].isna().to_numpy() & (np.arange(len(frame)) % 2 > 0)
    found = {one.value: one for one in associations(frame, slow) if one.dimension == "tenant"}
    assert found["unknown"].rows == frame["tenant"].isna().sum()
    assert found["unknown"].slow == 1.0


def noted(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., None]
) -> None:
    """Have a function note each call."""
    real = getattr(owner, name)

    def call(*arguments: Any, **more: Any) -> Any:
        note(*arguments, **more)
        return real(*arguments, **more)

    monkeypatch.setattr(owner, name, call)


def test_the_overview_shows_the_latency_before_costs_are_fitted(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = recorded.store(tmp_path, recorded.shifted(recorded.records(), ago=60))
    order: list[str] = []
    noted(monkeypatch, overview, "plot", lambda *_, key, **__: order.append(key))
    noted(monkeypatch, Loaded, "finding", lambda *_: order.append("finding"))
    noted(monkeypatch, Loaded, "replay", lambda *_: order.append("replay"))
    open_page(store, window="all")
    assert order.index("heat-total_seconds") < order.index("finding") < order.index("replay")


def test_the_tenants_keep_their_last_replay_until_the_next_one_is_made(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = recorded.shifted(recorded.records(), ago=60)
    store = recorded.store(tmp_path, records)
    drawn: list[tuple[int, bool]] = []

    def note(context: Any) -> None:
        drawn.append((len(context.loaded.frame), context.loaded.replayed(context.question)))

    noted(monkeypatch, tenants, "_draw", note)
    assert "Requests as of" in words(open_page(store, page="tenants", window="all"))
    count = len(Source(store).window(None).frame)
    assert drawn == [(count, False)]

    drawn.clear()
    last = max(record.arrived_ns for record in records)
    recorded.store(tmp_path, [RequestRecord("t", "gateway", last + 10**9, tenant="acme")])
    monkeypatch.setattr(kept, "MIN_AGE", 0.0)
    monkeypatch.setattr(kept, "COST_SHARE", 1e9)
    open_page(store, page="tenants", window="all")
    assert drawn == [(count, True), (count + 1, True)]


def test_a_replay_does_not_lock_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = recorded.store(tmp_path, recorded.records())
    loaded, free = Source(store).window(None), list[bool]()

    def look() -> None:
        got = loaded.lock.acquire(timeout=60)
        free.append(got)
        if got:
            loaded.lock.release()

    def note(*_: Any) -> None:
        other = threading.Thread(target=look)
        other.start()
        other.join()

    noted(monkeypatch, Diagnosis, "replay", note)
    loaded.replay(Question(Scope()))
    assert free == [True]
    assert loaded.replayed(Scope())
    assert not loaded.replayed(Scope(tenants=("acme",)))


def test_only_so_many_requests_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = recorded.records()
    source = Source(recorded.store(tmp_path, records))
    monkeypatch.setattr("tailscope.app.source.MOST_ROWS", 600)
    monkeypatch.setattr(kept, "MOST_ROWS", 600)
    seen = [weakref.ref(source.window(None, (None, 2**62 + number))) for number in range(3)]
    gc.collect()
    alive = [loaded() for loaded in seen if loaded() is not None]
    assert len(alive) == 2  # of 278 requests each

    newest = alive[-1]
    assert newest is not None
    asked = [weakref.ref(newest.diagnosis(Scope(tenants=(name,)))) for name in ("a", "b", "c")]
    gc.collect()
    assert sum(one() is not None for one in asked) == 2
