"""Fixes and capacity: the play says what the real engine does after the change."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from tailscope.triage.calibration import Engine
from tailscope.triage.capacity import capacity, grown
from tailscope.triage.cause import Cause, explain
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.fixes import fixes, play
from tailscope.triage.outside import Outside
from tailscope.triage.recipes import at_hand, batch, queue_timeout
from tailscope.triage.replay import Fidelity
from tailscope.triage.simulator import Load, simulate
from tailscope.triage.stagetimes import Stages
from tailscope.triage.step import HEALTHY, UNLIMITED, Limits, StepCost
from tailscope.triage.study import Study
from tailscope.triage.suspects import OUTSIDE, ranked
from tailscope.triage.trials import Case, trials
from tailscope.triage.verdict import Attribution, attribute
from tailscope.triage.work import Work
from tests.simulated.engine import Machine, Request
from tests.simulated.engine import play as step_by_step
from tests.simulated.scenario import scenario

MACHINE = Machine(sequences=16, budget=1024)


@pytest.fixture(scope="module")
def found() -> Attribution:
    made = scenario("longprompt", 51, span=90.0, machine=MACHINE, removals=False)
    return attribute(made.frame)


@pytest.fixture(scope="module")
def case(found: Attribution) -> Case:
    one = found.studies[0]
    suspect = found.suspects[0]
    assert suspect.accused
    engine = _engine(one)
    return Case(one.work, engine, one.work.tenants.index(suspect.name), suspect.change)


def _engine(one: Study):  # type: ignore[no-untyped-def]
    assert one.engine is not None
    assert one.fidelity is not None
    assert one.fidelity.passed
    return one.engine


def test_separating_the_culprit_helps_most_and_the_price_is_shown(
    found: Attribution, case: Case
) -> None:
    near = found.studies[0].fidelity
    assert near is not None
    helpful = fixes(case, near)
    assert helpful[0].gain > 0.3
    assert helpful[0].helps
    assert not helpful[-1].helps
    assert "separate" in [fix.name for fix in helpful]
    gains = [fix.gain for fix in helpful]
    assert gains == sorted(gains, reverse=True)


def test_nothing_is_recommended_without_a_faithful_play(case: Case) -> None:
    assert fixes(case, Fidelity(loss=0.5, ratio=1.0)) == []
    assert capacity(case.work, case.engine, Fidelity(loss=0.05, ratio=2.0)) is None


@pytest.mark.parametrize("name", ["step_tokens_256", "step_tokens_512", "batch_8", "separate"])
def test_prediction_has_the_sign_and_size_of_the_real_change(case: Case, name: str) -> None:
    trial = next(one for one in trials(case) if one.name == name)
    told = play(case, trial)
    work = case.work
    machine = replace(
        MACHINE,
        budget=min(trial.limits.tokens, MACHINE.budget) if "tokens" in name else MACHINE.budget,
        sequences=8 if name == "batch_8" else MACHINE.sequences,
    )
    before, after = _real(case, MACHINE, everybody=True), _real(case, machine, name != "separate")
    victims = ~case.suspected
    real = np.quantile(after[victims], 0.99) / np.quantile(before[victims], 0.99) - 1
    assert np.sign(-told.gain) == np.sign(real) or abs(real + told.gain) < 0.05
    assert abs(-told.gain - real) < 0.15
    assert len(work) == len(before)


def _real(case: Case, machine: Machine, everybody: bool) -> np.ndarray:
    work = case.work
    rows = np.arange(len(work)) if everybody else np.flatnonzero(~case.suspected)
    requests = [
        Request(
            int(i),
            "t",
            float(work.arrived[i]),
            int(work.context[i]),
            int(work.cached[i]),
            int(work.output[i]),
        )
        for i in rows
    ]
    played = copy.deepcopy(requests)
    step_by_step(played, machine, 1)
    seconds = np.full(len(work), np.nan)
    seconds[rows] = [r.done - r.arrived for r in played]
    return seconds


def test_a_second_engine_and_a_second_try_are_played(case: Case) -> None:
    case = replace(case, replicas=2)
    found = {trial.name: play(case, trial) for trial in trials(case)}
    # Half of the load each: no request can be much slower, and the queue is gone.
    assert found["replica"].gain > 0.3
    hedged = found["hedging"]
    assert hedged.after.p99 < hedged.before.p99 * 1.2
    assert not any(trial.name == "hedging" for trial in trials(replace(case, replicas=1)))


def test_one_engine_more_takes_its_share_from_each_of_those_there_are(case: Case) -> None:
    for count in (1, 3):
        more = next(one for one in trials(replace(case, replicas=count)) if one.name == "replica")
        left = len(case.work) - int(more.kept.sum())
        assert left == len(case.work) // (count + 1)
        assert ("to the 3 there are" in more.change) == (count == 3)


def test_caps_let_what_the_others_usually_send_pass(case: Case) -> None:
    found = {trial.name: trial for trial in trials(case)}
    refused = found["input_cap"]
    assert not (refused.kept & (case.work.context > 4096)).any()
    assert refused.cut == int(refused.paying.sum()) == int((~refused.kept).sum())
    # Where everybody sends long prompts, a cap is no lower than these.
    longer = replace(case.work, computed=case.work.computed + 20_000.0)
    cap = {one.name: one for one in trials(replace(case, work=longer))}.get("input_cap")
    others = ~case.suspected
    assert cap is None or int((cap.paying & others).sum()) <= 0.1 * int(others.sum())


def test_those_who_give_up_are_no_gain(case: Case) -> None:
    trial = next(one for one in trials(case) if one.name == "queue_timeout")
    fix = play(case, trial)
    assert fix.lost > 0
    # They are who pays: their waits are gone from both sides, and they have no seconds after.
    assert fix.payers_before is not None
    assert fix.payers_before.p50 > trial.sent.patience
    assert fix.payers_after is None
    served = case.engine.play.done - case.work.arrived
    assert fix.before.p99 <= np.quantile(served, 1.0)
    assert fix.gain <= 1.0 - 1.0 / max(fix.before.p99, 1.0)


def test_texts_do_what_was_played(case: Case) -> None:
    found = {trial.name: trial for trial in trials(case)}
    # A gateway counts the queue and the prefill, too: its timeout may not be shorter than these.
    decode = case.engine.play.done - case.engine.play.first
    whole = float(found["generation_timeout"].config["litellm"].split()[1])
    assert whole > np.quantile(decode, 0.98)
    assert "429" in found["tenant_cap"].config["litellm"]
    assert "preemption-threshold" in found["short_first"].config["sglang"]
    wider = next(one for name, one in found.items() if name.startswith("wider_batch_"))
    assert "cache then has to hold" in wider.change
    assert wider.limits.sequences == 2 * case.engine.limits.sequences


def test_the_suspect_is_one_of_this_engine() -> None:
    one = scenario("longprompt", 51, span=90.0, machine=MACHINE, removals=False).frame
    calm = scenario("steady", 52, span=60.0, machine=MACHINE, removals=False).frame
    calm = calm.assign(server="calm:8000", tenant="only here")
    diagnosis = Diagnosis(
        pd.concat([calm, one], ignore_index=True).assign(session=None, engine="vllm")
    )
    named = [graded.fix for graded in diagnosis.tried if graded.fix.name == "separate"]
    assert named
    assert "only here" not in named[0].change
    assert {graded.server for graded in diagnosis.tried} == {"sim:8000"}


def test_timeouts_are_in_two_layers_and_say_who_is_cut(case: Case) -> None:
    found = {trial.name: trial for trial in trials(case)}
    assert found["queue_timeout"].sent.patience < 1e6
    cut = found["generation_timeout"]
    assert cut.cut == int(cut.paying.sum()) > 0
    assert sum(cut.sent.output) < sum(case.sent.output)
    assert play(case, found["queue_timeout"]).lost > 0


def test_second_attempts_that_are_not_sent_are_a_fix(case: Case) -> None:
    assert not any(trial.name == "no_retries" for trial in trials(case))
    again = replace(case, repeated=case.suspected)
    fix = play(again, next(trial for trial in trials(again) if trial.name == "no_retries"))
    assert fix.gain > 0.3
    assert fix.payers_after is None


def test_settings_are_for_the_engine_at_hand() -> None:
    assert at_hand(batch(8), {"sglang"}) == {"sglang": "--max-running-requests 8"}
    assert at_hand(batch(8), set()).keys() == {"vllm", "sglang", "trtllm", "llamacpp"}
    assert at_hand(queue_timeout(2.0, 0.5), {"vllm"}).keys() == {"litellm", "gateway"}


def test_more_load_is_never_faster_and_has_a_knee(found: Attribution, case: Case) -> None:
    near = found.studies[0].fidelity
    assert near is not None
    usual = capacity(case.work, case.engine, near, objective=1e6)
    assert usual is not None
    tails = [point.p95 for point in usual.points]
    assert all(after >= 0.95 * before for before, after in pairwise(tails))
    assert usual.headroom == usual.points[-1].factor
    one = capacity(case.work, case.engine, near, tenant=0, factors=(1.0, 1.5, 2.0))
    assert one is not None
    assert one.points[0].p95 == usual.points[0].p95
    assert one.points[-1].p95 >= one.points[0].p95


def test_one_tenants_load_grows_by_what_is_asked(case: Case) -> None:
    own = int((case.work.tenant == 0).sum())
    for factor in (1.0, 1.25, 1.75, 2.0, 2.6):
        _, arrived = grown(case.work, factor, 0)
        assert len(arrived) - len(case.work) == pytest.approx((factor - 1.0) * own, abs=1.0)
        assert (np.diff(arrived) >= 0).all()


def test_capacity_says_what_it_cannot_know() -> None:
    near = Fidelity(0.0, 1.0)
    # Arrivals of one size, far apart: the records hold no batch of two.
    idle = _regular(gap=3.0)
    calm = capacity(idle.work, idle.engine, near)
    assert calm is not None
    assert not calm.saturated
    assert calm.seen is not None
    assert calm.seen < calm.points[-1].factor
    # Three times what the engine serves: beyond the knee already.
    busy = _regular(gap=0.02)
    full = capacity(busy.work, busy.engine, near, objective=1.0)
    assert full is not None
    assert full.saturated
    assert full.knee is None
    assert full.headroom == 0.0
    assert full.seen is None


def _regular(gap: float) -> Case:
    """A hundred requests of one size, played on an engine of four places."""
    cost = StepCost(0.01, 0.002, 50e-6, 50e-6, 0.0, 0.0)
    limits = Limits(sequences=4 if gap < 1.0 else UNLIMITED, tokens=2048)
    arrived = np.arange(100, dtype=np.float64) * gap
    sent = Load(arrived.tolist(), [400] * 100, [0] * 100, [100] * 100)
    found = simulate(sent, cost, limits)
    zeros, ones = np.zeros(100), np.ones(100)
    work = Work(
        server="sim:8000",
        model="",
        rows=np.arange(100),
        tenants=("a",),
        tenant=np.zeros(100, dtype=np.int64),
        arrived=arrived,
        frontend=zeros,
        queue=found.start - arrived,
        prefill=found.first - found.start,
        decode=found.done - found.first,
        computed=400 * ones,
        cached=zeros,
        output=100 * ones,
        limit=100 * ones,
        censored=zeros.astype(bool),
        stages=Stages.MEASURED,
        measured=ones.astype(bool),
    )
    return Case(work, Engine(cost, limits, HEALTHY, 0.0, 0.0, found))


def test_the_cause_names_the_tenant_and_what_it_did(found: Attribution) -> None:
    told = explain(found, ranked(found, 0, (), None))
    assert told is not None
    assert told.cause is Cause.TENANT
    assert told.suspect is found.suspects[0]
    assert "prompts" in told.evidence[0].fact
    assert 0.3 < told.share <= 1.05


def test_what_clients_lost_elsewhere_is_not_the_engines(found: Attribution) -> None:
    elsewhere = Outside(100, 0.01, 10 * found.excess_seconds, found.excess_seconds)
    suspects = ranked(found, 0, (), elsewhere)
    told = explain(found, suspects)
    assert told is not None
    assert told.cause is Cause.OUTSIDE
    assert suspects[0].name == OUTSIDE
    little = Outside(100, 0.01, 0.1 * found.excess_seconds, found.excess_seconds)
    assert not ranked(found, 0, (), little)[-1].accused
