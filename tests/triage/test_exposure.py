"""Interval accounting against the sum that it stands for."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.triage.exposure import SHORTEST, curve, running

times = st.floats(0, 100, allow_nan=False)
phases = st.lists(st.tuples(times, st.floats(0.001, 50), st.floats(0, 1e4)), max_size=30)


@settings(max_examples=100, deadline=None)
@given(phases, st.lists(st.tuples(times, times), min_size=1, max_size=10))
def test_work_in_an_interval_is_the_sum_over_the_requests(
    rows: list[tuple[float, float, float]], asked: list[tuple[float, float]]
) -> None:
    begin = np.array([row[0] for row in rows])
    length = np.maximum(np.array([row[1] for row in rows]), SHORTEST)
    work = np.array([row[2] for row in rows])
    low = np.array([min(pair) for pair in asked])
    high = np.array([max(pair) for pair in asked])
    found = curve(begin, begin + length, work[:, None]).between(low, high)[:, 0]
    for place in range(len(asked)):
        inside = np.clip((high[place] - begin) / length, 0, 1) - np.clip(
            (low[place] - begin) / length, 0, 1
        )
        assert np.isclose(found[place], (work * inside).sum(), rtol=1e-6, atol=1e-6)


def test_an_interval_that_ends_makes_room_for_the_next_first() -> None:
    when, open_ = running(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    assert when.tolist() == [0.0, 1.0, 1.0, 2.0]
    assert open_.tolist() == [1, 0, 1, 0]
