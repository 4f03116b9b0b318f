"""On a real GPU: ``pytest -m gpu``. Elsewhere it is skipped and says why."""

from __future__ import annotations

import pytest

from tailscope.exporter.health import SourceError
from tests.gpu import check as live

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found() -> live.Check:
    """What the checks found."""
    try:
        return live.run(quick=True)
    except SourceError as error:
        pytest.skip(f"no real GPU here: {error}")


def _need(values: dict[str, float], what: str) -> dict[str, float]:
    if not values:
        pytest.skip(f"{what} was not measured: see the output")
    return values


def test_activity_rises_under_load(found: live.Check) -> None:
    compute, memory = _need(found.compute, "compute load"), _need(found.memory, "memory load")
    if "sm_active" not in compute:
        pytest.skip("this GPU has no GPM")
    assert compute["sm_active"] > 0.5 > found.idle["sm_active"]
    assert compute["tensor_active"] > 0.3 > memory["tensor_active"]
    assert memory["dram_active"] > 0.6 > found.idle["dram_active"]


@pytest.mark.parametrize("kind", ["compute", "memory"])
def test_it_agrees_with_nvidia_smi(found: live.Check, kind: str) -> None:
    theirs = _need(found.smi.get(kind, {}), "nvidia-smi")
    ours = getattr(found, kind)
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, abs=0.1), name


def test_calls_are_quick(found: live.Check) -> None:
    """A read of one GPU has to fit its interval many times over."""
    opening = {"nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex", "nvmlEventSetWait"}
    slow = {
        name: max(times)
        for name, times in found.latency.items()
        if name not in opening and max(times) > 100
    }
    assert not slow
