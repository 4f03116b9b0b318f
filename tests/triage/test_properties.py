"""What must hold for any requests: nothing depends on their order, their names or the calendar."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tailscope.records.reader import join_records
from tailscope.triage.diagnosis import Diagnosis, Options
from tailscope.triage.reckoning import Reckoning, reckon
from tailscope.triage.report import report
from tailscope.triage.scope import Scope
from tailscope.triage.slow import SlowRule
from tailscope.triage.verdict import judge
from tests.triage.test_conservation import framed, rows

RULE = SlowRule(None, 5.0)
DAY = 86_400 * 10**9

WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A smaller example would take minutes, and says no more here."""

frames = st.lists(rows, min_size=1, max_size=40).map(framed)


def owed(frame: pd.DataFrame) -> dict[str, float]:
    """Ledger seconds of each suspect."""
    found = judge(reckon(frame, RULE))
    return {
        one.name: round(one.ledger_seconds, 5)
        for one in found.suspects
        if one.ledger_share > 0.05  # of those that hardly matter only the first is looked at
    }


def by_time(found: Reckoning, frame: pd.DataFrame) -> list[tuple[float, ...]]:
    """Excess of each request, in an order that does not depend on that of the rows."""
    table = frame[["server", "queue_seconds", "decode_seconds", "total_seconds"]].assign(
        arrived=frame["arrived_ns"] - frame["arrived_ns"].min(), excess=found.excess.round(6)
    )
    return sorted(table.itertuples(index=False, name=None))


@settings(max_examples=12, deadline=None, phases=WITHOUT_SHRINKING)
@given(frames)
def test_the_order_of_the_rows_does_not_matter(frame: pd.DataFrame) -> None:
    mixed = frame.sample(frac=1.0, random_state=7).reset_index(drop=True)
    assert by_time(reckon(mixed, RULE), mixed) == by_time(reckon(frame, RULE), frame)


@settings(max_examples=12, deadline=None, phases=WITHOUT_SHRINKING)
@given(frames)
def test_time_and_names_do_not_matter(frame: pd.DataFrame) -> None:
    before = owed(frame)
    later = frame.assign(arrived_ns=frame["arrived_ns"] + 1000 * DAY)
    assert owed(later) == pytest.approx(before, abs=1e-4)
    renamed = frame.assign(tenant=frame["tenant"].map(lambda name: f"z{name}", na_action="ignore"))
    after = {name.removeprefix("z"): seconds for name, seconds in owed(renamed).items()}
    assert after == pytest.approx(before)


@settings(max_examples=12, deadline=None, phases=WITHOUT_SHRINKING)
@given(frames)
def test_two_halves_of_a_window_are_the_whole(frame: pd.DataFrame) -> None:
    whole = reckon(frame, RULE)
    early = frame["arrived_ns"].to_numpy() < int(frame["arrived_ns"].median())
    halves = [reckon(frame, RULE, half) for half in (early, ~early)]
    assert (halves[0].slow | halves[1].slow == whole.slow).all()
    assert not (halves[0].slow & halves[1].slow).any()
    seconds = [judge(half).excess_seconds for half in halves]
    assert sum(seconds) == pytest.approx(judge(whole).excess_seconds)


@settings(max_examples=12, deadline=None, phases=WITHOUT_SHRINKING)
@given(frames)
def test_every_second_has_one_owner_and_shares_stay_within_the_whole(frame: pd.DataFrame) -> None:
    found = judge(reckon(frame, RULE))
    owners = sum(found.mechanisms.values()) + found.engine_seconds + found.unexplained_seconds
    assert owners == pytest.approx(found.excess_seconds, abs=1e-6)
    assert sum(found.stages.values()) == pytest.approx(found.excess_seconds, abs=1e-6)
    for one in found.suspects:
        assert -1e-9 <= one.ledger_share <= 1.0 + 1e-9
        assert np.isfinite(one.removal_share)


@settings(max_examples=8, deadline=None, phases=WITHOUT_SHRINKING)
@given(frames)
def test_whatever_comes_in_there_is_an_answer(frame: pd.DataFrame) -> None:
    like = join_records([])
    full = frame.reindex(columns=like.columns).astype(
        {name: like[name].dtype for name in like.columns}
    )
    for rule in (RULE, SlowRule()):
        shape = report(Diagnosis(full, Options(Scope(slow=rule))))
        json.dumps(shape, allow_nan=False)
        assert {"window", "latency", "slow", "suspects", "fixes", "data_quality"} <= shape.keys()


def test_equal_requests_have_no_culprit() -> None:
    one = (10**9, "a", "s1", 0.0, 0.5, 0.1, 1.0, 100, 0, 50)
    frame = framed([(one[0] + k * 10**7, *one[1:]) for k in range(60)])
    assert judge(reckon(frame, SlowRule())).accused == ()
