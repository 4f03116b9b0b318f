"""NVML: its calls, fields and GPM metrics, and the metrics of ours that they become.

Numbers and units were read in NVIDIA's nvml.h and in the releases of ``nvidia-ml-py``.
``nvmlDeviceGetPcieThroughput`` is not here on purpose: it blocks 20 ms for each direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tailscope.catalogue.model import PREFIX


class Way(NamedTuple):
    """One way to ask: name of the ``pynvml`` function, and what follows the handle."""

    function: str
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """One number of an answer, and what becomes of it.

    Attributes:
        metric: Name of our metric.
        item: Attribute or index in the answer; empty if the answer is the number.
        times: What it is multiplied by to come into our unit.
        over: What it is divided by.
        more: Values of the labels that follow those of a GPU.
    """

    metric: str
    item: str | int = ""
    times: float = 1.0
    over: float = 1.0
    more: tuple[str, ...] = ()

    def ours(self, raw: float) -> float:
        """Return a number of NVML's in our unit."""
        return raw * self.times / self.over


@dataclass(frozen=True, slots=True)
class Call:
    """One question to a GPU.

    Attributes:
        ways: How to ask, preferred way first; a library or a GPU may lack the first.
        values: What the answer holds.
        seldom: Whether it hardly changes, so that it is asked once in ``SELDOM_SECONDS``.
    """

    ways: tuple[Way, ...]
    values: tuple[Value, ...]
    seldom: bool = False


def _value(
    metric: str,
    item: str | int = "",
    *,
    times: float = 1.0,
    over: float = 1.0,
    more: tuple[str, ...] = (),
) -> Value:
    return Value(f"{PREFIX}gpu_{metric}", item, times, over, more)


_CENT, _KILO, _MEGA, _GIGA, _MIB = 1e2, 1e3, 1e6, 1e9, float(1 << 20)

SELDOM_SECONDS = 10.0

_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_SENSOR_GPU = 0
_THRESHOLD_SLOWDOWN, _THRESHOLD_MEMORY_MAX = 1, 2
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_MEMORY_V2 = 0x02000028

MEMORY = Call(
    # Since R510 version 1 counts what the driver reserves as used; R510 also brought version 2.
    (Way("nvmlDeviceGetMemoryInfo", (_MEMORY_V2,)), Way("nvmlDeviceGetMemoryInfo")),
    (
        _value("memory_used_bytes", "used"),
        _value("memory_free_bytes", "free"),
        _value("memory_reserved_bytes", "reserved"),
        _value("memory_total_bytes", "total"),
    ),
)

CALLS: tuple[Call, ...] = (
    Call(
        (Way("nvmlDeviceGetUtilizationRates"),),
        (
            _value("utilization_ratio", "gpu", over=_CENT),
            _value("memory_utilization_ratio", "memory", over=_CENT),
        ),
    ),
    MEMORY,
    Call((Way("nvmlDeviceGetPowerUsage"),), (_value("power_watts", over=_KILO),)),
    Call(
        (Way("nvmlDeviceGetTotalEnergyConsumption"),),
        (_value("energy_joules_total", over=_KILO),),
    ),
    Call(
        (
            Way("nvmlDeviceGetTemperature", (_SENSOR_GPU,)),
            Way("nvmlDeviceGetTemperatureV", (_SENSOR_GPU,)),
        ),
        (_value("temperature_celsius", more=("gpu",)),),
    ),
    *(
        Call(
            (Way("nvmlDeviceGetClockInfo", (clock,)),),
            (_value("clock_hertz", times=_MEGA, more=(domain,)),),
        )
        for clock, domain in ((_CLOCK_SM, "sm"), (_CLOCK_MEMORY, "memory"))
    ),
    *(
        Call(
            (Way("nvmlDeviceGetMaxClockInfo", (clock,)),),
            (_value("clock_max_hertz", times=_MEGA, more=(domain,)),),
            seldom=True,
        )
        for clock, domain in ((_CLOCK_SM, "sm"), (_CLOCK_MEMORY, "memory"))
    ),
    Call(
        (Way("nvmlDeviceGetEnforcedPowerLimit"),),
        (_value("power_limit_watts", over=_KILO),),
        seldom=True,
    ),
    *(
        Call(
            (Way("nvmlDeviceGetTemperatureThreshold", (threshold,)),),
            (_value("slowdown_temperature_celsius", more=(sensor,)),),
            seldom=True,
        )
        for threshold, sensor in ((_THRESHOLD_SLOWDOWN, "gpu"), (_THRESHOLD_MEMORY_MAX, "memory"))
    ),
    *(
        Call(
            (Way("nvmlDeviceGetTotalEccErrors", (kind, _VOLATILE)),),
            (_value("ecc_errors_total", more=(name,)),),
            seldom=True,
        )
        for kind, name in ((_CORRECTED, "corrected"), (_UNCORRECTED, "uncorrected"))
    ),
    Call(
        (Way("nvmlDeviceGetRemappedRows"),),
        (
            _value("remapped_rows", 0, more=("corrected",)),
            _value("remapped_rows", 1, more=("uncorrected",)),
            _value("remap_pending", 2),
            _value("remap_failed", 3),
        ),
        seldom=True,
    ),
    Call((Way("nvmlDeviceGetPcieReplayCounter"),), (_value("pcie_replays_total"),), seldom=True),
)
"""What a whole GPU is asked, one call each."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of ``nvmlDeviceGetFieldValues``; all are read in one call.

    Of several fields for one series, the first that answers counts.

    Attributes:
        value: What becomes of it.
        number: Its number in nvml.h.
        scope: Which part of the GPU it is asked of.
        since: First driver in which the number means this.
        wide: Whether only a value of 64 bits counts.
    """

    value: Value
    number: int
    scope: int = 0
    since: tuple[int, int] = (0, 0)
    wide: bool = False


_ALL_LINKS = 0xFFFFFFFF
_RENUMBERED = (580, 82)
"""The counters of time by reason had the numbers 251 to 253 in R575 and in R580 before this one,
which mean power smoothing before and since; there the bitmask is integrated in their place."""


def _throttled(reason: str, number: int, since: tuple[int, int] = (0, 0)) -> Field:
    value = _value("throttled_seconds_total", over=_GIGA, more=(reason,))
    return Field(value, number, since=since, wide=True)


RECOVERY_ACTION_FIELD = 230
RECOVERY_ACTIONS: Mapping[int, str] = MappingProxyType(
    {0: "none", 1: "reset_gpu", 2: "restart_node", 3: "drain_p2p", 4: "drain_and_reset"}
)
"""What the driver asks for. 5 meant another thing in R580 than since R610: as all others, it is
``other``."""

FIELDS: tuple[Field, ...] = (
    Field(_value("temperature_celsius", more=("memory",)), 82),
    _throttled("sw_power_cap", 74),
    _throttled("sync_boost", 76),
    _throttled("sw_thermal", 269, _RENUMBERED),
    _throttled("hw_thermal", 270, _RENUMBERED),
    _throttled("hw_power_brake", 271, _RENUMBERED),
    # Of 32 bits, they would go round in less than a second.
    Field(_value("pcie_tx_bytes_total"), 197, wide=True),
    Field(_value("pcie_rx_bytes_total"), 198, wide=True),
    # 138, 139: data in KiB. 202, 204: bytes on the wire, NVLink 5.
    Field(_value("nvlink_tx_bytes_total", times=1024.0), 138, _ALL_LINKS, wide=True),
    Field(_value("nvlink_tx_bytes_total"), 202, _ALL_LINKS, wide=True),
    Field(_value("nvlink_rx_bytes_total", times=1024.0), 139, _ALL_LINKS, wide=True),
    Field(_value("nvlink_rx_bytes_total"), 204, _ALL_LINKS, wide=True),
    Field(_value("recovery_action"), RECOVERY_ACTION_FIELD),
)

VALUE_MEMBERS: tuple[str, ...] = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of the union that holds a field's value, by its type."""
WIDE_TYPES = frozenset({2, 3, 4})

EVENT_REASONS: tuple[Way, ...] = (
    Way("nvmlDeviceGetCurrentClocksEventReasons"),
    Way("nvmlDeviceGetCurrentClocksThrottleReasons"),  # before R535
)
REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x2: "application_clocks",
        0x4: "sw_power_cap",
        0x8: "hw_slowdown",
        0x10: "sync_boost",
        0x20: "sw_thermal",
        0x40: "hw_thermal",
        0x80: "hw_power_brake",
    }
)
"""Bit to reason for which clocks are held down. Idleness (1) and a display's setting (0x100) are
none."""


@dataclass(frozen=True, slots=True)
class GpmMetric:
    """One metric of GPM, which NVML computes from two samples.

    Attributes:
        number: Its number in nvml.h.
        value: What becomes of it.
        board: Whether it is of the whole GPU only, not of a GPU instance.
        unless: The counter beside which this rate is not needed.
    """

    number: int
    value: Value
    board: bool = False
    unless: str = ""


def _link(number: int, name: str) -> GpmMetric:
    value = _value(f"{name}_bytes_per_second", times=_MIB)
    return GpmMetric(number, value, board=True, unless=f"{PREFIX}gpu_{name}_bytes_total")


SM_ACTIVE = f"{PREFIX}gpu_sm_active_ratio"

GPM: tuple[GpmMetric, ...] = (
    GpmMetric(1, _value("graphics_active_ratio", over=_CENT)),
    GpmMetric(2, _value("sm_active_ratio", over=_CENT)),
    GpmMetric(3, _value("sm_occupancy_ratio", over=_CENT)),
    GpmMetric(5, _value("tensor_active_ratio", over=_CENT)),
    GpmMetric(10, _value("dram_active_ratio", over=_CENT)),
    _link(20, "pcie_tx"),
    _link(21, "pcie_rx"),
    _link(60, "nvlink_rx"),
    _link(61, "nvlink_tx"),
)

UNSUPPORTED = frozenset({3, 13, 25, 26})
"""Not supported, function not found, argument version mismatch, deprecated: not asked again."""
LOST = frozenset({15, 16})
"""GPU is lost, reset required: nothing of this GPU can be read."""
GONE = frozenset({1, 9, 18, 28})
"""Uninitialized, driver not loaded, library and driver differ, GPU not found: NVML has to be
opened anew."""
TIMEOUT = 10

CODES: Mapping[int, str] = MappingProxyType(
    {
        1: "uninitialized",
        2: "invalid_argument",
        3: "not_supported",
        4: "no_permission",
        6: "not_found",
        7: "insufficient_size",
        8: "insufficient_power",
        9: "driver_not_loaded",
        TIMEOUT: "timeout",
        11: "irq_issue",
        12: "library_not_found",
        13: "function_not_found",
        14: "corrupted_inforom",
        15: "gpu_is_lost",
        16: "reset_required",
        17: "operating_system",
        18: "driver_mismatch",
        19: "in_use",
        20: "out_of_memory",
        21: "no_data",
        23: "insufficient_resources",
        25: "version_mismatch",
        26: "deprecated",
        27: "not_ready",
        28: "gpu_not_found",
        29: "invalid_state",
        999: "unknown_error",
    }
)
"""What NVML returns, in a word."""

ADVICE: Mapping[int, str] = MappingProxyType(
    {
        4: "give this process access to /dev/nvidiactl and /dev/nvidia0, /dev/nvidia1, ...",
        9: "the NVIDIA driver is not loaded",
        12: "libnvidia-ml.so.1 is not found: is the NVIDIA driver installed? In a container, set "
        "runtimeClassName: nvidia, or NVIDIA_VISIBLE_DEVICES=all",
        18: "the driver was replaced while this process runs, with the old library in it: restart "
        "the exporter",
        28: "NVML finds no GPU: is one given to this container?",
        999: "in a container, the GPUs are lost after `systemctl daemon-reload`: recreate it",
    }
)
"""What a person can do, by code."""
