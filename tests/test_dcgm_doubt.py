"""Activity that dcgm-exporter says is 0 while the GPU works (its issue 662, DCGM issue 303)."""

from __future__ import annotations

import pytest

from tailscope.exporter.dcgmpage import DcgmPage
from tests.dcgmpages import line, published, values

SM, GRAPHICS = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def stuck(active: str, pages: int, **more: float) -> list[list[float]]:
    """What is read of pages on which the counters stand still, and then of one where they move."""
    known = {"DCGM_FI_DEV_GPU_UTIL": 100, "DCGM_FI_PROF_DRAM_ACTIVE": 0.0}
    known |= {f"DCGM_FI_DEV_{name}": value for name, value in more.items()}
    reader = DcgmPage()
    found = []
    for number in range(pages + 1):
        text = "".join(line(name, value) for name, value in known.items())
        text += line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000 * number)
        text += line(active, 0.0 if number < pages else 0.4)
        found.append(values(published(text, reader), "gpu_dram_active_ratio"))
    return found


@pytest.mark.parametrize("active", [SM, GRAPHICS])
@pytest.mark.parametrize(
    "more",
    [{"MEM_COPY_UTIL": 30}, {"POWER_USAGE": 600, "ENFORCED_POWER_LIMIT": 700}],
    ids=["memory", "power"],
)
def test_it_is_left_out_until_it_moves_again(active: str, more: dict[str, float]) -> None:
    found = stuck(active, 14, **more)
    assert found[:10] == [[0.0]] * 10
    assert found[10:14] == [[]] * 4
    assert found[14] == [0.0]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"MEM_COPY_UTIL": 0},
        {"MEM_COPY_UTIL": 30, "POWER_USAGE": 80, "ENFORCED_POWER_LIMIT": 700},
        {"MEM_COPY_UTIL": 30, "GPU_UTIL": 3},
    ],
)
def test_without_proof_of_work_it_is_believed(more: dict[str, float]) -> None:
    assert stuck(SM, 14, **more) == [[0.0]] * 15


def test_a_page_that_is_read_again_is_one_page() -> None:
    reader = DcgmPage()
    text = line("DCGM_FI_DEV_GPU_UTIL", 100) + line("DCGM_FI_DEV_MEM_COPY_UTIL", 30) + line(SM, 0.0)
    for _ in range(40):
        assert values(published(text, reader), "gpu_sm_active_ratio") == [0.0]
