"""Incidents from public reports, played on the simulated engine: what the triage must say of each.

The names are those of the reports. What they have in common with the play is the mechanism, not the
numbers.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailscope.records.reader import join_records
from tailscope.records.record import COLUMNS
from tailscope.triage import offline
from tailscope.triage.cause import Cause
from tailscope.triage.diagnosis import Diagnosis, Options
from tailscope.triage.verdict import Attribution, attribute
from tests.simulated.engine import Machine, Request, play
from tests.simulated.scenario import to_frame

ENGINE = Machine(sequences=32, budget=2048)
PROMPTS_FIRST = replace(ENGINE, prompts_first=True)

One = tuple[float, str, int, int, int]
"""Arrival in seconds, tenant, prompt tokens, cached ones, answer tokens."""


def stream(
    tenant: str,
    rate: float,
    prompt: int,
    answer: int,
    *,
    begin: float = 0.0,
    end: float = 90.0,
    cached: float = 0.0,
    seed: int = 0,
) -> list[One]:
    """Requests of one tenant at random times, of nearly one size."""
    random = np.random.default_rng([seed, len(tenant), prompt])
    times = np.sort(random.uniform(begin, end, max(round(rate * (end - begin)), 1)))
    sizes = random.uniform(0.7, 1.3, (2, len(times)))
    return [
        (float(at), tenant, int(prompt * p), int(prompt * p * cached), max(int(answer * a), 2))
        for at, p, a in zip(times, *sizes, strict=True)
    ]


def usual(load: float = 1.0) -> list[One]:
    """Three tenants that ask for about a third of the engine together."""
    return [
        *stream("ash", 2.0 * load, 400, 80, seed=1),
        *stream("birch", 1.0 * load, 600, 100, seed=2),
        *stream("cedar", 0.6 * load, 300, 160, seed=3),
    ]


def played(rows: list[One], machine: Machine = ENGINE, server: str = "sim:8000") -> pd.DataFrame:
    """The records of an engine that was sent these."""
    rows = sorted(rows)
    requests = [Request(i, who, at, n, c, m) for i, (at, who, n, c, m) in enumerate(rows)]
    fresh = copy.deepcopy(requests)
    play(fresh, machine, 1)
    return to_frame(fresh, server)


def told(rows: list[One], machine: Machine = ENGINE) -> Attribution:
    """The attribution, without a replay."""
    return attribute(played(rows, machine), replay=False)


def whole(frame: pd.DataFrame) -> pd.DataFrame:
    """Records with every column that a reader gives, as it gives them."""
    usual_columns = join_records([])
    full = frame.reindex(columns=usual_columns.columns)
    return full.astype({name: usual_columns[name].dtype for name in usual_columns.columns})


def mechanism(found: Attribution) -> str:
    return max(found.mechanisms, key=lambda name: found.mechanisms[name])


def test_vllm_10235_few_large_prompts_among_many_small_ones() -> None:
    large = stream("large", 1.0, 24_000, 60, begin=40, end=55)
    found = told([*usual(), *stream("large", 0.1, 500, 60), *large])
    assert [one.name for one in found.accused] == ["large"]
    assert "large" not in [one.name for one in found.suspects[1:]]


def test_vllm_21495_short_requests_behind_one_prompt_of_128k() -> None:
    found = told([*usual(), (45.0, "long", 128_000, 0, 50)], PROMPTS_FIRST)
    assert found.suspects[0].name == "long"
    assert found.suspects[0].ledger_share > 0.7
    # One request has no past that it could have left.
    assert found.accused == ()
    assert "too few requests" in found.suspects[0].spared


def test_vllm_11893_generations_crawl_while_a_huge_prompt_is_computed() -> None:
    talks = [(1.0 + k / 10, f"talk-{k % 3}", 100, 0, 1500) for k in range(12)]
    huge = [(20.0 + 2 * k, "huge", 30_000, 0, 4) for k in range(8)]
    found = told([*talks, *stream("ash", 2.0, 60, 60, end=60), *huge])
    assert found.suspects[0].name == "huge"
    assert mechanism(found) == "interference"
    assert found.stages["decode"] > 0.7 * found.excess_seconds


def test_freetoken_483_a_prefill_of_200k_holds_one_stream_for_its_whole_length() -> None:
    victim = [(float(3 * k), "victim", 50, 0, 200) for k in range(30)]
    found = told([*victim, (30.0, "attacker", 200_000, 0, 10)], PROMPTS_FIRST)
    first = found.suspects[0]
    assert first.name == "attacker"
    assert first.ledger_share > 0.8


def test_sglang_22831_requests_that_fill_the_cache_hold_all_others_back() -> None:
    machine = replace(ENGINE, blocks=6000)
    hog = stream("hog", 1.5, 20_000, 300, begin=40, end=52, cached=0.8)
    found = told([*usual(), *stream("hog", 0.1, 500, 60), *hog], machine)
    assert found.suspects[0].name == "hog"
    assert mechanism(found) == "queue"
    assert [one.name for one in found.accused] == ["hog"]


def test_vllm_33499_the_fix_that_moves_the_harm_shows_both_sides() -> None:
    large = stream("large", 1.2, 16_000, 60, begin=40, end=52)
    found = Diagnosis(whole(played([*usual(), *stream("large", 0.1, 500, 60), *large])))
    fixes = {one.fix.name: one.fix for one in found.fixes}
    short = fixes["short_first"]
    assert short.after.p99 < short.before.p99
    assert short.payers_before is not None
    assert short.payers_after is not None
    assert short.payers_after.p99 > 0.9 * short.payers_before.p99


def test_sglang_26248_an_engine_that_never_recovers_is_no_tenants_doing() -> None:
    machine = replace(ENGINE, slow_from=60.0, slow_until=1e9, slow_by=4.0)
    found = Diagnosis(whole(played(usual(0.8), machine)))
    assert [one.kind for one in found.suspects if one.accused] == ["engine"]
    cause = found.cause
    assert cause is not None
    assert cause.cause is Cause.ENGINE
    assert any("still so at the end" in one.fact for one in cause.evidence)


def test_inference_sim_963_a_healthy_engine_that_preempts_has_no_culprit() -> None:
    found = told(usual(1.6), replace(ENGINE, blocks=1200))
    assert found.accused == ()


def test_sglang_21199_and_vllm_177_the_replica_that_got_all_the_load_is_named() -> None:
    hot = played([*usual(1.8), *stream("ash", 4.0, 800, 120, begin=30, end=60)], server="hot:1")
    idle = played(usual(0.2), server="idle:1")
    found = attribute(pd.concat([hot, idle], ignore_index=True), replay=False)
    assert found.studies[0].work.server == "hot:1"
    # Whatever ran on the other engine is owed nothing.
    assert sum(part.book.owed.sum() for part in found.studies[1:]) < 0.05 * found.excess_seconds


@pytest.mark.parametrize("report", ["sglang_35129", "mooncake_3317", "qwen38_52"])
def test_prompts_that_are_no_longer_in_the_cache(report: str) -> None:
    seed = len(report)
    warm = stream("cached", 1.5, 6000, 60, end=40, cached=0.9, seed=seed)
    cold = stream("cached", 1.5, 6000, 60, begin=40, end=62, seed=seed)
    after = stream("cached", 1.5, 6000, 60, begin=62, cached=0.9, seed=seed)
    found = Diagnosis(whole(played([*usual(), *warm, *cold, *after])))
    assert [one.name for one in found.quick.accused] == ["cached"]
    cause = found.cause
    assert cause is not None
    assert cause.cause is Cause.CACHE


def test_llm_d_batch_491_offline_work_is_worth_moving_where_it_contends() -> None:
    jobs = stream("jobs", 4.0, 2500, 100, begin=30, end=60, seed=5)
    busy = told([*usual(), *jobs])
    crowded = offline.relief(list(busy.studies), {"jobs"})["jobs"]
    assert crowded.seconds > 0.5 * crowded.excess
    calm = told([*usual(2.2), *stream("jobs", 0.15, 500, 40, seed=5)])
    roomy = offline.relief(list(calm.studies), {"jobs"})["jobs"]
    assert roomy.seconds < 0.3 * max(roomy.excess, 1e-9)


@pytest.mark.parametrize("report", ["llm_d_autoscaling_1421", "llm_d_router_1109", "miaai_glm_166"])
def test_time_before_the_engine_is_not_blamed_on_it(report: str) -> None:
    frame = played(usual())
    held = (frame["arrived_ns"] - frame["arrived_ns"].min()) / 1e9
    waiting = np.where((held > 40) & (held < 60), 20.0, 0.02)
    frame = frame.assign(client_seconds=frame["total_seconds"] + waiting)
    found = Diagnosis(whole(frame))
    assert found.suspects[0].kind == "outside"
    assert found.suspects[0].accused
    cause = found.cause
    assert cause is not None
    assert cause.cause is Cause.OUTSIDE
    assert "outside of the engine" in found.verdict
    assert report


def test_rocm_6347_two_engines_of_different_speed_have_no_culprit() -> None:
    fast = played(usual(), server="fast:1")
    slow = played(usual(), replace(ENGINE, floor=0.012, fixed=0.004), server="slow:1")
    assert attribute(pd.concat([fast, slow], ignore_index=True), replay=False).accused == ()


def test_tensorrt_llm_17429_another_process_on_the_gpu_is_no_tenant() -> None:
    machine = replace(ENGINE, slow_from=35.0, slow_until=55.0, slow_by=3.0)
    found = told(usual(0.8), machine)
    assert [one.kind for one in found.accused] == ["engine"]


def test_inference_sim_818_arrivals_in_bursts_are_queueing_without_a_culprit() -> None:
    random = np.random.default_rng(4)
    rows = []
    for place, tenant in enumerate(("ash", "birch", "cedar", "elm")):
        gaps = random.gamma(1 / 9, 9 / 1.5, 400)
        times = np.cumsum(gaps)
        rows += [(float(at), tenant, 500 + place, 0, 90) for at in times[times < 90]]
    assert told(rows).accused == ()


def test_vllm_42484_an_engine_that_ages_is_not_blamed_on_a_tenant() -> None:
    rows = usual()
    frames = []
    for part in range(6):
        begin, end = 15.0 * part, 15.0 * (part + 1)
        machine = replace(ENGINE, floor=0.008 * (1 + 0.3 * part))
        frames.append(played([one for one in rows if begin <= one[0] < end], machine))
    found = attribute(pd.concat(frames, ignore_index=True), replay=False)
    assert not [one for one in found.accused if one.kind == "tenant"]


def test_every_column_of_a_record_is_there() -> None:
    assert set(COLUMNS) <= set(whole(played(usual(0.2))).columns)
    assert Diagnosis(whole(played(usual(0.2))), Options()).finding.window.requests > 0
