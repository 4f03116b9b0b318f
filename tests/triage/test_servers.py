"""What is one engine, what is another one, and what only went from one to the other."""

from __future__ import annotations

import pandas as pd
import pytest

from tailscope.triage.calibration import most
from tailscope.triage.reckoning import reckon
from tailscope.triage.slow import SlowRule
from tailscope.triage.verdict import attribute
from tailscope.triage.work import works
from tests.triage.test_incidents import ENGINE, played, stream, usual

FLOOD = stream("birch", 14.0, 600, 100, begin=40, end=52, seed=9)


def by_model(frame: pd.DataFrame) -> pd.DataFrame:
    """Every tenant has a model of its own."""
    return frame.assign(model="adapter of " + frame["tenant"])


@pytest.fixture(scope="module")
def flooded() -> pd.DataFrame:
    """A flood of one tenant on one engine."""
    return played([*usual(1.3), *FLOOD])


def test_adapters_of_one_server_are_one_engine(flooded: pd.DataFrame) -> None:
    found = attribute(by_model(flooded), replay=False)
    assert [one.name for one in found.accused] == ["birch"]
    (one,) = found.costings
    assert len(one.work) == len(flooded)
    assert one.cost == attribute(flooded, replay=False).costings[0].cost


def test_models_that_only_have_an_address_in_common_are_engines_apart(
    flooded: pd.DataFrame,
) -> None:
    other = played(usual(1.2)).assign(model="other")
    both = pd.concat([flooded, other], ignore_index=True)
    assert sorted(len(one.work) for one in reckon(both, SlowRule()).costings) == sorted(
        [len(flooded), len(other)]
    )


def test_models_without_a_server_are_engines_apart(flooded: pd.DataFrame) -> None:
    found = reckon(by_model(flooded).assign(server=None), SlowRule())
    assert len(found.costings) == 3


def test_a_model_that_came_after_another_is_another_engine(flooded: pd.DataFrame) -> None:
    later = played([(at + 200.0, *rest) for at, *rest in usual()])  # type: ignore[misc]
    both = pd.concat([flooded, later.assign(model="next")], ignore_index=True)
    assert {one.work.model for one in reckon(both, SlowRule()).costings} == {"sim", "next"}


def test_a_load_that_came_over_from_another_server_is_nobodys_doing() -> None:
    gone, large = 55.0, stream("elm", 5.0, 600, 100, seed=5)
    stayed = [row for row in large if row[0] < gone]
    moved = [row for row in large if row[0] >= gone]
    here = played([*usual(1.3), *moved], server="a:1")
    there = played([*stream("fir", 1.0, 600, 100, seed=6), *stayed], server="b:1")
    assert [one.name for one in attribute(here, replay=False).accused] == ["elm"]
    found = attribute(pd.concat([here, there], ignore_index=True), replay=False)
    assert found.accused == ()
    first = next(one for one in found.suspects if one.name == "elm")
    assert first.spared == "its load came over from another server"


def test_a_flood_of_one_server_is_the_tenants_whatever_it_sends_to_others(
    flooded: pd.DataFrame,
) -> None:
    other = played(usual(1.2), server="b:1")
    found = attribute(pd.concat([flooded, other], ignore_index=True), replay=False)
    assert [one.name for one in found.accused] == ["birch"]


def test_requests_that_wait_before_the_engine_tell_its_room_as_well(flooded: pd.DataFrame) -> None:
    waited = flooded["frontend_seconds"] + flooded["queue_seconds"]
    before = flooded.assign(frontend_seconds=waited, queue_seconds=0.0)
    assert most(works(before)[0]) == most(works(flooded)[0]) == ENGINE.sequences
