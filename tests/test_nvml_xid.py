"""XID events: counted as they come, over the life of GPUs and drivers."""

from __future__ import annotations

import json

from tests.fakenvml.fixtures import Start, fake, start
from tests.fakenvml.rig import Rig
from tests.process import until

__all__ = ["fake", "start"]


Xid = tuple[str, str, str, str]
"""GPU, instance, code, action."""


def _xids(rig: Rig) -> dict[Xid, float]:
    return {
        (s.labels["gpu"], s.labels["gi"], s.labels["xid"], s.labels["action"]): s.value
        for s in rig.page().all("gpu_xid_errors_total")
        if s.value
    }


def _until(rig: Rig, expected: dict[Xid, float]) -> None:
    def come() -> bool:
        rig.change()
        return _xids(rig) == expected

    until(come, f"the events {expected}")


def _watched(rig: Rig, *gpus: int) -> None:
    """Wait until the events of these GPUs are waited for."""
    for gpu in gpus:
        rig.wait(f"nvmlDeviceRegisterEvents {gpu}")
    rig.clear()
    rig.wait("nvmlEventSetWait")


def test_xid_events_are_counted(start: Start) -> None:
    rig = start(count=2, xids=1, xid__1="0:48")  # before the exporter: lost
    rig.read()
    _watched(rig, 0, 1)
    assert _xids(rig) == {}
    page = rig.page()
    assert page.get("gpu_xid_errors_total", gpu="1", xid="79", action="restart_node") == 0
    assert not page.all("gpu_xid_last_timestamp_seconds")
    rig.change(xids=4, xid__2="1:79", xid__3="0:31", xid__4="1:79")
    expected = {
        ("1", "", "79", "restart_node"): 2.0,
        ("0", "", "31", "restart_app"): 1.0,
    }
    _until(rig, expected)
    assert (rig.page().get("gpu_xid_last_timestamp_seconds", gpu="1") or 0) > 1.7e9
    rig.change(xids=6, xid__5="0:777", xid__6="0:144:3")
    expected[("0", "", "777", "unknown")] = 1.0
    expected[("0", "3", "144", "check_log")] = 1.0
    _until(rig, expected)
    assert "XID 79, restart_node" in rig.log
    rig.do("samples")
    rig.tick()
    stored = {
        (json.loads(labels)["xid"], value)
        for _, metric, labels, value in rig.do("samples")
        if metric == "tailscope_gpu_xid_errors_total"
    }
    assert stored == {("79", 2.0), ("31", 1.0), ("777", 1.0), ("144", 1.0)}


def test_a_storm_of_events_is_counted_and_fills_no_log(start: Start) -> None:
    rig = start(count=1)
    rig.read()
    _watched(rig, 0)
    rig.change(xids=40, **{f"xid__{event}": "0:31" for event in range(1, 41)})
    _until(rig, {("0", "", "31", "restart_app"): 40.0})
    told = [line for line in rig.log.splitlines() if "XID 31" in line]
    assert [line.rpartition("restart_app")[2] for line in told] == [
        "",
        *(f", {count} times now" for count in (2, 4, 8, 16, 32)),
    ]


def test_an_event_of_an_instance_has_its_profile(start: Start) -> None:
    name = "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    split = {"gpu0__mig": 1, "gpu0__mig0__gi": 2, "gpu0__mig0__uuid": "MIG-a"}
    rig = start(xids=0, gpu0__mig0__name=name, **split)
    rig.read()
    _watched(rig, 0)
    rig.change(xids=2, xid__1="0:31:2", xid__2="0:31:5")
    _until(rig, {("0", "2", "31", "restart_app"): 1.0, ("0", "5", "31", "restart_app"): 1.0})
    page = rig.page()
    assert page.get("gpu_xid_errors_total", gi="2", xid="31", profile="3g.40gb") == 1
    # One that is not known is told by its number.
    assert page.get("gpu_xid_errors_total", gi="5", xid="31", profile="") == 1


def test_xid_counts_outlive_the_gpu_and_the_driver(start: Start) -> None:
    rig = start(count=2)
    rig.read()
    _watched(rig, 0, 1)
    rig.change(xids=1, xid__1="1:79")
    _until(rig, {("1", "", "79", "restart_node"): 1.0})
    rig.tick(gpu1__lost=1)
    assert rig.ups() == {"0": 1, "1": 0}
    assert _xids(rig) == {("1", "", "79", "restart_node"): 1.0}
    rig.clear()
    rig.tick(epoch=1, gpu1__lost=None)
    _watched(rig, 0, 1)
    rig.change(xids=2, xid__2="1:79")
    _until(rig, {("1", "", "79", "restart_node"): 2.0})


def test_gpus_without_events(start: Start) -> None:
    rig = start(count=2, gpu0__nvmlDeviceRegisterEvents__ret=3)
    rig.read()
    _watched(rig, 0, 1)  # GPU 0 was asked
    assert rig.ups() == {"0": 1, "1": 1}
    assert not rig.page().all("gpu_xid_errors_total", gpu="0")  # not watched is not "none"
    assert rig.page().all("gpu_xid_errors_total", gpu="1")


def test_a_wait_that_fails_begins_anew(start: Start) -> None:
    rig = start(count=2, nvmlEventSetWait_v2__ret=999)
    rig.read()
    rig.wait("nvmlEventSetFree")
    rig.clear()
    rig.change(nvmlEventSetWait_v2__ret=None)
    _watched(rig, 0, 1)
    rig.change(xids=1, xid__1="0:13")
    _until(rig, {("0", "", "13", "restart_app"): 1.0})
    errors = rig.page().get("gpu_call_errors_total", call="nvmlEventSetWait", code="unknown_error")
    assert errors is not None and errors < 10  # with a pause between two tries
