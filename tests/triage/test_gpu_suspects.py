"""A slow engine beside a GPU in trouble: the GPU is named only if both were at the same time."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pandas as pd
import pytest

from tailscope.triage.cause import Cause
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.gpu import examine
from tailscope.triage.hardware import Gpu
from tests.gpusamples import BUSY, SECOND, Board, Curve, of, rising, steady
from tests.simulated.scenario import START_NS
from tests.test_triage_gpu import frame as sampled
from tests.triage.test_incidents import ENGINE, played, usual, whole

SLOW = replace(ENGINE, slow_from=35.0, slow_until=60.0, slow_by=2.5)


@lru_cache(maxsize=2)
def requests(slow: bool) -> pd.DataFrame:
    return whole(played(usual(0.8 if slow else 1.8), SLOW if slow else ENGINE))


def bound(begin: int, end: int) -> tuple[Gpu, ...]:
    """One GPU whose memory is near its limit between two seconds of the records."""

    def dram(second: int) -> float:
        return 0.85 if 30 + begin <= second < 30 + end else 0.3

    curves = {of("dram_active_ratio"): dram, of("tensor_active_ratio"): steady(0.1)}
    samples = Board(0, {**BUSY, **curves}).samples(START_NS - 30 * SECOND, 130)
    return examine(sampled(samples), START_NS, START_NS + 95 * SECOND)


def gpus(curve: Curve | None) -> tuple[Gpu, ...]:
    """One GPU, held down by heat as the curve of its counter says."""
    more = {of("throttled_seconds_total", reason="hw_thermal"): curve} if curve else {}
    samples = Board(0, {**BUSY, **more}).samples(START_NS - 30 * SECOND, 130)
    return examine(sampled(samples), START_NS, START_NS + 95 * SECOND)


def test_heat_while_the_engine_is_slow_is_the_cause() -> None:
    found = Diagnosis(requests(slow=True), gpus=gpus(rising(30 + 34, 30 + 61)))
    accused = {one.kind: one for one in found.suspects if one.accused}
    assert accused.keys() == {"engine", "gpu"}
    assert accused["gpu"].name == "GPU 0"
    assert accused["gpu"].ledger_share > 0.5
    cause = found.cause
    assert cause is not None
    assert cause.cause is Cause.GPU
    assert "GPU 0 was in trouble while the engine was slow" in found.verdict
    assert found.verdict.endswith("Grade C.")  # which GPU served a request is not recorded


@pytest.mark.parametrize("curve", [None, rising(30 + 75, 30 + 90)])
def test_heat_at_another_time_or_none_leaves_the_engine(curve: Curve | None) -> None:
    found = Diagnosis(requests(slow=True), gpus=gpus(curve))
    assert [one.kind for one in found.suspects if one.accused] == ["engine"]
    cause = found.cause
    assert cause is not None
    assert cause.cause is Cause.ENGINE


def test_heat_that_slows_nothing_is_no_cause() -> None:
    found = Diagnosis(requests(slow=False), gpus=gpus(rising(30, 120)))
    assert found.finding.slow.requests > 0
    assert [one.kind for one in found.suspects if one.accused] == []
    for one in found.suspects:
        if one.kind == "gpu":
            assert one.ledger_seconds == 0.0
            assert "no engine was slower" in one.spared


def test_bandwidth_that_goes_with_a_slow_engine_is_a_suspect_and_its_cause() -> None:
    found = Diagnosis(requests(slow=True), gpus=bound(34, 61))
    accused = {one.kind: one for one in found.suspects if one.accused}
    assert accused.keys() == {"engine", "gpu"}
    assert accused["gpu"].grade == "C"
    assert "while the engine was slow" in found.verdict
    assert "memory's cycles" in found.sentence


@pytest.mark.parametrize("stretch", [(0, 95), (70, 90)])
def test_bandwidth_all_the_time_or_at_another_is_no_cause(stretch: tuple[int, int]) -> None:
    found = Diagnosis(requests(slow=True), gpus=bound(*stretch))
    assert [one.kind for one in found.suspects if one.accused] == ["engine"]


def test_bandwidth_of_a_full_engine_accuses_nobody() -> None:
    rows = requests(slow=False)
    late = Diagnosis(rows).reckoning
    when = (rows["arrived_ns"].to_numpy()[late.slow] - START_NS) / 1e9
    found = Diagnosis(rows, gpus=bound(int(when.min()), int(when.max()) + 2))
    assert [one for one in found.suspects if one.accused] == []
