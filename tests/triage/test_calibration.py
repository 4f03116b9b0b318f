"""Calibration finds the engine that made the records."""

from __future__ import annotations

import pytest

from tailscope.triage.calibration import calibrate, most
from tailscope.triage.replay import fidelity
from tailscope.triage.step import Scheduler
from tailscope.triage.study import costing
from tailscope.triage.work import works
from tests.simulated.engine import Machine
from tests.simulated.scenario import scenario


@pytest.mark.parametrize("prompts_first", [False, True])
def test_finds_costs_limits_and_scheduler(prompts_first: bool) -> None:
    machine = Machine(sequences=16, budget=1024, prompts_first=prompts_first)
    frame = scenario("longprompt", 7, span=60.0, machine=machine, removals=False).frame
    work = works(frame)[0]
    found = costing(work)
    engine = calibrate(work, found.cost)
    near = fidelity(work, engine, found.excess > 1.0)
    assert near.passed
    assert near.loss < 0.05
    expected = Scheduler.PREFILL_FIRST if prompts_first else Scheduler.MIXED
    assert engine.limits.scheduler is expected
    assert engine.cost.floor == pytest.approx(machine.floor, rel=0.1)
    assert engine.cost.per_prefill == pytest.approx(machine.per_prompt, rel=0.15)
    assert most(work) in (16, 17)
