"""Before and after: what changed and when, the window over time, windows of one's choice."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from tailscope.app import changes, history
from tailscope.records.samples import Sample, label_text
from tests import gpusamples, recorded
from tests.openpage import Open, open_page, words

__all__ = ["open_page"]

SECOND = 10**9


def samples(values: dict[int, float], metric: str = changes.RUNNING) -> pd.DataFrame:
    """Samples of one engine: second to value."""
    return pd.DataFrame(
        {
            "time_ns": [at * SECOND for at in values],
            "metric": metric,
            "value": list(values.values()),
            "server": "h:1",
            "model": "m",
        }
    )


def requests(*arrivals: tuple[int, str]) -> pd.DataFrame:
    """Requests of servers: second and name."""
    return pd.DataFrame(
        {
            "arrived_ns": [at * SECOND for at, _ in arrivals],
            "server": pd.array([name for _, name in arrivals], dtype="str"),
        }
    )


def test_an_engine_that_was_silent_came_back() -> None:
    steady = {at: 1.0 for at in range(100) if not 40 < at < 70}
    (found,) = changes.found(samples(steady), requests((0, "h:1")))
    assert (found.at_ns, found.kind, found.before) == (70 * SECOND, "restart", 30.0)
    assert changes.found(samples({at: 1.0 for at in range(0, 100, 15)}), requests()) == ()


def test_a_cache_of_another_size_is_a_change() -> None:
    sizes = {at: 1000.0 if at < 50 else 2000.0 for at in range(100)}
    (found,) = changes.found(samples(sizes, changes.CAPACITY), requests())
    assert (found.at_ns, found.kind) == (50 * SECOND, "capacity")
    assert (found.before, found.after) == (1000.0, 2000.0)


def test_a_new_server_is_a_change_and_the_first_is_none() -> None:
    frame = requests((0, "a"), (30, "b"), (400, "c"), (500, "a"))
    (found,) = changes.found(pd.DataFrame(), frame)
    assert (found.at_ns, found.kind, found.server) == (400 * SECOND, "began", "c")


def test_percentiles_over_time_leave_out_bins_with_few_requests() -> None:
    frame = pd.DataFrame(
        {
            "arrived_ns": [*range(0, 100 * SECOND, SECOND // 10), 200 * SECOND],
            "total_seconds": [*np.full(1000, 2.0), 9.0],
        }
    )
    data = history.percentiles(frame)
    assert set(data["seconds"]) == {2.0}
    assert set(data["level"]) == {"p50", "p95"}
    assert len(data) <= 2 * (history.BINS + 1)
    assert history.percentiles(frame.iloc[:3]).empty


def test_two_windows_are_chosen_freely(open_page: Open, tmp_path: Path) -> None:
    rows = recorded.shifted(recorded.records(), ago=60)
    store = recorded.store(tmp_path / "s", rows)
    first = min(row.arrived_ns for row in rows)

    def at(second: int) -> str:
        return datetime.fromtimestamp(first / 1e9 + second, UTC).isoformat()

    bounds = {
        "before_from": at(0),
        "before_to": at(25),
        "after_from": at(25),
        "after_to": at(60),
    }
    ask = {"page": "comparison", "window": "all", "against": "free"}
    said = words(open_page(store, **ask, **bounds))
    assert "Not comparable" in said
    assert "30 min are needed" in said
    forced = words(open_page(store, **ask, **bounds, force="true"))
    assert "30 min are needed" not in forced
    assert "Before: " in forced
    assert "Enter the four times" in words(open_page(store, **ask))
    test = open_page(store, **ask, **{**bounds, "before_to": at(-5)})
    assert "must each begin before they end" in str(test.warning[0].value)


def test_a_recorded_change_is_a_click_away(open_page: Open, tmp_path: Path) -> None:
    rows = recorded.shifted(recorded.records(), ago=60)
    store = recorded.store(tmp_path / "s", rows)
    first = min(row.arrived_ns for row in rows)
    labels = label_text({"engine": "vllm", "server": "h:1", "model": "m", "rank": ""})
    gpusamples.add(
        store,
        [
            Sample(first + at * SECOND, changes.CAPACITY, labels, 1000.0 if at < 30 else 2000.0)
            for at in range(60)
        ],
    )
    test = open_page(store, page="comparison", window="all")
    choice = test.selectbox(key="recorded-change")
    assert any("cache of h:1 from 1,000 to 2,000 tokens" in one for one in choice.options)
    choice.select_index(0).run()
    assert not test.exception
    assert test.text_input(key="changed").value
    assert "Before: " in words(test)
