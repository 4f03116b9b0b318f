from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.exporter.exposition import Lines
from tailscope.exporter.reading import Key
from tailscope.exporter.sampler import Sampler

LABELS = ("vllm", "a:1", "m", "")
WAITING = Key("tailscope_engine_requests_waiting", LABELS)
RUNNING = Key("tailscope_engine_requests_running", LABELS)
TOKENS = Key("tailscope_engine_prompt_tokens_total", LABELS)
INTEGRAL = "tailscope_engine_waiting_request_seconds_total"
SAMPLED = "tailscope_engine_requests_waiting_sampled"


def integral(lines: Lines) -> float:
    (line,) = lines[INTEGRAL]
    return line.value


def test_the_integral_is_the_area_under_the_samples() -> None:
    sampler = Sampler(longest=3)
    values = [(0.0, 4), (1.0, 8), (2.5, 8), (3.5, 0)]
    totals = [integral(sampler.observe(now, {WAITING: value})) for now, value in values]
    assert totals == [0, 6, 18, 22]


def test_over_a_gap_nothing_is_known_so_nothing_is_added() -> None:
    sampler = Sampler(longest=3)
    sampler.observe(0, {WAITING: 100})
    assert integral(sampler.observe(3.5, {WAITING: 100})) == 0
    assert integral(sampler.observe(4.5, {WAITING: 100})) == 100
    # Neither over the time in which others were read and this one was not there.
    for second in (5, 6, 7):
        sampler.observe(second, {RUNNING: 1})
    assert integral(sampler.observe(8, {WAITING: 100})) == 100


def test_a_clock_that_stands_or_goes_back_adds_nothing() -> None:
    sampler = Sampler(longest=3)
    sampler.observe(5, {WAITING: 100})
    assert integral(sampler.observe(5, {WAITING: 100})) == 0
    assert integral(sampler.observe(4, {WAITING: 100})) == 0


def test_a_peak_between_two_scrapes_survives() -> None:
    """A burst of one second in a minute that is scraped at its ends."""
    sampler = Sampler(longest=3)
    before = sampler.observe(0, {WAITING: 0})
    for second in range(1, 60):
        sampler.observe(second, {WAITING: 300 if second == 30 else 0})
    after = sampler.observe(60, {WAITING: 0})
    assert integral(after) - integral(before) == 300
    counts = {line.series.partition('le="')[2][:-2]: line.value for line in after[SAMPLED]}
    assert (counts["0.0"], counts["256.0"], counts["512.0"], counts["+Inf"]) == (60, 60, 61, 61)


def test_each_series_has_its_own_and_counters_have_none() -> None:
    sampler = Sampler(longest=3)
    other = Key(WAITING.metric, ("vllm", "b:1", "m", ""))
    sampler.observe(0, {WAITING: 2, other: 10, TOKENS: 5})
    lines = sampler.observe(1, {WAITING: 2, other: 10, TOKENS: 5})
    assert {line.series: line.value for line in lines[INTEGRAL]} == {
        f'{INTEGRAL}{{engine="vllm",server="a:1",model="m",rank=""}}': 2,
        f'{INTEGRAL}{{engine="vllm",server="b:1",model="m",rank=""}}': 10,
    }
    assert lines.keys() == {INTEGRAL, SAMPLED}


def test_only_series_of_this_sample_are_told() -> None:
    sampler = Sampler(longest=3)
    sampler.observe(0, {WAITING: 2})
    assert sampler.observe(1, {}) == {}


def test_series_that_come_and_go_are_forgotten_at_last() -> None:
    sampler = Sampler(longest=3)
    sampler.observe(0, {WAITING: 2})
    for turn in range(1500):
        key = Key(WAITING.metric, ("vllm", "a:1", f"m{turn}", ""))
        lines = sampler.observe(turn, {key: 1, WAITING: 2})
    assert len(sampler._integrals) <= 1004
    assert len(sampler._distributions) <= 1004
    # The one that is there all the time lost nothing.
    assert max(line.value for line in lines[INTEGRAL]) == 2 * 1499


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1e6)), min_size=1, max_size=30))
def test_the_integral_against_a_plain_sum(steps: list[tuple[float, float]]) -> None:
    times: list[float] = []
    for pause, _ in steps:
        times.append((times[-1] if times else 0.0) + pause)
    points = list(zip(times, (value for _, value in steps), strict=True))
    sampler = Sampler(longest=3)
    for now, value in points:
        lines = sampler.observe(now, {WAITING: value})
    expected = math.fsum(
        (later - earlier) * (first + second) / 2
        for (earlier, first), (later, second) in pairwise(points)
        if later - earlier <= 3
    )
    assert integral(lines) == pytest.approx(expected, rel=1e-9, abs=1e-9)
