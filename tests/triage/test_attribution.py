"""Whole attributions: known culprits, nobody to blame, and what must never change."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest

from tailscope.triage.stagetimes import Stages
from tailscope.triage.study import costing
from tailscope.triage.verdict import Attribution, attribute
from tailscope.triage.work import works
from tests.degraded import WAYS
from tests.simulated.engine import Machine
from tests.simulated.scenario import Scenario, scenario

MACHINE = Machine(sequences=24, budget=2048, boundary=True)
SPAN = 90.0


@lru_cache(maxsize=16)
def made(kind: str, seed: int, *, removals: bool = False) -> Scenario:
    return scenario(kind, seed, span=SPAN, machine=MACHINE, removals=removals)


@lru_cache(maxsize=16)
def told(kind: str, seed: int, *, replay: bool = True) -> Attribution:
    return attribute(made(kind, seed).frame, replay=replay)


@pytest.mark.parametrize(("kind", "seed"), [("flood", 41), ("longprompt", 42), ("cacheloss", 43)])
def test_the_culprit_is_first_and_accused(kind: str, seed: int) -> None:
    found = told(kind, seed)
    assert found.suspects[0].name in made(kind, seed).culprits
    assert {one.name for one in found.accused} == set(made(kind, seed).culprits)


@pytest.mark.parametrize(("kind", "seed"), [("steady", 44), ("large", 45), ("surge", 46)])
def test_nobody_is_accused_where_nobody_changed_alone(kind: str, seed: int) -> None:
    assert told(kind, seed).accused == ()


def test_a_slow_engine_is_accused_and_no_tenant() -> None:
    found = told("slow_engine", 47)
    assert [one.kind for one in found.accused] == ["engine"]


def test_removal_share_is_near_the_truth() -> None:
    truth = made("flood", 41, removals=True).removal
    shares = {one.name: one.removal_share for one in told("flood", 41).suspects}
    assert shares
    assert all(abs(share - truth[name]) < 0.1 for name, share in shares.items())


def test_without_a_replay_the_order_of_admission_says_who() -> None:
    found = told("flood", 41, replay=False)
    assert found.suspects[0].name in made("flood", 41).culprits
    assert not found.suspects[0].replayed
    assert found.grade in "BC"


@pytest.mark.parametrize("way", list(WAYS))
def test_degraded_records_still_name_the_culprit(way: str) -> None:
    case = made("flood", 41)
    found = attribute(WAYS[way](case.frame), replay=way == "order")
    tenants = [one.name for one in found.suspects if one.kind == "tenant"]
    assert tenants[0] in case.culprits
    if way in ("ttft", "total"):
        assert found.grade in "CD"


def test_total_times_are_enough_where_a_play_comes_near_to_them() -> None:
    case = made("flood", 41, removals=True)
    found = attribute(WAYS["total"](case.frame))
    assert [one.name for one in found.accused] == list(case.culprits)
    assert found.studies[0].engine is not None
    assert found.studies[0].engine.loss < 0.1
    assert found.grade == "C"
    assert all(abs(one.removal_share - case.removal[one.name]) < 0.15 for one in found.suspects)


def _shares(found: Attribution) -> dict[str, tuple[float, float]]:
    return {
        one.name: (round(one.ledger_share, 6), round(one.removal_share, 6))
        for one in found.suspects
    }


def test_order_of_rows_time_and_names_do_not_matter() -> None:
    frame = made("flood", 41).frame
    usual = _shares(told("flood", 41, replay=False))
    mixed = frame.sample(frac=1.0, random_state=9)
    assert _shares(attribute(mixed, replay=False)) == usual
    day = 86_400 * 10**9
    later = frame.assign(arrived_ns=frame["arrived_ns"] + day, ended_ns=frame["ended_ns"] + day)
    assert _shares(attribute(later, replay=False)) == usual
    renamed = attribute(frame.assign(tenant="z" + frame["tenant"]), replay=False)
    assert {name[1:]: value for name, value in _shares(renamed).items()} == usual


def test_two_engines_add_up() -> None:
    one = made("flood", 41).frame
    two = made("steady", 44).frame.assign(server="other:8000")
    found = attribute(pd.concat([one, two], ignore_index=True), replay=False)
    assert len(found.studies) == 2
    assert found.requests == len(one) + len(two)
    assert found.excess_seconds == pytest.approx(sum(found.stages.values()))


def test_empty_and_tiny_windows_have_an_answer() -> None:
    frame = made("flood", 41).frame
    assert attribute(frame.iloc[:0]).suspects == ()
    one = attribute(frame.iloc[:1])
    assert one.requests == 1
    assert one.grade == "D"
    same = pd.concat([frame.iloc[:1]] * 30, ignore_index=True)
    assert attribute(same).accused == ()


def test_columns_that_are_missing_are_unknown() -> None:
    frame = made("flood", 41).frame[["arrived_ns", "total_seconds", "tenant"]]
    found = attribute(frame, replay=False)
    assert found.requests == len(frame)
    assert found.grade in "CD"
    assert works(frame)[0].stages is Stages.TOTAL


def test_a_hundred_thousand_tenants() -> None:
    frame = made("steady", 44).frame
    many = pd.concat([frame] * (100_000 // len(frame) + 1), ignore_index=True)
    span = int(SPAN * 1e9)
    many["arrived_ns"] += np.repeat(np.arange(len(many) // len(frame)), len(frame)) * span
    many["tenant"] = [f"t{i}" for i in range(len(many))]
    found = attribute(many, replay=False)
    assert len(found.studies[0].book.tenants) <= 200
    assert not found.accused


def test_excess_is_never_negative_and_never_more_than_the_time() -> None:
    for work in works(made("flood", 41).frame):
        found = costing(work)
        assert (found.excess >= 0).all()
        assert (found.excess <= work.total + 1e-9).all()
