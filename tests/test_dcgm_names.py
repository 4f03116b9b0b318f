"""Types, names and labels of dcgm-exporter, old and new."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tailscope.catalogue import PREFIX
from tailscope.exporter.dcgmpage import DcgmPage
from tests.dcgmpages import (
    H100,
    MIB,
    PAGES,
    UUID_0,
    UUID_2,
    line,
    only,
    page,
    published,
    values,
)


def test_rates_that_are_called_counters_go_down_again(caplog: pytest.LogCaptureFixture) -> None:
    pages = DcgmPage()
    head = "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n# TYPE DCGM_FI_DEV_XID_ERRORS counter\n"
    for rate in (5e9, 2e9, 3e9):
        found = published(head + line("DCGM_FI_PROF_PCIE_TX_BYTES", rate), pages)
        assert only(found, "gpu_pcie_tx_bytes_per_second") == rate
        assert not values(found, "gpu_pcie_tx_bytes_total")
    assert pages.resets == 0
    for path in PAGES:  # NVLink bandwidth holds both directions: it ends in no counter
        assert not values(published(path.read_text()), "gpu_nvlink_tx_bytes_total")


RENAMED = {
    "DCGM_FI_PROF_SM_ACTIVE": ("DCGM_FI_PROF_SM_UTIL_RATIO", 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 1.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("DCGM_FI_PROF_DRAM_UTIL_RATIO", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("DCGM_FI_DEV_GPU_UTIL_RATIO", 1 / 100),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 1 / 100),
    "DCGM_FI_DEV_ENC_UTIL": ("DCGM_FI_DEV_ENC_UTIL_RATIO", 1 / 100),
    "DCGM_FI_DEV_DEC_UTIL": ("DCGM_FI_DEV_DEC_UTIL_RATIO", 1 / 100),
    "DCGM_FI_DEV_POWER_USAGE": ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1.0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1e6),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1e-3),
    "DCGM_FI_DEV_XID_ERRORS": ("DCGM_FI_DEV_XID_ERROR", 1.0),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 1.0),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", 1.0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 1.0),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("DCGM_FI_DEV_ROW_REMAP_FAILED", 1.0),
    "DCGM_FI_DEV_FB_FREE": ("DCGM_FI_DEV_FB_FREE_BYTES", float(MIB)),
    "DCGM_FI_DEV_FB_USED": ("DCGM_FI_DEV_FB_USED_BYTES", float(MIB)),
    "DCGM_FI_DEV_FB_RESERVED": ("DCGM_FI_DEV_FB_RESERVED_BYTES", float(MIB)),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (
        "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        1024e3,
    ),
}


def renamed(text: str) -> str:
    """Write a page as dcgm-exporter 4.9 would."""
    out = []
    for each in text.replace("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION").split("\n"):
        name = re.split(r"[{ ]", each, maxsplit=1)[0]
        if name in RENAMED:
            new, factor = RENAMED[name]
            series, _, number = each.rpartition(" ")
            each = f"{series.replace(name, new, 1)} {float(number) * factor!r}"
        elif each.startswith("# "):
            _, word, name, rest = each.split(" ", 3)
            each = f"# {word} {RENAMED.get(name, (name,))[0]} {rest}"
        out.append(each)
    return "\n".join(out)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_same_machine_in_both_vocabularies_reads_the_same(path: Path) -> None:
    old, new = published(path.read_text()), published(renamed(path.read_text()))
    assert old.keys() == new.keys()
    for series, value in old.items():
        assert math.isclose(value, new[series], rel_tol=1e-12), series


def test_an_upgrade_while_we_watch_counts_no_reset() -> None:
    pages = DcgmPage()
    before = published(H100, pages)
    after = published(renamed(H100), pages)
    assert before.keys() == after.keys()
    assert only(after, "gpu_energy_joules_total", gpu="0") == pytest.approx(1148209335.127)


@pytest.mark.parametrize("label", ["Hostname", "hostname"])
def test_the_machine_s_name_makes_no_difference(label: str) -> None:
    assert published(H100.replace('hostname="', f'{label}="')) == published(H100)


def test_labels_of_old_pages() -> None:
    found = published(page("t4_docker_3.1"))
    info = dict(next(own for name, own in found if name == f"{PREFIX}gpu_info"))
    assert info == {
        "gpu": "0",
        "uuid": "GPU-0e55c0de-0000-4e00-8e00-0000000000f5",
        "model_name": "Tesla T4",
        "pci_bus_id": "",
        "driver": "",
        "mig": "",
    }
    assert not values(found, "gpu_temperature_celsius", sensor="memory")
    assert not values(found, "gpu_memory_total_bytes")  # what is reserved is not told
    spaced = 'DCGM_FI_DEV_GPU_TEMP{gpu="0", uuid="GPU-y"} 41\n'
    assert only(published(spaced), "gpu_temperature_celsius", uuid="GPU-y") == 41.0


def test_a_blank_first_line_and_windows_ends_do_not_matter() -> None:
    assert H100.startswith("\n")
    assert published(H100.lstrip("\n")) == published(H100)
    assert published(H100.replace("\n", "\r\n")) == published(H100)


def test_time_stamps_are_no_values() -> None:
    pages = DcgmPage()
    for stamp in (1700000000000, 1700000001000):
        found = published(line("DCGM_FI_PROF_DRAM_ACTIVE", f"0.5 {stamp}"), pages)
        assert values(found, "gpu_dram_active_ratio") == [0.5]


def test_an_idle_gpu_is_0_and_not_absent() -> None:
    found = published(H100)
    for metric in ("sm_active_ratio", "tensor_active_ratio", "utilization_ratio"):
        assert only(found, f"gpu_{metric}", uuid=UUID_2) == 0.0
    assert only(found, "gpu_memory_used_bytes", uuid=UUID_2) == 0.0
    assert only(found, "gpu_dram_active_ratio", uuid=UUID_2) == 0.000012


def test_the_size_of_the_memory_is_the_sum_of_its_parts_where_all_are_told() -> None:
    total = only(published(H100), "gpu_memory_total_bytes", uuid=UUID_0)
    assert total == 81559 * MIB  # what nvidia-smi says of an H100 80GB
    without = re.sub(r"DCGM_FI_DEV_FB_RESERVED\{.*\n", "", H100)
    assert not values(published(without), "gpu_memory_total_bytes")


def test_series_of_other_devices_are_no_gpus() -> None:
    text = H100 + 'DCGM_FI_DEV_GPU_TEMP{nvswitch="1",Hostname="n"} 40\n'
    text += 'DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch="1"} 40\n'
    text += 'DCGM_FI_DEV_CPU_TEMP_CURRENT{cpu="0"} 50\n'
    assert published(text) == published(H100)
