"""GPM: the value is the true mean over our own interval, or it is not there."""

from __future__ import annotations

import pytest

from tests.fakenvml.fixtures import Start, fake, start
from tests.fakenvml.rig import UUID, Rig

__all__ = ["fake", "start"]

SM, DRAM = "gpu_sm_active_ratio", "gpu_dram_active_ratio"


def test_the_first_read_gives_nothing(start: Start) -> None:
    rig = start()
    rig.read()
    page = rig.page()
    assert page.get("gpu_up") == 1
    assert page.get("gpu_power_watts") == 632
    assert page.get(SM) is None
    rig.tick()
    assert rig.page().get(SM) == 0.8825


def test_the_mean_of_the_whole_interval(start: Start) -> None:
    rig = start(gpu0__gpm__2=80)
    rig.read()
    rig.turn(0.25, gpu0__gpm__2=0)  # 80 % for a quarter of the interval
    rig.turn(0.5, gpu0__gpm__2=100)  # nothing for half of it
    rig.tick(0.25)  # 100 % for the last quarter
    assert rig.page().get(SM) == pytest.approx(0.25 * 0.8 + 0.25 * 1.0)


def test_a_burst_of_a_second_is_seen_at_a_scrape_every_30(start: Start) -> None:
    rig = start(gpu0__gpm__2=0, gpu0__gpm__10=0, gpu0__util=0)
    rig.read()
    rig.tick()
    before = rig.page()
    for second in range(30):
        busy = second == 17
        rig.change(gpu0__gpm__2=90 if busy else 0, gpu0__gpm__10=60 if busy else 0)
        rig.tick()
    after = rig.page()
    assert after.get(SM) == 0  # the gauge has forgotten it

    def grown(name: str, **labels: str) -> float:
        return (after.get(name, **labels) or 0) - (before.get(name, **labels) or 0)

    assert grown("gpu_sm_active_seconds_total") == pytest.approx(0.9)
    assert grown("gpu_dram_active_seconds_total") == pytest.approx(0.6)
    assert grown("gpu_sm_active_ratio_sampled_count") == 30
    assert grown("gpu_sm_active_ratio_sampled_bucket", le="0.8") == 29


def test_samples_are_taken_in_turn(start: Start) -> None:
    rig = start(count=4)
    for _ in range(50):
        rig.tick()
    counts = rig.counts()
    assert counts["nvmlGpmSampleAlloc"] == 2 * 4
    assert counts["nvmlGpmSampleGet"] == 50 * 4
    assert counts["nvmlGpmMetricsGet"] == 49 * 4
    assert rig.end() == []
    assert rig.counts()["nvmlGpmSampleFree"] == 2 * 4


def test_gpus_are_not_mixed_up(start: Start) -> None:
    values = {f"gpu{index}__gpm__2": 10 + 10 * index for index in range(8)}
    rig = start(count=8, **values)
    for _ in range(3):
        rig.tick()
    page = rig.page()
    for index in range(8):
        assert page.get(SM, uuid=UUID.format(index)) == pytest.approx(0.1 + 0.1 * index)


def test_a_read_that_comes_at_once_keeps_the_answer(start: Start) -> None:
    rig = start(gpu0__gpm__2=50)
    rig.read()
    rig.tick()
    rig.clear()
    rig.change(gpu0__gpm__2=100)
    rig.tick(0.05)
    assert rig.page().get(SM) == 0.5
    assert rig.counts()["nvmlGpmMetricsGet"] == 0
    rig.tick(0.95)  # over the whole second, with the sample from before
    assert rig.page().get(SM) == pytest.approx(1)


def test_an_interval_below_a_second(start: Start) -> None:
    rig = start(interval=0.2, gpu0__gpm__2=50)
    for _ in range(3):
        rig.tick()
    rig.tick(gpu0__gpm__2=100)
    rig.tick()
    assert rig.page().get(SM) == pytest.approx(1)


def test_after_a_gap_it_begins_anew(start: Start) -> None:
    rig = start()
    rig.read()
    rig.tick(119)
    assert rig.page().get(SM) == 0.8825
    rig.tick(121)
    assert rig.page().get(SM) is None
    rig.tick()
    assert rig.page().get(SM) == 0.8825


@pytest.mark.parametrize("name", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_after_an_error_it_begins_anew(start: Start, name: str) -> None:
    rig = start(gpu0__gpm__2=20)
    rig.read()
    rig.tick()
    rig.tick(**{f"{name}__ret": 999, "gpu0__gpm__2": 40})
    page = rig.page()
    assert page.get(SM) is None
    assert page.get("gpu_power_watts") == 632
    assert page.get("gpu_call_errors_total", call=name, code="unknown_error") == 1
    rig.tick(**{f"{name}__ret": None})
    assert rig.page().get(SM) is None
    rig.tick()
    assert rig.page().get(SM) == 0.4


def test_after_a_reload_of_the_driver_it_begins_anew(start: Start) -> None:
    rig = start(count=2, gpu0__gpm__2=20)
    rig.read()
    rig.tick()
    rig.tick(epoch=1)
    page = rig.page()
    assert page.get("gpu_up", gpu="0") == 1
    assert page.get(SM, gpu="0") is None
    rig.tick()
    assert rig.page().get(SM, gpu="0") == 0.2
    calls = rig.calls()
    shutdown = calls.index("nvmlShutdown")
    freed = [place for place, call in enumerate(calls) if call == "nvmlGpmSampleFree"]
    assert len(freed) == 4
    assert max(freed) < shutdown  # before NVML is closed, for after it they cannot be


@pytest.mark.parametrize(
    ("value", "ours"),
    [(103, 1.0), (105, 1.0), (106, None), (-1, None), ("nan", None), ("inf", None), (0, 0.0)],
)
def test_ratios_that_cannot_be(start: Start, value: float | str, ours: float | None) -> None:
    rig = start(gpu0__gpm__2=value)
    rig.read()
    rig.tick()
    page = rig.page()
    assert page.get(SM) == (ours if ours is None else pytest.approx(ours))
    assert page.get(DRAM) == 0.71


def test_each_metric_has_its_own_error(start: Start) -> None:
    rig = start(gpu0__gpm__3__ret=3, gpu0__gpm__5__ret=999)
    rig.read()
    rig.tick()
    page = rig.page()
    assert page.get("gpu_sm_occupancy_ratio") is None
    assert page.get("gpu_tensor_active_ratio") is None
    assert page.get(SM) == 0.8825


def _stuck(rig: Rig, reads: int) -> list[float | None]:
    found = []
    for _ in range(reads):
        rig.tick()
        found.append(rig.page().get(SM))
    return found


def test_counters_that_stand_still_are_not_believed(start: Start) -> None:
    """After an XID GPM may say 0 without an error, while the GPU draws the power of a busy one."""
    rig = start(gpu0__gpm__2=0, gpu0__util=100, gpu0__power=600_000)
    rig.read()
    found = _stuck(rig, 16)
    assert found[:5] == [0] * 5
    assert None in found[5:7]  # began anew
    assert found[-3:] == [None] * 3  # and then no more
    assert rig.page().get("gpu_up") == 1
    rig.change(gpu0__gpm__2=70)
    rig.tick()
    assert rig.page().get(SM) == pytest.approx(0.7)


@pytest.mark.parametrize("state", [{"gpu0__power": 70_000}, {"gpu0__util": 3}])
def test_an_idle_gpu_is_believed(start: Start, state: dict[str, int]) -> None:
    """ "Utilisation" may be stuck at 100 % after a process was killed; the power tells."""
    rig = start(**{"gpu0__gpm__2": 0, "gpu0__util": 100, "gpu0__power": 600_000, **state})
    rig.read()
    assert _stuck(rig, 16) == [0] * 16


# MIG

SPLIT = {
    "gpu0__mig": 1,
    "gpu0__mig0__gi": 2,
    "gpu0__mig0__uuid": "MIG-a",
    "gpu0__mig0__name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    "gpu0__mig0__gpm__2": 30,
    "gpu0__mig0__used": 111,
    "gpu0__mig1__gi": 9,
    "gpu0__mig1__uuid": "MIG-b",
    "gpu0__mig1__name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "gpu0__mig1__gpm__2": 60,
    "gpu0__mig1__used": 222,
}


def test_instances_have_their_own_activity_and_memory(start: Start) -> None:
    rig = start(count=2, **SPLIT)
    rig.read()
    rig.tick()
    rig.tick()
    page = rig.page()
    a = {"uuid": UUID.format(0), "gi": "2", "profile": "3g.40gb"}
    b = {"uuid": UUID.format(0), "gi": "9", "profile": "1g.10gb"}
    assert (page.get(SM, **a), page.get(SM, **b)) == (0.3, 0.6)
    assert page.get("gpu_memory_used_bytes", **a) == 111
    assert page.get("gpu_memory_used_bytes", **b) == 222
    assert page.get("gpu_sm_active_seconds_total", **b) == pytest.approx(0.6)
    # Board readings once, on the board; what NVML does not have of it is not there.
    assert [s.labels["gi"] for s in page.all("gpu_power_watts", gpu="0")] == [""]
    assert page.get(SM, uuid=UUID.format(0), gi="") is None
    assert page.get("gpu_utilization_ratio", gpu="0") is None
    assert page.get("gpu_info", gpu="0", mig="enabled") == 1
    assert not page.all("gpu_pcie_tx_bytes_per_second", gpu="0")
    # The GPU beside it is whole.
    assert page.get(SM, gpu="1") == 0.8825
    # Through the parent, by the number of the instance.
    assert "nvmlGpmMigSampleGet 0" in rig.calls()


def test_an_instance_that_is_made_anew_under_the_same_number(start: Start) -> None:
    rig = start(**SPLIT)
    rig.read()
    rig.tick()
    rig.tick(
        gpu0__mig1__uuid="MIG-c",
        gpu0__mig1__name="NVIDIA H100 80GB HBM3 MIG 4g.40gb",
        gpu0__mig1__gpm__2=90,
    )
    page = rig.page()
    assert page.get(SM, gi="2") == 0.3
    assert page.get(SM, gi="9") is None  # its first sample
    rig.tick()
    page = rig.page()
    assert page.get(SM, gi="9", profile="4g.40gb") == 0.9
    assert page.get(SM, gi="9", profile="1g.10gb") is None


def test_an_instance_that_goes_and_one_that_comes(start: Start) -> None:
    rig = start(**SPLIT)
    rig.read()
    rig.tick()
    rig.tick(gpu0__mig0__uuid=None)
    page = rig.page()
    assert not page.all(SM, gi="2")
    assert not page.all("gpu_memory_used_bytes", gi="2")
    assert page.get(SM, gi="9") == 0.6
    rig.tick(gpu0__mig4__uuid="MIG-d", gpu0__mig4__gi=5, gpu0__mig4__gpm__2=20)
    for _ in range(6):
        rig.tick()
    assert rig.page().get(SM, gi="5") == 0.2
    assert rig.counts()["nvmlGpmSampleFree"] == 2


def test_mig_off_and_on(start: Start) -> None:
    rig = start(**SPLIT)
    rig.read()
    rig.tick()
    rig.tick(gpu0__mig=0)
    rig.tick()
    page = rig.page()
    assert page.get(SM, gi="") == 0.8825
    assert page.get("gpu_info", mig="disabled") == 1
    assert not page.all(SM, gi="9")
    rig.tick(gpu0__mig=1)
    rig.tick()
    page = rig.page()
    assert page.get(SM, gi="9") == 0.6
    assert page.get(SM, gi="") is None


def test_two_compute_instances_in_one(start: Start) -> None:
    rig = start(**{**SPLIT, "gpu0__mig1__gi": 2})
    rig.read()
    rig.tick()
    assert rig.page().get(SM, gi="2") == 0.3


def test_memory_of_an_instance_that_is_not_permitted(start: Start) -> None:
    """As in a container (nvidia-container-toolkit issue 842)."""
    rig = start(**SPLIT, nvmlDeviceGetMemoryInfo_v2__ret=4)
    rig.read()
    rig.tick()
    page = rig.page()
    assert not page.all("gpu_memory_used_bytes")
    assert page.get(SM, gi="9") == 0.6
    assert page.get("gpu_call_errors_total", code="no_permission") or 0 > 0
