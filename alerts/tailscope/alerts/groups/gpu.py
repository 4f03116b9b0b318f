"""The hardware: held back, reporting faults, lost, or bound by its memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tailscope.alerts.model import Alert, Group, PanelLink, Severity
from tailscope.alerts.queries import GPU, LONG, SHORT, STEADY
from tailscope.alerts.thresholds import Limits
from tailscope.catalogue import xid
from tailscope.catalogue.promql import TARGET_LABELS, compare, either, every, ratio, unless

_THROTTLED: Final = "gpu_throttled_seconds_total"
_SM: Final = {"domain": "sm"}
_WHERE: Final = "GPU {{ .Labels.gpu }} ({{ .Labels.model_name }}) of {{ .Labels.instance }}"
_XID: Final = (*GPU, "xid", "action")
_XIDS: Final = "gpu_xid_errors_total"

_DRAIN: Final = (
    xid.RESET_GPU, xid.RESTART_NODE, xid.RESTART_VM, xid.CHECK_MECHANICALS, xid.CONTACT_SUPPORT,
)  # fmt: skip
_READ: Final = (xid.CHECK_LOG, xid.UNKNOWN, xid.UPDATE_SOFTWARE)


def _thermal(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeGpuThermalThrottle",
        severity=Severity.CRITICAL,
        cause="gpu_thermal",
        expr=compare(
            SHORT.rate(_THROTTLED, GPU, {"reason": "~thermal|sw_thermal|hw_thermal"}),
            ">",
            limits.thermal.value,
        ),
        lasts="2m",
        lingers="10m",
        labels=GPU,
        summary=f"{_WHERE} is too hot and slows down",
        description=f"{_WHERE} was held back by heat for {{{{ .Value | humanizePercentage }}}} of "
        f"the last 5 minutes (limit {limits.thermal.percent}). Every request on it is slower, and "
        "with several GPUs the others wait for this one.",
        panel=PanelLink("tailscope-gpu", 201),
    )


def _power(limits: Limits) -> Alert:
    capped = every(
        compare(
            LONG.rate(_THROTTLED, GPU, {"reason": "sw_power_cap"}), ">", limits.power_cap.value
        ),
        compare(
            ratio(
                LONG.gauge("gpu_clock_hertz", GPU, _SM), LONG.gauge("gpu_clock_max_hertz", GPU, _SM)
            ),
            "<",
            limits.slow_clock.value,
        ),
        on=GPU,
    )
    braked = compare(
        LONG.rate(_THROTTLED, GPU, {"reason": "hw_power_brake"}), ">", limits.thermal.value
    )
    return Alert(
        name="TailscopeGpuPowerThrottle",
        severity=Severity.WARNING,
        cause="gpu_power",
        expr=either(capped, braked),
        lasts="10m",
        labels=GPU,
        summary=f"{_WHERE} is short of power and slows down",
        description=f"{_WHERE} was held back for want of power for "
        "{{ .Value | humanizePercentage }} of the last 10 minutes "
        f"(limits {limits.power_cap.percent} at a clock under {limits.slow_clock.percent} of its "
        f"maximum, or {limits.thermal.percent} by the power brake).",
        panel=PanelLink("tailscope-gpu", 202),
    )


def _events(actions: tuple[str, ...], window: str) -> str:
    """Events of the window; from the second on also those whose series is new."""
    query = replace(SHORT, window=window)
    return compare(query.increase(_XIDS, _XID, {"action": "~" + "|".join(actions)}), ">", 0)


def _xid(name: str, severity: Severity, actions: tuple[str, ...], what: str) -> Alert:
    return Alert(
        name=name,
        severity=severity,
        cause="gpu_xid",
        expr=_events(actions, "30m"),
        lasts="0m",
        labels=_XID,
        summary=f"XID {{{{ .Labels.xid }}}} on {_WHERE}: {what}",
        description=f"The driver reported XID {{{{ .Labels.xid }}}} on {_WHERE} in the last 30 "
        "minutes; NVIDIA's catalogue asks for the action {{ .Labels.action }}.",
        panel=PanelLink("tailscope-gpu", 303),
    )


def _lost() -> Alert:
    seen = replace(SHORT, window="1h").last("gpu_up", GPU)
    present = SHORT.gauge("gpu_up", GPU)
    # A GPU that fell off the bus may have no series at all; of an exporter that is gone, too,
    # another alert tells.
    gone = every(
        unless(seen, present, on=GPU), SHORT.gauge("build_info", TARGET_LABELS), on=TARGET_LABELS
    )
    return Alert(
        name="TailscopeGpuLost",
        severity=Severity.CRITICAL,
        cause="gpu_lost",
        expr=either(compare(present, "==", 0), gone),
        lasts="3m",
        labels=GPU,
        summary=f"{_WHERE} is lost",
        description=f"{_WHERE} was there within the last hour and cannot be read any more, while "
        "its exporter answers. What ran on it has failed or hangs.",
        panel=PanelLink("tailscope-gpu", 301),
    )


def _bandwidth(limits: Limits) -> Alert:
    return Alert(
        name="TailscopeGpuBandwidthBound",
        severity=Severity.INFO,
        cause="memory_bandwidth",
        expr=every(
            compare(
                STEADY.time_mean("gpu_dram_active_ratio", GPU), ">", limits.bandwidth_high.value
            ),
            compare(STEADY.time_mean("gpu_sm_active_ratio", GPU), "<", limits.compute_low.value),
            on=GPU,
        ),
        lasts="30m",
        labels=GPU,
        summary=f"{_WHERE} waits for its memory",
        description=f"{_WHERE} moved data in {{{{ .Value | humanizePercentage }}}} of its memory's "
        "cycles over 15 minutes, with work on less than "
        f"{limits.compute_low.percent} of its multiprocessors' cycles. A larger batch or smaller "
        "weights make it faster; a higher clock does not.",
        panel=PanelLink("tailscope-gpu", 102),
    )


def group(limits: Limits) -> Group:
    """Return the rules."""
    return Group(
        "tailscope-gpu",
        (
            _thermal(limits),
            _power(limits),
            _xid("TailscopeXidFatal", Severity.CRITICAL, _DRAIN, "drain it"),
            _xid(
                "TailscopeXidApplication",
                Severity.WARNING,
                (xid.RESTART_APP,),
                "a program on it failed",
            ),
            _xid("TailscopeXidUnclear", Severity.WARNING, _READ, "read the kernel log"),
            _lost(),
            _bandwidth(limits),
        ),
    )
