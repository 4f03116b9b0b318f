"""Which tenants have series of their own."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tailscope.exporter.requestmetrics import OTHER, RequestMetrics
from tailscope.exporter.tenants import QUIET_SECONDS, REVIEW_SECONDS, TENURE_SECONDS, Tenants
from tailscope.records.record import RequestRecord

SEATS = 4


class Clocked:
    """Tenants, and a clock."""

    def __init__(self, seats: int = SEATS) -> None:
        self.now = 0.0
        self.tenants = Tenants(seats, lambda: self.now)

    def second(self, **loads: float) -> list[str]:
        """One second in which tenants have some load; returns who lost a seat."""
        for name, load in loads.items():
            self.tenants.admit(name, load)
        self.now += 1
        return self.tenants.review()

    def seats(self, *names: str) -> list[str]:
        """Those that have one; asks with no load."""
        return [name for name in names if self.tenants.admit(name, 0.0)]


def test_who_comes_while_there_is_room_stays() -> None:
    clocked = Clocked()
    left = [clocked.second(a=1, b=1, c=1, d=1, e=1, f=2) for _ in range(4000)]
    assert left == [[]] * 4000, "twice the load is not enough for a change"
    assert clocked.seats(*"abcdef") == list("abcd")


def test_the_heaviest_gets_the_seat_of_the_lightest_and_it_stays_so() -> None:
    clocked = Clocked()
    loads = {"a": 1.0, "b": 0.1, "c": 1.0, "d": 1.0, "e": 0.1, "heavy": 5.0}
    changes = [(time, left) for time in range(8000) if (left := clocked.second(**loads))]
    ((time, left),) = changes
    assert left == ["b"]
    assert TENURE_SECONDS - REVIEW_SECONDS <= time <= TENURE_SECONDS + REVIEW_SECONDS
    assert clocked.seats("a", "b", "c", "d", "heavy") == ["a", "c", "d", "heavy"]


def test_silence_costs_no_seat_while_nobody_waits() -> None:
    clocked = Clocked()
    clocked.second(a=1)
    clocked.now += 100 * QUIET_SECONDS
    assert clocked.second(b=1) == []
    assert clocked.seats("a", "b") == ["a", "b"]


def test_the_seat_of_a_silent_tenant_goes_to_who_waits() -> None:
    clocked = Clocked()
    busy = {"b": 1.0, "c": 1.0, "d": 1.0, "light": 0.01, "lighter": 0.001}
    clocked.second(a=1.0, **busy)
    changes = [left for _ in range(int(2 * QUIET_SECONDS)) if (left := clocked.second(**busy))]
    assert changes == [["a"]]
    assert clocked.seats("light", "lighter") == ["light"]


def test_names_without_end_never_get_a_seat_by_being_many() -> None:
    clocked = Clocked()
    for number in range(5000):
        assert clocked.second(a=1, b=1, c=1, d=1, **{f"new{number}": 1.0}) == []
    assert len(clocked.tenants._waiting) <= 8 * SEATS


def test_the_heavy_ones_of_many_are_found() -> None:
    rng, clocked = random.Random(7), Clocked(10)
    heavy = [f"t{number}" for number in range(500, 508)]
    for number in range(10):
        clocked.second(**{f"t{number}": 0.01})
    for _ in range(2400):
        some = {f"t{rng.randrange(20_000)}": 0.05 for _ in range(20)}
        clocked.second(**{**some, rng.choice(heavy): 5.0})
    assert set(clocked.seats(*heavy)) == set(heavy)


# In the metrics


def record(tenant: str, seconds: float = 1.0) -> RequestRecord:
    return RequestRecord(
        "vllm", "engine", 10**18, tenant=tenant, prefill_seconds=seconds, decode_seconds=0.0
    )


def requests_of(metrics: RequestMetrics) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in metrics.lines()["tailscope_requests_total"]:
        found[line.series.split('tenant="')[1].split('"')[0]] += int(line.value)
    return found


def overflow(metrics: RequestMetrics) -> float:
    (line,) = metrics.lines()["tailscope_tenant_overflow_requests_total"]
    return line.value


def test_a_tenant_that_loses_its_seat_loses_all_series_and_others_go_on() -> None:
    clock = [0.0]
    metrics = RequestMetrics(2, lambda: clock[0])
    seen: dict[str, int] = {}
    for _ in range(1000):
        clock[0] += 1
        metrics.observe([(record("light", 0.001), None), (record("a"), None)])
        metrics.observe([(record("heavy", 9.0), None)])
        now = requests_of(metrics)
        for name in seen.keys() & now.keys():
            assert now[name] >= seen[name], "a counter never goes back"
        seen = dict(now)
    assert requests_of(metrics).keys() == {"a", "heavy", OTHER}
    names = {line.series for lines in metrics.lines().values() for line in lines}
    assert not any('tenant="light"' in name for name in names)
    assert requests_of(metrics)["a"] == 1000
    assert requests_of(metrics)[OTHER] == overflow(metrics)


@pytest.mark.parametrize("many", [2_000, 20_000])
def test_the_number_of_series_does_not_depend_on_that_of_tenants(many: int) -> None:
    metrics = RequestMetrics(50)
    batch = 500
    for first in range(0, many, batch):
        metrics.observe([(record(f"t{n}"), None) for n in range(first, first + batch)])
    assert len(requests_of(metrics)) == 51
    assert overflow(metrics) == many - 50 == requests_of(metrics)[OTHER]
