"""Values that cannot be, and GPUs, drivers and bindings that lack something."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailscope.catalogue import METRICS, PREFIX, gpu, nvml
from tailscope.exporter.sources.nvml.library import Library, Unsupported
from tests.fakenvml.fixtures import Start, fake, old_fake, start
from tests.fakenvml.rig import UUID

__all__ = ["fake", "old_fake", "start"]


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
