"""What the NVML source reads, and what it rather leaves out."""

from __future__ import annotations

from collections import Counter

import pytest

from tailscope.catalogue import METRICS, PREFIX, nvml
from tests.fakenvml.fixtures import Start, fake, old_fake, start
from tests.fakenvml.rig import UUID

__all__ = ["fake", "old_fake", "start"]

GIB = 1 << 30

# Of a healthy H100 under load, in NVML's units, as fakenvml.c has them: name, labels, our value.
VALUES: tuple[tuple[str, dict[str, str], float], ...] = (
    ("gpu_utilization_ratio", {}, 0.97),
    ("gpu_memory_utilization_ratio", {}, 0.60),
    ("gpu_memory_used_bytes", {}, 74289512448.0),
    ("gpu_memory_reserved_bytes", {}, 666763264.0),
    ("gpu_memory_total_bytes", {}, 85520809984.0),
    ("gpu_memory_free_bytes", {}, 85520809984.0 - 74289512448 - 666763264),
    ("gpu_power_watts", {}, 632.0),
    ("gpu_power_limit_watts", {}, 700.0),
    ("gpu_energy_joules_total", {}, 5000.0),
    ("gpu_temperature_celsius", {"sensor": "gpu"}, 59.0),
    ("gpu_temperature_celsius", {"sensor": "memory"}, 54.0),
    ("gpu_slowdown_temperature_celsius", {"sensor": "gpu"}, 87.0),
    ("gpu_slowdown_temperature_celsius", {"sensor": "memory"}, 95.0),
    ("gpu_clock_hertz", {"domain": "sm"}, 1.98e9),
    ("gpu_clock_hertz", {"domain": "memory"}, 2.619e9),
    ("gpu_clock_max_hertz", {"domain": "sm"}, 1.98e9),
    ("gpu_clock_max_hertz", {"domain": "memory"}, 2.619e9),
    ("gpu_throttled_seconds_total", {"reason": "sw_power_cap"}, 3.5),
    ("gpu_throttled_seconds_total", {"reason": "sync_boost"}, 0.0),
    ("gpu_throttled_seconds_total", {"reason": "sw_thermal"}, 1.25),
    ("gpu_throttled_seconds_total", {"reason": "hw_thermal"}, 0.0),
    ("gpu_throttled_seconds_total", {"reason": "hw_power_brake"}, 0.0),
    ("gpu_pcie_tx_bytes_total", {}, 7e12),
    ("gpu_pcie_rx_bytes_total", {}, 0.0),
    ("gpu_nvlink_tx_bytes_total", {}, 2048.0),
    ("gpu_nvlink_rx_bytes_total", {}, 0.0),
    ("gpu_pcie_replays_total", {}, 4.0),
    ("gpu_ecc_errors_total", {"type": "corrected"}, 12.0),
    ("gpu_ecc_errors_total", {"type": "uncorrected"}, 1.0),
    ("gpu_remapped_rows", {"type": "corrected"}, 2.0),
    ("gpu_remapped_rows", {"type": "uncorrected"}, 0.0),
    ("gpu_remap_pending", {}, 1.0),
    ("gpu_remap_failed", {}, 0.0),
    ("gpu_recovery_action", {"action": "reset_gpu"}, 1.0),
    ("gpu_sm_active_ratio", {}, 0.8825),
    ("gpu_sm_occupancy_ratio", {}, 0.315),
    ("gpu_tensor_active_ratio", {}, 0.2275),
    ("gpu_dram_active_ratio", {}, 0.71),
    ("gpu_graphics_active_ratio", {}, 0.965),
)


def test_every_value_in_our_unit(start: Start) -> None:
    rig = start(
        gpu0__field__74=3_500_000_000,
        gpu0__field__269=1_250_000_000,
        gpu0__field__197=7_000_000_000_000,
        gpu0__field__138=2,
        gpu0__field__230=1,
        gpu0__replays=4,
        gpu0__corrected=12,
        gpu0__uncorrected=1,
        gpu0__rows=2,
        gpu0__remap_pending=1,
    )
    rig.read()
    rig.tick()
    page = rig.page()
    for name, labels, value in VALUES:
        assert page.get(name, gpu="0", **labels) == pytest.approx(value, rel=1e-9), name
    told = {PREFIX + name for name, _, _ in VALUES}
    mapped = {value.metric for call in nvml.CALLS for value in call.values}
    mapped |= {field.value.metric for field in nvml.FIELDS}
    rates = {metric.value.metric for metric in nvml.GPM if metric.unless}
    mapped |= {metric.value.metric for metric in nvml.GPM} - rates
    assert told == mapped  # the list above is whole


def test_labels_and_facts(start: Start) -> None:
    rig = start(count=2)
    message = rig.read()["message"]
    page = rig.page()
    who = {"gpu": "1", "uuid": UUID.format(1)}
    assert page.get("gpu_up", **who, model_name="NVIDIA H100 80GB HBM3") == 1
    info = page.all("gpu_info", **who)[0].labels
    assert (info["pci_bus_id"], info["driver"]) == ("00000000:11:00.0", "580.95.05")
    assert page.get("gpu_source_info", **who, readings="health", source="nvml") == 1
    assert page.get("gpu_source_info", **who, readings="activity", source="nvml_gpm") == 1
    assert "2 of 2 GPUs answer, driver 580.95.05; SM and DRAM activity by GPM on 2" in message


def test_a_whole_page_is_of_the_catalogue(start: Start) -> None:
    rig = start(gpu0__mig=1, gpu0__mig0__uuid="MIG-a", count=2, xids=0)
    rig.read()
    rig.tick(xids=1, xid__1="1:79")
    rig.wait("nvmlEventSetWait")
    rig.tick()
    for sample in rig.page().samples:
        name = sample.name
        for suffix in ("_bucket", "_sum", "_count"):
            name = name.removesuffix(suffix)
        metric = METRICS[name]
        assert tuple(label for label in sample.labels if label != "le") == metric.labels


@pytest.mark.parametrize("gpus", [1, 8])
def test_calls_per_gpu_and_read(start: Start, gpus: int) -> None:
    rig = start(count=gpus)
    for _ in range(2):
        rig.tick()
    for gpu in range(gpus):  # once, at the start
        rig.wait(f"nvmlDeviceRegisterEvents {gpu}")
    most: Counter[str] = Counter()
    for _ in range(25):  # seldom ones among them
        rig.clear()
        rig.tick()
        calls = [line.split() for line in rig.calls()]
        assert not any(call[0] == "nvmlDeviceGetPcieThroughput" for call in calls)
        of_gpu = Counter(call[1] for call in calls if len(call) == 2)
        # It names no GPU: one for each.
        metrics_get = sum(call[0] == "nvmlGpmMetricsGet" for call in calls)
        assert metrics_get == gpus
        most |= Counter({gpu: count + 1 for gpu, count in of_gpu.items()})
    assert len(most) == gpus
    assert max(most.values()) <= 25
    print(f"calls per GPU and read: at most {max(most.values())}")


def test_calls_of_a_gpu_that_is_split(start: Start) -> None:
    split = {f"gpu0__mig{index}__uuid": f"MIG-{index}" for index in range(7)}
    rig = start(gpu0__mig=1, **split)
    for _ in range(2):
        rig.tick()
    counts = []
    for _ in range(25):
        rig.clear()
        rig.tick()
        counts.append(sum(not line.startswith("nvmlEvent") for line in rig.calls()))
    page = rig.page()
    assert {s.labels["gi"] for s in page.all("gpu_sm_active_ratio")} == set("1234567")
    assert {s.value for s in page.all("gpu_sm_active_ratio")} == {0.8825}
    assert len(page.all("gpu_memory_used_bytes")) == 8
    assert max(counts) <= 25
    print(f"calls of a GPU in 7 instances: {sorted(counts)[12]} usually, {max(counts)} at most")


def test_what_is_not_supported_is_asked_once(start: Start) -> None:
    missing = (
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetTotalEnergyConsumption",
    )
    rig = start(**{f"{name}__ret": 3 for name in missing})
    for _ in range(40):
        rig.tick()
    page, counts = rig.page(), rig.counts()
    assert page.get("gpu_up") == 1
    assert page.get("gpu_power_watts") is None
    assert page.get("gpu_energy_joules_total") is None
    assert [counts[name] for name in missing] == [1, 1, 1, 1]
    assert page.get("gpu_call_errors_total") is None  # it is no error


def test_fields_that_are_not_supported_are_asked_once(start: Start) -> None:
    rig = start(gpu0__field__82__ret=3, gpu0__field__230__ret=13)
    rig.read()
    page = rig.page()
    assert page.get("gpu_temperature_celsius", sensor="memory") is None
    assert not page.all("gpu_recovery_action")
    rig.tick(gpu0__field__82__ret=None)  # it would answer now, but is asked no more
    assert rig.page().get("gpu_temperature_celsius", sensor="memory") is None


def test_it_is_asked_again_after_the_driver_was_loaded_anew(start: Start) -> None:
    rig = start(nvmlDeviceGetPowerUsage__ret=3, gpu0__field__82__ret=3)
    rig.read()
    assert rig.page().get("gpu_power_watts") is None
    rig.tick(nvmlDeviceGetPowerUsage__ret=None, gpu0__field__82__ret=None, epoch=1)
    page = rig.page()
    assert page.get("gpu_power_watts") == 632
    assert page.get("gpu_temperature_celsius", sensor="memory") == 54


def test_other_errors_are_counted_and_tried_again(start: Start) -> None:
    rig = start(nvmlDeviceGetPowerUsage__ret=10, nvmlDeviceGetUtilizationRates__ret=999)
    for _ in range(3):
        rig.tick()
    page = rig.page()
    assert page.get("gpu_up") == 1
    assert page.get("gpu_temperature_celsius", sensor="gpu") == 59
    power = {"call": "nvmlDeviceGetPowerUsage", "code": "timeout"}
    usage = {"call": "nvmlDeviceGetUtilizationRates", "code": "unknown_error"}
    assert page.get("gpu_call_errors_total", **power) == 3
    assert page.get("gpu_call_errors_total", **usage) == 3
    rig.tick(nvmlDeviceGetPowerUsage__ret=None)
    assert rig.page().get("gpu_power_watts") == 632


def test_members_of_the_union(start: Start) -> None:
    """A field is read from the member that its type names; the fake fills the rest with noise."""
    for kind, value, reading in (
        (0, "61.5", 61.5),
        (1, 62, 62),
        (3, 63, 63),
        (4, 64, 64),
        (5, 65, 65),
    ):
        rig = start(gpu0__field__82=value, gpu0__field__82__type=kind)
        rig.read()
        assert rig.page().get("gpu_temperature_celsius", sensor="memory") == reading
    for kind, value in ((4, -5), (5, -5), (0, "nan"), (9, 60)):
        rig = start(gpu0__field__82=value, gpu0__field__82__type=kind)
        rig.read()
        assert rig.page().get("gpu_temperature_celsius", sensor="memory") is None


def test_throttle_counters_of_a_driver_with_other_numbers(start: Start) -> None:
    """269 to 271 meant power smoothing in R575 and early R580: never time."""
    other = {f"gpu0__field__{number}": 900_000_000_000 for number in (269, 270, 271)}
    rig = start(driver="580.65.06", gpu0__reasons=0x20, **other)
    for _ in range(5):
        rig.tick()
    page = rig.page()
    assert page.get("gpu_throttled_seconds_total", reason="sw_thermal") == pytest.approx(4)
    assert page.get("gpu_throttled_seconds_total", reason="hw_thermal") == 0
    # 74 and 76 always were what they are.
    assert page.get("gpu_throttled_seconds_total", reason="sw_power_cap") == 0


def test_throttle_time_from_the_bitmask(start: Start) -> None:
    none = {f"gpu0__field__{number}__ret": 3 for number in (74, 76, 269, 270, 271)}
    rig = start(gpu0__reasons=1, **none)  # idle
    rig.tick()
    rig.tick(gpu0__reasons=0x4 | 0x40)
    rig.tick(gpu0__reasons=0x4)
    rig.tick(gpu0__reasons=0)
    rig.tick()
    page = rig.page()
    reasons = {
        sample.labels["reason"]: sample.value for sample in page.all("gpu_throttled_seconds_total")
    }
    # Set at two of the reads: half a second before, one between, half a second after.
    assert reasons.pop("sw_power_cap") == pytest.approx(2)
    assert reasons.pop("hw_thermal") == pytest.approx(1)
    assert set(reasons) == {
        "application_clocks", "hw_slowdown", "sync_boost", "sw_thermal", "hw_power_brake",
    }  # fmt: skip
    assert not any(reasons.values())


def test_no_time_is_made_up_over_a_gap(start: Start) -> None:
    rig = start(driver="570.1", gpu0__reasons=0x40)
    rig.tick()
    rig.tick(60)  # more than three intervals
    rig.tick()
    held = rig.page().get("gpu_throttled_seconds_total", reason="hw_thermal")
    assert held == pytest.approx(1)


def test_a_counter_of_32_bits_is_no_counter(start: Start) -> None:
    """PCIe at 50 GB/s goes round 32 bits ten times a second; GPM's rate takes its place."""
    rig = start(gpu0__field__197=7, gpu0__field__197__type=1)
    rig.read()
    rig.tick()
    page = rig.page()
    assert page.get("gpu_pcie_tx_bytes_total") is None
    assert page.get("gpu_pcie_tx_bytes_per_second") == pytest.approx(950 * (1 << 20))
    assert page.get("gpu_pcie_rx_bytes_per_second") is None  # its counter works
    assert page.get("gpu_pcie_rx_bytes_total") == 0


def test_nvlink_counters_of_version_5(start: Start) -> None:
    rig = start(
        gpu0__field__138__ret=3, gpu0__field__139__ret=3, gpu0__field__202=11, gpu0__field__204=12
    )
    rig.read()
    page = rig.page()
    assert page.get("gpu_nvlink_tx_bytes_total") == 11
    assert page.get("gpu_nvlink_rx_bytes_total") == 12


def test_nvlink_rates_without_counters(start: Start) -> None:
    rig = start(gpu0__field__138__ret=3, gpu0__field__139__ret=3, gpu0__gpm__60=100)
    rig.read()
    rig.tick()
    page = rig.page()
    assert page.get("gpu_nvlink_tx_bytes_total") is None
    assert page.get("gpu_nvlink_rx_bytes_per_second") == pytest.approx(100 * (1 << 20))  # 60 is RX
    assert page.get("gpu_nvlink_tx_bytes_per_second") == pytest.approx(20480 * (1 << 20))
