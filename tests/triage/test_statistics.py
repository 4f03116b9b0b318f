"""Second opinions: censoring, association, before and after, outliers, change of load."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tailscope.triage.cohort import associations
from tailscope.triage.company import DIMENSIONS, company
from tailscope.triage.comparison import Outcome, compare
from tailscope.triage.correlation import correlation
from tailscope.triage.lift import change, sizes
from tailscope.triage.offline import outliers
from tailscope.triage.retries import retries
from tailscope.triage.study import costing
from tailscope.triage.survival import cut, percentile, timeout
from tailscope.triage.work import works
from tests.simulated.engine import Machine
from tests.simulated.scenario import scenario


def test_a_timeout_does_not_pass_for_the_tail() -> None:
    random = np.random.default_rng(0)
    true = random.exponential(5.0, 4000)
    seen, given_up = np.minimum(true, 10.0), true > 10.0
    p80 = percentile(seen, given_up, 0.80)
    assert p80 is not None
    assert p80.bounded
    assert abs(p80.seconds - np.quantile(true, 0.80)) < 0.3
    p99 = percentile(seen, given_up, 0.99)
    assert p99 is not None
    assert not p99.bounded
    assert p99.seconds == 10.0
    assert timeout(seen, given_up) == 10.0
    assert timeout(true, np.zeros(len(true), dtype=bool)) is None
    assert percentile(np.array([]), np.array([], dtype=bool), 0.5) is None


def test_a_cut_names_the_lowest_percentile_that_it_reaches() -> None:
    random = np.random.default_rng(7)
    done = np.minimum(random.lognormal(0.0, 0.5, 969), 9.0)
    for given_up, level in ((31, "p99"), (7, None), (100, "p95")):
        seconds = np.concatenate([done, 10.0 + 0.01 * random.random(given_up)])
        found = cut(seconds, np.arange(len(seconds)) >= len(done))
        assert found is not None
        assert found.seconds == pytest.approx(10.0, rel=2e-3)
        assert (found.requests, found.level) == (given_up, level)
        assert found.share == pytest.approx(given_up / len(seconds))


def test_requests_given_up_at_random_times_are_no_timeout() -> None:
    random = np.random.default_rng(1)
    true, patience = random.exponential(5.0, 2000), random.exponential(8.0, 2000)
    seen, given_up = np.minimum(true, patience), patience < true
    assert timeout(seen, given_up) is None
    half = percentile(seen, given_up, 0.5)
    assert half is not None
    assert abs(half.seconds - np.quantile(true, 0.5)) < 0.4


def _bursts(count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    slow = np.zeros(count, dtype=bool)
    for begin in random.integers(0, count - 60, 12):
        slow[begin : begin + 40] = True
    return slow


def test_association_finds_the_planted_value_and_little_else() -> None:
    random = np.random.default_rng(2)
    false = 0
    for seed in range(20):
        slow = _bursts(5000, seed)
        frame = pd.DataFrame(
            {
                "tenant": random.choice(["a", "b", "c", "d"], 5000),
                "input_tokens": random.integers(1, 9000, 5000),
            }
        )
        # Load comes in stretches too: independent of the slow ones, but not of itself.
        frame.loc[(np.arange(5000) // 50) % 7 == seed % 7, "tenant"] = "d"
        false += any(one.found for one in associations(frame, slow, seed=seed))
        planted = frame.assign(server=np.where(slow & (random.random(5000) < 0.8), "bad", "good"))
        best = next(one for one in associations(planted, slow, seed=seed) if one.value == "bad")
        assert best.found
    assert false <= 4


def _window(seed: int, scale: float, *, span: int = 3600, rate: float = 1.0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    count = int(span * rate)
    return pd.DataFrame(
        {
            "arrived_ns": np.sort(random.integers(0, span * 10**9, count)),
            "total_seconds": scale * random.lognormal(0, 0.6, count),
            "input_tokens": random.integers(100, 2000, count),
            "output_tokens": random.integers(10, 200, count),
        }
    )


def test_before_and_after() -> None:
    before = _window(1, 1.0)
    assert compare(before, _window(2, 0.7)).outcome is Outcome.BETTER
    assert compare(before, _window(3, 1.4)).outcome is Outcome.WORSE
    assert compare(before, _window(4, 1.0)).outcome is Outcome.SAME


def test_what_cannot_be_compared_says_why() -> None:
    before = _window(1, 1.0)
    short = compare(before, _window(2, 0.5, span=600))
    assert short.outcome is Outcome.INCOMPARABLE
    assert any("30 min" in reason for reason in short.reasons)
    assert any("load" in reason for reason in compare(before, _window(2, 0.5, rate=2.0)).reasons)
    other = _window(2, 0.5).assign(input_tokens=50)
    assert any("mix" in reason for reason in compare(before, other).reasons)
    assert compare(before, before.iloc[:0]).outcome is Outcome.INCOMPARABLE
    forced = compare(_window(1, 1.0, span=1500), _window(2, 0.5, span=1500), force=True)
    assert forced.outcome is Outcome.BETTER


def test_few_requests_that_differ_by_chance_are_no_other_load_or_mix() -> None:
    for seed in range(10):
        few = [_window(2 * seed + side, 1.0, rate=0.03) for side in (0, 1)]
        few[1] = few[1].sample(frac=0.85, random_state=seed).sort_values("arrived_ns")
        assert compare(*few).reasons == ()


def test_a_neighbour_who_left_is_no_gain_of_the_change() -> None:
    mine = [_window(seed, scale).assign(tenant="a") for seed, scale in ((1, 1.0), (2, 0.6))]
    noisy = _window(3, 3.0, rate=0.5).assign(tenant="noisy")
    before = pd.concat([mine[0], noisy]).sort_values("arrived_ns")
    assert compare(*mine, tenants=("a",)).outcome is Outcome.BETTER
    found = compare(before, mine[1], tenants=("a",))
    assert found.outcome is Outcome.INCOMPARABLE
    assert any("load" in reason for reason in found.reasons)
    # The percentiles are still those of the tenant that was asked for.
    assert found.shifts[1].before < np.quantile(mine[0]["total_seconds"], 0.96)


def test_offline_outliers_have_a_reason() -> None:
    random = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "tenant": "batch",
            "total_seconds": random.normal(60, 3, 100),
            "input_tokens": 1000.0,
            "output_tokens": 200.0,
            "finish_reason": "stop",
            "attempt": 1,
        }
    )
    frame.loc[10, "total_seconds"], frame.loc[10, "input_tokens"] = 900.0, 100_000.0
    frame.loc[20, "total_seconds"], frame.loc[20, "output_tokens"] = 800.0, 4000.0
    frame.loc[20, "finish_reason"] = "length"
    frame.loc[30, "total_seconds"] = 700.0
    found = outliers(frame, {"batch"})
    assert [one.row for one in found] == [10, 20, 30]
    assert "prompt" in found[0].reason
    assert "limit" in found[1].reason
    assert "usual" in found[2].reason
    assert outliers(frame, {"other"}) == []
    window = np.arange(len(frame)) >= 15
    assert [one.row for one in outliers(frame, {"batch"}, window)] == [20, 30]


def test_the_stretch_of_a_burst_is_found_and_a_steady_tenant_has_none() -> None:
    machine = Machine(sequences=24)
    made = scenario("flood", 61, span=90.0, machine=machine, removals=False)
    work = works(made.frame)[0]
    size = sizes(work, costing(work).cost)
    culprit = work.tenants.index(made.culprits[0])
    found = change(work, size, culprit)
    assert found is not None
    assert found.p <= 0.01
    assert found.own > 2.0
    quiet = [change(work, size, one) for one in range(len(work.tenants)) if one != culprit]
    assert sum(one is not None and one.p <= 0.01 for one in quiet) <= 1


def test_the_load_that_the_excess_follows_correlates_and_another_does_not() -> None:
    made = scenario("flood", 61, span=90.0, machine=Machine(sequences=24), removals=False)
    one = costing(works(made.frame)[0])
    work, size = one.work, sizes(one.work, one.cost)
    slow = one.excess >= np.quantile(one.excess, 0.95)
    culprit = work.tenants.index(made.culprits[0])
    found = correlation(work, one.excess, size, culprit, slow)
    assert found is not None
    assert found.r > 0.5
    assert found.p <= 0.05
    assert found.beside is not None
    assert found.beside > 1.2
    random = np.random.default_rng(5)
    chance = correlation(work, random.exponential(1, len(work)), size, culprit, slow)
    assert chance is not None
    assert chance.p > 0.05
    assert correlation(work.take(np.arange(3)), one.excess[:3], size[:3], culprit, slow[:3]) is None


def test_attempts_beyond_the_first_and_abandoned_work_are_counted() -> None:
    frame = pd.DataFrame(
        {
            "tenant": ["a", "a", "b", None],
            "arrived_ns": [1, 2, 3, 4],
            "session": pd.Series([None] * 4, dtype=object),
            "outcome": ["ok"] * 4,
            "attempt": [1, 2, 3, 1],
            "total_seconds": [2.0, 3.0, 5.0, 10.0],
            "client_seconds": [2.1, 3.1, np.nan, 4.0],
        }
    )
    found = retries(frame)
    assert (found.attempts, found.seconds, found.share) == (2, 8.0, 0.4)
    assert found.tenants == (("a", 1), ("b", 1))
    assert (found.abandoned, found.abandoned_seconds) == (1, 6.0)
    assert found.any
    assert not retries(frame.iloc[:1]).any


def test_requests_that_came_to_a_full_engine_are_associated_with_it() -> None:
    made = scenario("flood", 61, span=90.0, machine=Machine(sequences=24), removals=False)
    frame = made.frame.sort_values("arrived_ns", ignore_index=True)
    one = costing(works(frame)[0])
    load = company([one], len(frame))
    assert load["running at arrival"].max() <= 24
    assert (load >= 0).all(axis=None)
    slow = np.zeros(len(frame), dtype=bool)
    slow[one.work.rows[one.excess >= np.quantile(one.excess, 0.95)]] = True
    first = associations(frame, slow, extra=load)[0]
    assert first.dimension in DIMENSIONS


def test_a_second_culprit_does_not_hide_the_first() -> None:
    machine = Machine(sequences=24)
    made = scenario("two", 61, span=90.0, machine=machine, removals=False)
    work = works(made.frame)[0]
    size = sizes(work, costing(work).cost)
    one, two = (work.tenants.index(name) for name in made.culprits)
    together, apart = change(work, size, one), change(work, size, one, apart=(one, two))
    assert together is not None
    assert apart is not None
    assert apart.lift == together.lift
    assert apart.others <= together.others
    assert apart.own >= 2.0
