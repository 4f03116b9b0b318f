"""An engine that came back as another one is told from one that is slow, and from a quiet one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.epoch import parted
from tailscope.triage.quality import notes
from tailscope.triage.reckoning import reckon
from tailscope.triage.slow import SlowRule
from tailscope.triage.work import works
from tests.simulated.engine import Machine
from tests.simulated.fleet import Row
from tests.triage.test_incidents import ENGINE, played, usual, whole

OTHER = replace(ENGINE, floor=0.014, fixed=0.004, per_prompt=110e-6, per_decode=100e-6)
"""The same engine with a larger model."""


def restarted(*machines: Machine, pause: float = 40.0) -> pd.DataFrame:
    """An engine that serves for 90 s, is away, and comes back, again and again."""
    frames = []
    for number, machine in enumerate(machines):
        begin = number * (120.0 + pause)
        rows: list[Row] = [(at + begin, *rest) for at, *rest in usual(0.8)]  # type: ignore[misc]
        frames.append(played(rows, machine))
    return pd.concat(frames, ignore_index=True)


def test_an_engine_that_came_back_with_another_model_has_two_costs() -> None:
    found = reckon(restarted(ENGINE, OTHER), SlowRule())
    (epoch,) = found.epochs
    assert 1.3 < epoch.slower < 2.5
    assert epoch.pause > 30.0
    fast, slow = sorted(one.cost.step for one in found.costings)
    assert fast == pytest.approx(ENGINE.floor, rel=0.2)
    assert slow == pytest.approx(OTHER.floor, rel=0.2)
    assert all(one.cost.fit > 0.9 for one in found.costings)


def test_it_is_said_and_neither_half_is_blamed() -> None:
    found = Diagnosis(whole(restarted(ENGINE, OTHER)))
    assert [one for one in found.suspects if one.accused] == []
    assert any("came back as another one" in one for one in notes(found.finding))


def test_every_restart_is_found() -> None:
    assert len(reckon(restarted(ENGINE, OTHER, ENGINE), SlowRule()).epochs) == 2


def test_an_engine_that_only_slept_is_away_for_seconds() -> None:
    (epoch,) = reckon(restarted(ENGINE, OTHER, pause=-20.0), SlowRule()).epochs
    assert 5.0 <= epoch.pause < 10.0


def test_a_gateway_that_holds_requests_back_meanwhile_hides_no_restart() -> None:
    frame = restarted(ENGINE, OTHER)
    when = frame["arrived_ns"] - frame["arrived_ns"].min()
    waiting = (when > 150e9) & (when < 165e9)
    assert waiting.sum() >= 5
    # They came evenly in the pause before, and started when they did.
    held = np.where(waiting, (when - 95e9 - (when - 150e9) * 4.0) / 1e9, 0.0).clip(min=0.0)
    early = frame.assign(arrived_ns=frame["arrived_ns"] - (held * 1e9).astype("int64"))
    for name in ("frontend", "ttft", "total"):
        early[f"{name}_seconds"] += held
    (epoch,) = reckon(early, SlowRule()).epochs
    assert epoch.pause > 30.0


def test_a_restart_of_the_same_engine_changes_nothing() -> None:
    assert reckon(restarted(ENGINE, ENGINE), SlowRule()).epochs == ()


def test_a_slow_engine_without_a_pause_stays_one_engine() -> None:
    slow = replace(ENGINE, slow_from=60.0, slow_until=1e9, slow_by=2.0)
    found = Diagnosis(whole(played(usual(0.8), slow)))
    assert found.reckoning.epochs == ()
    assert [one.kind for one in found.suspects if one.accused] == ["engine"]


def test_pauses_of_an_idle_engine_are_no_restarts() -> None:
    times = np.cumsum(np.random.default_rng(3).exponential(12.0, 200))
    rows = [(float(at), "ash", 400, 0, 60) for at in times]
    slow = replace(ENGINE, slow_from=float(times[100]), slow_until=1e9, slow_by=2.0)
    (work,) = works(played(rows, slow))
    parts, epochs = parted(work)
    assert (len(parts), epochs) == (1, [])
