"""Pages of dcgm-exporter, old and new: each value in the right metric with the right unit."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tailscope.catalogue import METRICS, PREFIX, Unit, dcgm
from tailscope.exporter.dcgmpage import DcgmPage
from tests.dcgmpages import (
    A100,
    BLANKS,
    H100,
    MIB,
    PAGES,
    Series,
    line,
    only,
    page,
    published,
    values,
)

GPU_LABELS = ("gpu", "uuid", "model_name", "gi", "profile")

# Written by hand from NVIDIA's documents, not from the catalogue: what each family means.
# Family without DCGM_: our metric, factor, labels beyond those of a GPU.
MEANS: dict[str, tuple[str, float, dict[str, str]]] = {
    "FI_DEV_SM_CLOCK": ("clock_hertz", 1e6, {"domain": "sm"}),
    "FI_DEV_SM_CLOCK_HERTZ": ("clock_hertz", 1, {"domain": "sm"}),
    "FI_DEV_MEM_CLOCK": ("clock_hertz", 1e6, {"domain": "memory"}),
    "FI_DEV_MEMORY_CLOCK_HERTZ": ("clock_hertz", 1, {"domain": "memory"}),
    "FI_DEV_MAX_SM_CLOCK": ("clock_max_hertz", 1e6, {"domain": "sm"}),
    "FI_DEV_MAX_MEM_CLOCK": ("clock_max_hertz", 1e6, {"domain": "memory"}),
    "FI_DEV_GPU_TEMP": ("temperature_celsius", 1, {"sensor": "gpu"}),
    "FI_DEV_GPU_TEMP_CELSIUS": ("temperature_celsius", 1, {"sensor": "gpu"}),
    "FI_DEV_MEMORY_TEMP": ("temperature_celsius", 1, {"sensor": "memory"}),
    "FI_DEV_MEMORY_TEMP_CELSIUS": ("temperature_celsius", 1, {"sensor": "memory"}),
    "FI_DEV_SLOWDOWN_TEMP": ("slowdown_temperature_celsius", 1, {"sensor": "gpu"}),
    "FI_DEV_POWER_USAGE": ("power_watts", 1, {}),
    "FI_DEV_BOARD_POWER_WATTS": ("power_watts", 1, {}),
    "FI_DEV_ENFORCED_POWER_LIMIT": ("power_limit_watts", 1, {}),
    "FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_joules_total", 1e-3, {}),
    "FI_DEV_GPU_ENERGY_JOULES_TOTAL": ("energy_joules_total", 1, {}),
    "FI_DEV_PCIE_REPLAY_COUNTER": ("pcie_replays_total", 1, {}),
    "FI_DEV_PCIE_REPLAY_TOTAL": ("pcie_replays_total", 1, {}),
    "FI_DEV_GPU_UTIL": ("utilization_ratio", 0.01, {}),
    "FI_DEV_GPU_UTIL_RATIO": ("utilization_ratio", 1, {}),
    "FI_DEV_MEM_COPY_UTIL": ("memory_utilization_ratio", 0.01, {}),
    "FI_DEV_MEMORY_UTIL_RATIO": ("memory_utilization_ratio", 1, {}),
    "FI_DEV_FB_FREE": ("memory_free_bytes", MIB, {}),
    "FI_DEV_FB_FREE_BYTES": ("memory_free_bytes", 1, {}),
    "FI_DEV_FB_USED": ("memory_used_bytes", MIB, {}),
    "FI_DEV_FB_USED_BYTES": ("memory_used_bytes", 1, {}),
    "FI_DEV_FB_RESERVED": ("memory_reserved_bytes", MIB, {}),
    "FI_DEV_FB_RESERVED_BYTES": ("memory_reserved_bytes", 1, {}),
    "FI_DEV_FB_TOTAL": ("memory_total_bytes", MIB, {}),
    "FI_DEV_FB_CAPACITY_BYTES": ("memory_total_bytes", 1, {}),
    "FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows", 1, {"type": "uncorrected"}),
    "FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": ("remapped_rows", 1, {"type": "uncorrected"}),
    "FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("remapped_rows", 1, {"type": "corrected"}),
    "FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL": ("remapped_rows", 1, {"type": "corrected"}),
    "FI_DEV_ROW_REMAP_FAILURE": ("remap_failed", 1, {}),
    "FI_DEV_ROW_REMAP_FAILED": ("remap_failed", 1, {}),
    "FI_DEV_ROW_REMAP_PENDING": ("remap_pending", 1, {}),
    "FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc_errors_total", 1, {"type": "corrected"}),
    "FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_errors_total", 1, {"type": "uncorrected"}),
    "FI_DEV_POWER_VIOLATION": ("throttled_seconds_total", 1e-9, {"reason": "sw_power_cap"}),
    "FI_DEV_THERMAL_VIOLATION": ("throttled_seconds_total", 1e-9, {"reason": "thermal"}),
    "FI_DEV_SYNC_BOOST_VIOLATION": ("throttled_seconds_total", 1e-9, {"reason": "sync_boost"}),
    "FI_DEV_BOARD_LIMIT_VIOLATION": ("throttled_seconds_total", 1e-9, {"reason": "board_limit"}),
    "FI_DEV_RELIABILITY_VIOLATION": ("throttled_seconds_total", 1e-9, {"reason": "reliability"}),
    **{
        f"FI_DEV_CLOCKS_EVENT_REASON_{name}_NS": (
            "throttled_seconds_total",
            1e-9,
            {"reason": reason},
        )
        for name, reason in (
            ("SW_POWER_CAP", "sw_power_cap"),
            ("SW_THERM_SLOWDOWN", "sw_thermal"),
            ("HW_THERM_SLOWDOWN", "hw_thermal"),
            ("HW_POWER_BRAKE_SLOWDOWN", "hw_power_brake"),
        )
    },
    "FI_PROF_SM_ACTIVE": ("sm_active_ratio", 1, {}),
    "FI_PROF_SM_OCCUPANCY": ("sm_occupancy_ratio", 1, {}),
    "FI_PROF_GR_ENGINE_ACTIVE": ("graphics_active_ratio", 1, {}),
    "FI_PROF_GR_ENGINE_UTIL_RATIO": ("graphics_active_ratio", 1, {}),
    "FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_ratio", 1, {}),
    "FI_PROF_TENSOR_UTIL_RATIO": ("tensor_active_ratio", 1, {}),
    "FI_PROF_DRAM_ACTIVE": ("dram_active_ratio", 1, {}),
    "FI_PROF_DRAM_UTIL_RATIO": ("dram_active_ratio", 1, {}),
    "FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_second", 1, {}),
    "FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_second", 1, {}),
    "FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_bytes_per_second", 1, {}),
    "FI_DEV_NVLINK_BANDWIDTH_TOTAL": ("nvlink_bytes_per_second", 1024e3, {}),
    "FI_DEV_NVLINK_THROUGHPUT_TOTAL": ("nvlink_bytes_per_second", 1024e3, {}),
    "FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": ("nvlink_bytes_per_second", 1, {}),
    "FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_per_second", 1, {}),
}

OF_THE_INSTANCE = re.compile(
    r"memory_.*_bytes|(sm|dram|tensor|graphics)_active_ratio|sm_occupancy.*"
)
NOT_WHILE_SPLIT = ("utilization_ratio", "memory_utilization_ratio")

# What is read and yet ends in no metric, or in one that is checked elsewhere.
EVENTS = re.compile(r"FI_DEV_XID_ERRORS?|EXP_XID_ERRORS_TOTAL")
NONE = re.compile(
    r"FI_DEV_(ENC|DEC)_UTIL(_RATIO)?"
    r"|FI_DEV_VGPU_LICENSE_STATUS"
    r"|FI_DEV_NVLINK_(BANDWIDTH|THROUGHPUT)_L0"
    r"|FI_DEV_NVLINK_(CRC_FLIT|CRC_DATA|REPLAY|RECOVERY)_ERROR_COUNT_TOTAL"
    r"|FI_DEV_RETIRED_(SBE|DBE|PENDING)"
    r"|FI_DEV_ECC_(SBE|DBE)_AGG_TOTAL"
    r"|FI_DEV_LOW_UTIL_VIOLATION"
    r"|FI_DEV_POWER_MGMT_LIMIT"
    r"|FI_PROF_PIPE_FP(64|32|16)_ACTIVE"
    r"|FI_PROF_(SM_CYCLES_ELAPSED|SM_CYCLES_ACTIVE|MMA_CYCLES_ACTIVE|PCIE_[TR]X_BYTES)_TOTAL"
    r"|EXP_(CLOCK_EVENTS_COUNT|CLOCK_EVENTS_TOTAL|XID_ERRORS_COUNT|GPU_HEALTH_STATUS|P2P_STATUS)"
)


def is_none(short: str, value: float) -> bool:
    blank = value >= 2147483632 and short.endswith(("FB_USED", "MEMORY_TEMP", "GPU_UTIL"))
    return blank or value == 140737488355328.0 or (short == "FI_DEV_MEMORY_TEMP" and value == 0)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_value_ends_in_the_right_metric_or_in_none(path: Path) -> None:
    text = path.read_text()
    expected: dict[Series, set[float]] = {}
    preferred = "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS" in text
    # Without its types: the parser would add _total to names.
    untyped = re.sub(r"(?m)^#.*\n", "", text)
    for family in text_string_to_metric_families(untyped):
        for sample in family.samples:
            short = sample.name.removeprefix("DCGM_")
            if NONE.fullmatch(short) or EVENTS.fullmatch(short) or is_none(short, sample.value):
                continue
            if short == "FI_DEV_POWER_VIOLATION" and preferred:
                continue
            metric, factor, more = MEANS[short]
            labels = sample.labels
            gi = labels.get("GPU_I_ID", "") if OF_THE_INSTANCE.fullmatch(metric) else ""
            if "GPU_I_ID" in labels and metric in NOT_WHILE_SPLIT:
                continue
            own = {
                "gpu": labels["gpu"],
                "uuid": labels["UUID"],
                "model_name": labels.get("modelName", ""),
                "gi": gi,
                "profile": labels["GPU_I_PROFILE"] if gi else "",
                **more,
            }
            series = (PREFIX + "gpu_" + metric, tuple(sorted(own.items())))
            expected.setdefault(series, set()).add(sample.value * factor)
    found = published(text)
    derived = {"gpu_up", "gpu_info", "gpu_xid_errors_total", "gpu_memory_total_bytes"}
    for series, either in expected.items():
        value = found.pop(series)
        assert any(math.isclose(value, each, rel_tol=1e-12) for each in either), series
    assert {name.removeprefix(PREFIX) for name, _ in found} <= derived


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_family_is_known(path: Path) -> None:
    pages = DcgmPage()
    pages.read(path.read_text())
    assert pages.unmapped == frozenset()


def test_no_label_of_a_pod_or_a_machine_gets_through() -> None:
    for path in PAGES:
        text = path.read_text()
        foreign = set(
            re.findall(r'(?:[Hh]ostname|container|pod|namespace|err_msg)="([^"]+)"', text)
        )
        own = {value for _, labels in published(text) for _, value in labels}
        assert not foreign & own
        for name, labels in published(text):
            assert {label for label, _ in labels} == set(METRICS[name].labels)


# The catalogue


def test_catalogue_fits_the_metrics() -> None:
    names = [name for field in dcgm.FIELDS for name in field.names]
    assert len(names) == len(set(names))
    for field in dcgm.FIELDS:
        metric = METRICS[field.metric]
        assert metric.labels[:5] == GPU_LABELS
        more = {*field.fixed, *field.labels.values()}
        if "xid" in metric.labels:
            assert field.last_event or more == {"xid"}
        else:
            assert more == set(metric.labels[5:])
    for name in names:
        assert not [entry for entry in dcgm.IGNORED if entry.pattern.fullmatch(name)], name


def test_ratios_come_from_percent_or_as_they_are() -> None:
    for field in dcgm.FIELDS:
        for name, scale in field.names.items():
            percent = METRICS[field.metric].unit is Unit.RATIO and name.endswith("_UTIL")
            assert (scale.over == 100.0) == percent, name


def test_the_first_of_two_names_for_one_thing_counts() -> None:
    both = line("DCGM_FI_DEV_POWER_VIOLATION", 9_000_000_000) + line(
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 7_000_000_000
    )
    for text in (both, "".join(reversed(both.splitlines(keepends=True)))):
        assert values(published(text), "gpu_throttled_seconds_total") == [7.0]


# Values that are none


@pytest.mark.parametrize("blank", BLANKS)
def test_a_blank_is_no_value_of_any_field(blank: str) -> None:
    base = line("DCGM_FI_DEV_FB_USED", 7)
    names = [name for field in dcgm.FIELDS for name in field.names]
    text = "".join(line(name, blank, xid="31") for name in names if name not in base)
    assert published(base + text) == published(base)


def test_a_blank_leaves_the_counter_where_it_was() -> None:
    pages = DcgmPage()
    temperature = line("DCGM_FI_DEV_GPU_TEMP", 40)
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    published(temperature + line(energy, 5000), pages)
    assert not values(
        published(temperature + line(energy, 9223372036854775794), pages), "gpu_energy_joules_total"
    )
    found = published(temperature + line(energy, 6000), pages)
    assert only(found, "gpu_energy_joules_total") == 6.0
    assert pages.resets == 0


@pytest.mark.parametrize(
    ("family", "raw", "ratio"),
    [
        ("DCGM_FI_PROF_SM_ACTIVE", "0.000000", 0.0),
        ("DCGM_FI_PROF_SM_ACTIVE", "1.000000", 1.0),
        ("DCGM_FI_PROF_SM_ACTIVE", "1.049000", 1.0),
        ("DCGM_FI_PROF_SM_ACTIVE", "1.051000", None),
        ("DCGM_FI_PROF_SM_ACTIVE", "-0.000100", None),
        ("DCGM_FI_PROF_SM_ACTIVE", "97.000000", None),
        ("DCGM_FI_DEV_GPU_UTIL", "100", 1.0),
        ("DCGM_FI_DEV_GPU_UTIL", "101", None),
        ("DCGM_FI_DEV_GPU_UTIL", "4294967295", None),
        ("DCGM_FI_DEV_GPU_UTIL", "7", 0.07),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.070000", 0.07),
    ],
)
def test_ratios_stay_in_range(family: str, raw: str, ratio: float | None) -> None:
    found = published(line("DCGM_FI_DEV_GPU_TEMP", 40) + line(family, raw))
    got = [v for name in ("sm_active", "utilization") for v in values(found, f"gpu_{name}_ratio")]
    assert got == ([] if ratio is None else [ratio])


def test_values_beyond_hardware_are_dropped() -> None:
    text = line("DCGM_FI_DEV_GPU_TEMP", 4000) + line("DCGM_FI_DEV_POWER_USAGE", 4e6)
    text += line("DCGM_FI_DEV_SM_CLOCK", 4e9) + line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 4e18)
    assert {name for name, _ in published(text)} == {f"{PREFIX}gpu_up"}


def test_a_gpu_of_blanks_alone_is_down() -> None:
    assert published(page("sentinels_old")) == {
        (
            f"{PREFIX}gpu_up",
            (
                ("gpu", "0"),
                ("model_name", ""),
                ("uuid", "GPU-0077c0de-0000-4000-8000-000000000001"),
            ),
        ): 0.0
    }


# MIG and shared GPUs


def test_readings_of_a_board_are_there_once_and_do_not_add_up() -> None:
    found = published(A100)
    assert values(found, "gpu_power_watts") == [187.213]
    assert values(found, "gpu_energy_joules_total") == [126272101.025]
    assert values(found, "gpu_temperature_celsius", sensor="gpu") == [45.0]
    assert values(found, "gpu_power_watts", gi="", profile="") == [187.213]
    mixed = published(page("mixed_noprof_4.8.3"))
    assert sorted(values(mixed, "gpu_power_watts")) == [41.22, 52.746]


def test_instances_have_their_own_activity_and_memory() -> None:
    found = published(A100)
    assert only(found, "gpu_dram_active_ratio", gi="5", profile="2g.10gb") == 0.71209
    assert sorted(values(found, "gpu_dram_active_ratio")) == [0.0, 0.284411, 0.71209]
    assert only(found, "gpu_memory_used_bytes", gi="1") == 15411 * MIB
    assert sum(values(found, "gpu_memory_used_bytes")) == (15411 + 9311 + 12) * MIB
    assert only(found, "gpu_info", mig="enabled") == 1.0


def test_a_split_gpu_has_no_utilisation() -> None:
    found = published(page("mixed_noprof_4.8.3"))
    assert values(found, "gpu_utilization_ratio") == [0.37]
    assert values(found, "gpu_memory_utilization_ratio") == [0.12]


def test_pods_that_share_a_gpu_are_one_series() -> None:
    text = "".join(line("DCGM_FI_PROF_DRAM_ACTIVE", 0.5, pod=f"worker-{i}") for i in range(50))
    assert values(published(text), "gpu_dram_active_ratio") == [0.5]


def test_the_same_line_twice_is_one_series() -> None:
    assert published(H100 + H100) == published(H100)
