"""What the NVML source reads, and what it rather leaves out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tailscope.catalogue import METRICS, PREFIX, gpu, nvml
from tailscope.exporter.sources.nvml.library import Library, Unsupported
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


@pytest.mark.parametrize(
    ("key", "value", "name", "labels"),
    [
        ("gpu0__util", 101, "gpu_utilization_ratio", {}),
        ("gpu0__util", 4294967295, "gpu_utilization_ratio", {}),
        ("gpu0__power", 4294967295, "gpu_power_watts", {}),
        ("gpu0__temperature", 4294967295, "gpu_temperature_celsius", {"sensor": "gpu"}),
        ("gpu0__clock", 4294967295, "gpu_clock_hertz", {"domain": "sm"}),
        ("gpu0__used", 1 << 63, "gpu_memory_used_bytes", {}),
        ("gpu0__field__82", 0, "gpu_temperature_celsius", {"sensor": "memory"}),
    ],
)
def test_what_cannot_be_is_left_out(
    start: Start, key: str, value: int, name: str, labels: dict[str, str]
) -> None:
    rig = start(**{key: value})
    rig.read()
    assert rig.page().get(name, **labels) is None
    assert rig.page().get("gpu_up") == 1


def test_memory_that_is_not_supported(start: Start) -> None:
    """As on GB10, whose memory is the machine's: nothing is published as a GPU's memory."""
    rig = start(gpu0__no_memory=1, gpu0__name="NVIDIA GB10")
    rig.read()
    page = rig.page()
    assert page.get("gpu_up", model_name="NVIDIA GB10") == 1
    assert not any("memory_" in name and "bytes" in name for name in page.names())
    assert page.get("gpu_power_watts") == 632


def test_a_gpu_that_supports_next_to_nothing(start: Start) -> None:
    """As on Jetson: it is there, and that is all."""
    rig = start(all__ret=3)
    rig.read()
    assert rig.page().get("gpu_up") is None  # who it is could not be found out
    calls = [way.function for call in nvml.CALLS for way in call.ways]
    calls = [{"nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2"}.get(c, c) for c in calls]
    calls += ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFieldValues", "nvmlGpmQueryDeviceSupport"]
    calls += [way.function for way in nvml.EVENT_REASONS]
    rig = start(**{f"{name}__ret": 3 for name in calls})
    rig.read()
    page = rig.page()
    assert page.get("gpu_up") == 1
    assert page.names(gpu="0") <= {"gpu_up", "gpu_info", "gpu_source_info", "gpu_xid_errors_total"}


def test_names_that_are_no_utf8(start: Start) -> None:
    rig = start(count=3, gpu0__name="NVIDIA \udcff\udcfe", gpu1__name='A "B\\', gpu2__name="")
    rig.read()
    names = {s.labels["gpu"]: s.labels["model_name"] for s in rig.page().all("gpu_up")}
    assert names == {"0": "NVIDIA ��", "1": 'A "B\\', "2": ""}


def test_a_gpu_that_has_no_uuid_goes_by_its_address(start: Start) -> None:
    """As that of a Jetson."""
    rig = start(nvmlDeviceGetUUID__ret=3)
    rig.read()
    (up,) = rig.page().all("gpu_up")
    assert (up.value, up.labels["uuid"]) == (1, "00000000:10:00.0")
    assert rig.page().get("gpu_utilization_ratio") == 0.97


def test_an_old_driver(start: Start, old_fake: Path) -> None:
    rig = start(library=old_fake, driver="470.256.02", gpu0__reasons=0x40)
    message = rig.read()["message"]
    rig.tick()
    page = rig.page()
    assert "by GPM on none" in message
    assert page.get("gpu_memory_used_bytes") == 74289512448 + 666763264
    assert page.get("gpu_memory_reserved_bytes") is None  # it does not tell it apart
    assert page.get("gpu_temperature_celsius", sensor="gpu") == 59
    assert page.get("gpu_throttled_seconds_total", reason="hw_thermal") == pytest.approx(1)
    assert not any("active" in name for name in page.names())
    assert not page.all("gpu_source_info", readings="activity")
    assert page.get("gpu_call_errors_total") is None


def test_a_gpu_without_gpm(start: Start) -> None:
    rig = start(count=2, gpu0__gpm=0, gpu0__name="NVIDIA A100-SXM4-40GB")
    rig.read()
    rig.tick()
    page = rig.page()
    assert page.get("gpu_sm_active_ratio", gpu="0") is None
    assert page.get("gpu_sm_active_ratio", gpu="1") == 0.8825
    assert not page.all("gpu_source_info", gpu="0", readings="activity")
    assert rig.do("uuids") == [[UUID.format(0), UUID.format(1)], [UUID.format(1)]]
    assert not any(line == "nvmlGpmSampleGet 0" for line in rig.calls())


def test_gpm_that_is_not_permitted(start: Start) -> None:
    rig = start(nvmlGpmSampleGet__ret=4)
    for _ in range(4):
        rig.tick()
    page = rig.page()
    assert page.get("gpu_up") == 1
    assert page.get("gpu_sm_active_ratio") is None
    assert not page.all("gpu_source_info", readings="activity")
    assert page.get("gpu_call_errors_total", call="nvmlGpmSampleGet", code="no_permission") == 1
    assert rig.log.count("no SM and DRAM activity: nvmlGpmSampleGet: no_permission") == 1


def test_recovery_actions(start: Start) -> None:
    rig = start()
    for raw, name in ((0, "none"), (2, "restart_node"), (4, "drain_and_reset"), (5, "other")):
        rig.tick(gpu0__field__230=raw)
        found = rig.page().all("gpu_recovery_action")
        assert [(sample.labels["action"], sample.value) for sample in found] == [(name, 1)]


def test_counters_go_on_over_a_reload(start: Start) -> None:
    rig = start(gpu0__energy=900_000, gpu0__field__74=2_000_000_000)
    rig.read()
    rig.tick(gpu0__energy=1_000_000)
    rig.tick(epoch=1, gpu0__energy=30_000, gpu0__field__74=500_000_000)
    rig.tick(gpu0__energy=40_000)
    page = rig.page()
    assert page.get("gpu_energy_joules_total") == 1040
    assert page.get("gpu_throttled_seconds_total", reason="sw_power_cap") == 2.5


def test_samples_for_the_store(start: Start) -> None:
    rig = start(gpu0__field__74=1_000_000_000)
    rig.read()
    rig.tick()
    rig.do("samples")
    rig.tick()
    samples = rig.do("samples")
    found = {(metric.removeprefix(PREFIX), labels): value for _, metric, labels, value in samples}
    assert len(found) == len(samples)
    metrics = {metric for metric, _ in found}
    assert metrics == {
        "gpu_up", "gpu_sm_active_ratio", "gpu_dram_active_ratio", "gpu_tensor_active_ratio",
        "gpu_power_watts", "gpu_temperature_celsius", "gpu_clock_hertz",
        "gpu_throttled_seconds_total",
    }  # fmt: skip
    assert all(METRICS[PREFIX + metric].stored for metric in metrics)
    # Counters that never moved are not worth a row a second.
    throttled = [value for (metric, _), value in found.items() if "throttled" in metric]
    assert throttled == [1.0]


def test_bounds_are_those_of_the_catalogue(start: Start) -> None:
    rig = start(gpu0__gpm__10=100)
    rig.read()
    rig.tick()
    buckets = rig.page().all("gpu_dram_active_ratio_sampled_bucket")
    bounds = METRICS[f"{PREFIX}gpu_dram_active_ratio_sampled"].buckets
    assert [sample.labels["le"] for sample in buckets] == [*map(str, bounds), "+Inf"]
    assert gpu.ROUNDING > 1
    assert [sample.value for sample in buckets][-2:] == [1, 1]


class OldBinding:
    """What the package ``pynvml`` up to 11.4 puts in the place of ``nvidia-ml-py``."""

    __file__ = "site-packages/pynvml/__init__.py"

    class NVMLError(Exception):
        """Its error."""

        value = 3

    def nvmlDeviceGetName(self, handle: object) -> bytes:
        """Texts are bytes there."""
        return b"Tesla V100 \xff"

    def nvmlDeviceGetUUID(self, handle: object) -> bytes:
        """Nor does it know all functions of a later one."""
        raise self.NVMLError


def test_an_old_binding(caplog: pytest.LogCaptureFixture) -> None:
    library = Library(OldBinding())
    assert "install nvidia-ml-py" in caplog.text
    assert OldBinding.__file__ in caplog.text
    assert library.text("nvmlDeviceGetName", None) == "Tesla V100 �"
    for name in ("nvmlDeviceGetUUID", "nvmlGpmSampleGet"):
        with pytest.raises(Unsupported):
            library.text(name, None)
