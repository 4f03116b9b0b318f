"""The event simulator against an engine that plays every step by hand."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from tailscope.triage.simulator import Load, simulate
from tailscope.triage.step import Limits, Scheduler, StepCost
from tests.simulated.engine import Machine, Request, play

MACHINE = Machine(sequences=12, budget=512, blocks=100_000)


def _requests(seed: int, count: int = 150, rate: float = 6.0) -> list[Request]:
    random = np.random.default_rng(seed)
    arrived = np.cumsum(random.exponential(1 / rate, count))
    inputs = random.integers(1, 3000, count)
    cached = (inputs * random.choice([0.0, 0.5], count)).astype(int)
    outputs = random.integers(1, 200, count)
    return [
        Request(i, "t", float(arrived[i]), int(inputs[i]), int(cached[i]), int(outputs[i]))
        for i in range(count)
    ]


def _load(requests: list[Request]) -> Load:
    return Load(
        arrived=[r.arrived for r in requests],
        computed=[r.input - r.cached for r in requests],
        cached=[r.cached for r in requests],
        output=[r.output for r in requests],
    )


def _cost(machine: Machine) -> StepCost:
    return StepCost(
        machine.floor,
        machine.fixed,
        machine.per_prompt,
        machine.per_decode,
        machine.per_read,
        machine.per_pair,
    )


@pytest.mark.parametrize("prompts_first", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_same_times_as_step_by_step(seed: int, prompts_first: bool) -> None:
    machine = replace(MACHINE, prompts_first=prompts_first)
    requests = _requests(seed)
    truth = copy.deepcopy(requests)
    play(truth, machine, seed)
    scheduler = Scheduler.PREFILL_FIRST if prompts_first else Scheduler.MIXED
    limits = Limits(machine.sequences, machine.budget, scheduler=scheduler)
    found = simulate(_load(requests), _cost(machine), limits)
    # One of them counts a token more as read in each step, so that a decision may fall otherwise.
    total = sum(r.done - r.arrived for r in truth)
    assert np.abs(found.first - [r.first for r in truth]).sum() < 0.002 * total
    assert np.abs(found.done - [r.done for r in truth]).sum() < 0.002 * total


@pytest.mark.parametrize("prompts_first", [False, True])
def test_exactly_the_same_times_where_reads_are_free(prompts_first: bool) -> None:
    machine = replace(MACHINE, prompts_first=prompts_first, per_read=0.0)
    requests = _requests(4)
    truth = copy.deepcopy(requests)
    play(truth, machine, 4)
    scheduler = Scheduler.PREFILL_FIRST if prompts_first else Scheduler.MIXED
    limits = Limits(machine.sequences, machine.budget, scheduler=scheduler)
    found = simulate(_load(requests), _cost(machine), limits)
    assert np.allclose(found.first, [r.first for r in truth], rtol=0, atol=1e-6)
    assert np.allclose(found.done, [r.done for r in truth], rtol=0, atol=1e-6)


def test_a_full_cache_takes_places_away_and_still_ends() -> None:
    requests = _requests(5, count=80, rate=20.0)
    limits = Limits(sequences=32, tokens=512, cache=6000)
    found = simulate(_load(requests), _cost(MACHINE), limits)
    assert found.preemptions > 0
    assert np.isfinite(found.done).all()
    free = simulate(_load(requests), _cost(MACHINE), Limits(sequences=32, tokens=512))
    assert found.done.sum() > free.done.sum()


def test_cap_holds_a_group_back_and_nobody_else() -> None:
    requests = _requests(6, count=60, rate=30.0)
    group = [i % 2 for i in range(60)]
    load = replace(_load(requests), group=group, caps={1: 1})
    found = simulate(load, _cost(MACHINE), Limits(sequences=12, tokens=512))
    plain = simulate(_load(requests), _cost(MACHINE), Limits(sequences=12, tokens=512))
    capped = np.array(group) == 1
    assert (found.start - plain.start)[~capped].mean() < 0
    assert (found.start - plain.start)[capped].mean() > 0
    for begin, end in zip(found.start[capped], found.done[capped], strict=True):
        others = (found.start[capped] < begin) & (found.done[capped] > begin + 1e-9)
        assert not others.any(), (begin, end)


def test_patience_ends_a_wait() -> None:
    requests = _requests(7, count=100, rate=50.0)
    load = replace(_load(requests), patience=1.0)
    found = simulate(load, _cost(MACHINE), Limits(sequences=4, tokens=512))
    gone = np.isnan(found.start)
    assert gone.any()
    arrived = np.array(load.arrived)
    assert (found.start[~gone] - arrived[~gone] <= 1.0 + 1e-9).all()
    assert np.isnan(found.done[gone]).all()


def test_nothing_to_play() -> None:
    found = simulate(Load([], [], [], []), _cost(MACHINE), Limits())
    assert len(found.done) == 0
