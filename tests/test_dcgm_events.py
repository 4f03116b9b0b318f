"""What of dcgm-exporter is told over time: events, counters, GPUs that go."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from tailscope.catalogue import PREFIX, xid
from tailscope.exporter.dcgmpage import DcgmPage
from tests.dcgmpages import (
    H100,
    PAGES,
    UUID_0,
    UUID_1,
    Clock,
    Series,
    line,
    only,
    published,
    values,
)

# Events


def xids(code: int, **more: str) -> str:
    return line("DCGM_FI_DEV_GPU_TEMP", 40) + line(
        "DCGM_FI_DEV_XID_ERRORS", code, err_code=str(code), err_msg=f"error {code}", **more
    )


def counts(found: Mapping[Series, float]) -> dict[int, float]:
    return {
        int(dict(own)["xid"]): value
        for (name, own), value in found.items()
        if name == f"{PREFIX}gpu_xid_errors_total" and value
    }


def test_an_old_event_is_none_and_a_change_is_one() -> None:
    clock = Clock()
    pages = DcgmPage(clock)
    seen, when = [], []
    for code in (94, 94, 0, 94, 79, 79, 0, 0, 5):
        clock.now += 1
        found = published(xids(code), pages)
        seen.append(counts(found))
        when.append(values(found, "gpu_xid_last_timestamp_seconds"))
    assert seen[:3] == [{}, {}, {}]
    assert seen[3] == {94: 1}
    assert seen[4:8] == [{94: 1, 79: 1}] * 4
    assert seen[8] == {94: 1, 79: 1, 5: 1}
    assert only(found, "gpu_xid_errors_total", xid="79", action=xid.RESTART_NODE) == 1
    assert when == [[]] * 3 + [[1004.0]] + [[1005.0]] * 4 + [[1009.0]]


def test_codes_that_matter_are_counted_from_0_where_events_are_told() -> None:
    found = published(xids(0))
    assert {
        int(dict(own)["xid"]) for name, own in found if name == f"{PREFIX}gpu_xid_errors_total"
    } == set(xid.FORESEEN)
    assert not values(found, "gpu_xid_last_timestamp_seconds")
    assert not values(published(line("DCGM_FI_DEV_GPU_TEMP", 40)), "gpu_xid_errors_total")


def test_an_event_of_a_split_gpu_is_one_event() -> None:
    pages = DcgmPage()

    def split(*codes: int) -> dict[int, float]:
        text = "".join(
            xids(code, GPU_I_ID=str(gi), GPU_I_PROFILE="1g.5gb") for gi, code in enumerate(codes)
        )
        return counts(published(text, pages))

    assert split(0, 0, 0) == {}
    assert split(0, 31, 0) == {31: 1}
    assert split(31, 31, 31) == {31: 1}
    assert split(31, 31) == {31: 1}


def test_the_exporter_s_own_counts_are_better() -> None:
    clock = Clock()
    pages = DcgmPage(clock)

    def read(last: int, **totals: int) -> dict[int, float]:
        clock.now += 1
        text = xids(last) + "".join(
            line("DCGM_EXP_XID_ERRORS_TOTAL", total, xid=code[1:]) for code, total in totals.items()
        )
        return counts(published(text, pages))

    assert read(31, c31=3) == {}  # of before we looked
    assert read(31, c31=5) == {31: 2}
    assert read(13, c31=5, c13=1) == {31: 2, 13: 1}
    assert read(13, c31=5, c13=1) == {31: 2, 13: 1}
    assert read(31, c31=1) == {31: 3, 13: 1}  # the exporter began anew
    assert read(31, c31=2, c13=1) == {31: 4, 13: 2}


def test_an_event_that_both_show_is_one() -> None:
    pages = DcgmPage()
    assert counts(published(xids(0), pages)) == {}
    assert counts(published(xids(79), pages)) == {79: 1}
    late = xids(79) + line("DCGM_EXP_XID_ERRORS_TOTAL", 1, xid="79")
    assert counts(published(late, pages)) == {79: 1}


@pytest.mark.parametrize("code", ["0", "-1", "1000", "x", "", "31.5", "٣"])
def test_codes_out_of_bounds_make_no_series(code: str) -> None:
    pages = DcgmPage()
    for total in (1, 2):
        text = xids(0) + line("DCGM_EXP_XID_ERRORS_TOTAL", total, xid=code)
        assert counts(published(text, pages)) in ({}, {3: 1.0})


# Time: counters, GPUs that go, integrals


def test_a_reloaded_driver_carries_the_counters_on() -> None:
    pages = DcgmPage()
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    totals = [
        only(published(line(energy, raw), pages), "gpu_energy_joules_total")
        for raw in (5_000_000, 6_000_000, 1_000, 2_000)
    ]
    assert totals == [5000.0, 6000.0, 6001.0, 6002.0]
    assert pages.resets == 1


def without(text: str, uuid: str) -> str:
    return "\n".join(each for each in text.split("\n") if uuid not in each)


def test_a_gpu_that_vanishes_is_down_and_the_others_go_on() -> None:
    pages = DcgmPage()
    whole = published(H100, pages)
    rest = published(without(H100, UUID_1), pages)
    assert only(rest, "gpu_up", uuid=UUID_1) == 0.0
    assert [name for name, own in rest if ("uuid", UUID_1) in own] == [f"{PREFIX}gpu_up"]
    assert {s: v for s, v in whole.items() if ("uuid", UUID_1) not in s[1]} == {
        s: v for s, v in rest.items() if ("uuid", UUID_1) not in s[1]
    }
    assert published(H100, pages) == whole


def test_a_lost_gpu_of_which_only_the_last_event_is_left_is_down() -> None:
    pages = DcgmPage()
    published(H100, pages)
    left = without(H100, UUID_0) + "\n" + line("DCGM_FI_DEV_XID_ERRORS", 79, UUID=UUID_0)
    found = published(left, pages)
    assert only(found, "gpu_up", uuid=UUID_0) == 0.0
    assert only(found, "gpu_xid_errors_total", uuid=UUID_0, xid="79") == 1.0


def test_logging_is_quiet_on_good_pages(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for path in PAGES:
            published(path.read_text())
    assert not caplog.records
