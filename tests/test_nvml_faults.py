"""GPUs that are lost, drivers that are loaded anew, calls that hang: it never lies, never dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakenvml.fixtures import Start, fake, start
from tests.fakenvml.rig import UUID, Rig
from tests.process import until

__all__ = ["fake", "start"]

SM = "gpu_sm_active_ratio"


def _values(rig: Rig, gpu: str) -> set[str]:
    """Metrics of a GPU beside those that stay when it is lost."""
    return rig.page().names(gpu=gpu) - {"gpu_up", "gpu_xid_errors_total"}


# Lost


def test_a_lost_gpu_takes_only_its_own_values(start: Start) -> None:
    rig = start(count=3)
    rig.read()
    rig.tick()
    message = rig.tick(gpu1__lost=1)["message"]
    assert rig.ups() == {"0": 1, "1": 0, "2": 1}
    assert _values(rig, "1") == set()
    page = rig.page()
    assert page.get(SM, gpu="0") == page.get(SM, gpu="2") == 0.8825
    assert page.get("gpu_up", gpu="1", uuid=UUID.format(1)) == 0
    assert "2 of 3 GPUs answer" in message
    assert "GPU 1 (GPU-00000001-0000-4000-8000-000000000000) cannot be read: gpu_is_lost" in rig.log
    assert rig.counts()["nvmlShutdown"] == 0  # the others were left alone


def test_a_gpu_that_is_back(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    rig.tick(gpu1__lost=1)
    rig.tick(gpu1__lost=None)
    assert rig.ups() == {"0": 1, "1": 1}
    page = rig.page()
    assert page.get("gpu_power_watts", gpu="1") == 632
    assert page.get(SM, gpu="1") is None  # no pair with a sample from before
    rig.tick()
    assert rig.page().get(SM, gpu="1") == 0.8825
    assert rig.log.count("can be read again") == 1


def test_a_gpu_that_is_lost_at_the_start(start: Start) -> None:
    rig = start(count=2, gpu1__lost=1)
    rig.read()
    page = rig.page()
    assert page.get("gpu_up", gpu="0") == 1
    assert page.get("gpu_up", gpu="1", uuid="", model_name="") == 0
    rig.tick(gpu1__lost=None)
    page = rig.page()
    assert page.get("gpu_up", gpu="1", uuid=UUID.format(1)) == 1


def test_an_index_that_moves(start: Start) -> None:
    """When NVML is opened anew without GPU 0, the GPU that was 1 is 0: it is known by its UUID."""
    rig = start(count=2, gpu0__energy=1000, gpu1__energy=2_000_000)
    rig.read()
    rig.tick(count=1, epoch=1, gpu0__uuid=UUID.format(1), gpu0__energy=3_000_000)
    page = rig.page()
    assert page.get("gpu_up", uuid=UUID.format(0)) == 0
    assert page.get("gpu_up", uuid=UUID.format(1), gpu="0") == 1
    # Its own counter went on: of the other GPU's there is nothing in it.
    assert page.get("gpu_energy_joules_total", uuid=UUID.format(1)) == 3000


def test_all_gpus_are_lost(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    rig.tick()
    answer = rig.tick(gpu0__lost=1, gpu1__lost=1)
    assert answer["reason"] == "gpu_is_lost"
    assert rig.ups() == {"0": 0, "1": 0}
    assert _values(rig, "0") == _values(rig, "1") == set()
    assert rig.counts()["nvmlShutdown"] == 1  # opened anew, in vain
    rig.tick(gpu0__lost=None, gpu1__lost=None)
    assert rig.ups() == {"0": 1, "1": 1}


def test_a_gpu_that_stays_lost_is_looked_for_with_a_new_nvml(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    rig.tick(gpu1__lost=1)
    for _ in range(58):
        rig.tick()
    assert rig.counts()["nvmlShutdown"] == 0
    for _ in range(5):
        rig.tick()
    assert rig.counts()["nvmlShutdown"] == 1
    assert rig.page().get(SM, gpu="0") == 0.8825
    for _ in range(240):
        rig.tick()
    assert rig.counts()["nvmlShutdown"] == 3  # after 1, 2 and 4 minutes


# The driver


@pytest.mark.parametrize("code", [1, 9, 18, 28, 999, 2])
def test_a_reload_of_the_driver(start: Start, code: int) -> None:
    """Whatever calls return from then on, one interval later all is well."""
    rig = start(count=2, epoch__ret=code)
    rig.read()
    rig.tick()
    answer = rig.tick(epoch=1)
    assert "2 of 2 GPUs answer" in answer["message"]
    assert rig.ups() == {"0": 1, "1": 1}
    rig.tick()
    page = rig.page()
    assert page.get(SM, gpu="0") == page.get(SM, gpu="1") == 0.8825
    counts = rig.counts()
    assert (counts["nvmlInit"], counts["nvmlShutdown"]) == (2, 1)
    assert counts["nvmlGpmSampleAlloc"] == 2 * 4  # freed before, which the fixture checks
    assert counts["nvmlGpmSampleFree"] == 4


def test_a_driver_that_is_away_for_a_while(start: Start) -> None:
    rig = start(count=2, epoch__ret=9)
    rig.read()
    rig.tick()
    rig.clear()
    answer = rig.tick(epoch=1, nvmlInit__ret=9)
    assert answer["reason"] == "driver_not_loaded"
    assert "the NVIDIA driver is not loaded" in answer["message"]
    assert rig.ups() == {"0": 0, "1": 0}
    assert _values(rig, "0") == set()
    for _ in range(60):
        assert rig.tick()["reason"] == "driver_not_loaded"
    # At 1, 2, 4, 8, 16 and then every 30 seconds.
    assert 6 <= rig.counts()["nvmlInit"] <= 8
    for _ in range(31):
        rig.tick(nvmlInit__ret=None)
    assert rig.ups() == {"0": 1, "1": 1}
    assert rig.page().get("gpu_energy_joules_total", gpu="0") == 5000


def test_a_driver_that_was_upgraded(start: Start) -> None:
    rig = start(nvmlInit__ret=18)
    answer = rig.read()
    assert answer["reason"] == "driver_mismatch"
    assert "restart the exporter" in answer["message"]
    rig.tick(2, nvmlInit__ret=None)
    assert rig.ups() == {"0": 1}


def test_a_storm_of_unknown_errors(start: Start) -> None:
    """As in a container after `systemctl daemon-reload` (nvidia-container-toolkit issue 48)."""
    rig = start(count=2)
    rig.read()
    rig.tick()
    rig.clear()
    answer = rig.tick(all__ret=999)
    assert answer["reason"] == "unknown_error"
    assert "recreate it" in answer["message"]
    assert rig.ups() == {"0": 0, "1": 0}
    for _ in range(30):
        rig.tick()
    assert rig.counts()["nvmlInit"] <= 7
    rig.tick(30, all__ret=None)
    rig.tick()
    assert rig.ups() == {"0": 1, "1": 1}


def test_unknown_errors_of_one_gpu(start: Start) -> None:
    names = ("UtilizationRates", "MemoryInfo_v2", "PowerUsage", "TotalEnergyConsumption",
             "Temperature", "ClockInfo")  # fmt: skip
    storm = {f"gpu1__nvmlDeviceGet{name}__ret": 999 for name in names}
    rig = start(count=2)
    rig.read()
    rig.tick()
    rig.tick(**storm)
    assert rig.ups() == {"0": 1, "1": 0}
    assert _values(rig, "1") == set()
    assert rig.page().get(SM, gpu="0") == 0.8825
    rig.tick(**dict.fromkeys(storm))
    assert rig.ups() == {"0": 1, "1": 1}


def test_one_gpu_that_is_not_found_leaves_the_others_their_activity(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    rig.tick()
    rig.tick(gpu1__nvmlDeviceGetUtilizationRates__ret=28)
    assert rig.counts()["nvmlShutdown"] == 1
    for _ in range(50):
        rig.tick()
    assert rig.counts()["nvmlShutdown"] == 1
    assert rig.page().get(SM, gpu="0") == 0.8825


# No library, no GPU


def test_no_library(start: Start, tmp_path: Path) -> None:
    rig = start(library=tmp_path / "none")
    answer = rig.read()
    assert answer["reason"] == "library_not_found"
    assert "NVIDIA_VISIBLE_DEVICES" in answer["message"]
    assert rig.page().samples == []


def test_no_gpu(start: Start) -> None:
    rig = start(count=0)
    assert rig.read()["reason"] == "no_gpu"
    rig.tick(count=1)
    assert rig.ups() == {"0": 1}


def test_no_permission(start: Start) -> None:
    rig = start(nvmlInit__ret=4)
    answer = rig.read()
    assert answer["reason"] == "no_permission"
    assert "/dev/nvidiactl" in answer["message"]


# Calls that hang


def _hang(rig: Rig, gpu: int) -> None:
    rig.hang(f"nvmlDeviceGetPowerUsage {gpu}", **{f"gpu{gpu}__nvmlDeviceGetPowerUsage__hang": 1})


def _both_back(rig: Rig) -> None:
    until(lambda: "message" in rig.tick() and rig.ups() == {"0": 1, "1": 1}, "both GPUs are up")


def test_a_call_that_hangs_takes_only_its_own_gpu(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    rig.tick()
    _hang(rig, 1)
    assert rig.ups() == {"0": 1, "1": 1}  # not yet
    for _ in range(4):
        rig.tick(gpu0__power=500_000)
    assert rig.ups() == {"0": 1, "1": 0}
    assert _values(rig, "1") == set()
    page = rig.page()
    assert page.get("gpu_power_watts", gpu="0") == 500
    assert page.get(SM, gpu="0") == 0.8825
    assert "cannot be read: hanging" in rig.log
    # It comes back when the call does.
    rig.let_go(gpu1__nvmlDeviceGetPowerUsage__hang=None)
    rig.wait("nvmlGpmSampleGet 1")
    _both_back(rig)


def test_stale_values_are_dropped_between_reads_too(start: Start) -> None:
    rig = start()
    rig.read()
    rig.turn(3.0)
    assert rig.ups() == {"0": 1}
    rig.turn(0.1)
    assert rig.ups() == {"0": 0}
    assert _values(rig, "0") == set()


def test_every_call_hangs(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    rig.hang("nvmlDeviceGetUtilizationRates", nvmlDeviceGetUtilizationRates__hang=1)
    for _ in range(4):
        answer = rig.tick()
    assert answer["reason"] == "hanging"
    assert rig.ups() == {"0": 0, "1": 0}
    rig.let_go(nvmlDeviceGetUtilizationRates__hang=None)
    _both_back(rig)


def test_nvml_is_not_closed_under_a_call(start: Start) -> None:
    """That would be the end of the process (nvitop issue 222); the fixture looks for it."""
    rig = start(count=2)
    rig.read()
    _hang(rig, 1)
    answer = rig.tick(epoch=1)
    assert answer["reason"] == "stuck"
    assert rig.counts()["nvmlShutdown"] == 0
    rig.let_go(gpu1__nvmlDeviceGetPowerUsage__hang=None)
    _both_back(rig)
    assert rig.counts()["nvmlShutdown"] == 1


def test_what_is_not_new_is_not_stored_again(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    _hang(rig, 1)
    rig.do("samples")
    rig.tick()
    gpus = [json.loads(labels)["gpu"] for _, _, labels, _ in rig.do("samples")]
    assert set(gpus) == {"0"}
    for _ in range(3):
        rig.tick()
    lost = [
        (metric, value) for _, metric, labels, value in rig.do("samples") if '"gpu":"1"' in labels
    ]
    assert ("tailscope_gpu_up", 0.0) in lost
    assert {metric for metric, _ in lost} == {"tailscope_gpu_up"}


def test_closing_while_a_call_hangs(start: Start) -> None:
    rig = start()
    rig.read()
    _hang(rig, 0)
    assert rig.end() == []
    assert rig.counts()["nvmlShutdown"] == 0
