"""What is mapped: the names and units of each field, old and new, and the metric it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tailscope.catalogue.dcgm.field import (
    AS_IS,
    MEGAHERTZ,
    MIB,
    MILLIJOULES,
    NANOSECONDS,
    PERCENT,
    THOUSAND_KIB,
    Field,
    Level,
    Scale,
)
from tailscope.catalogue.model import PREFIX


def _names(names: Mapping[str, Scale]) -> Mapping[str, Scale]:
    return MappingProxyType({f"DCGM_FI_{name}": scale for name, scale in names.items()})


def _field(
    metric: str,
    names: Mapping[str, Scale],
    level: Level = Level.BOARD,
    zero_is_blank: bool = False,
    last_event: bool = False,
    **fixed: str,
) -> Field:
    return Field(
        f"{PREFIX}gpu_{metric}",
        _names(names),
        fixed=MappingProxyType(fixed),
        level=level,
        zero_is_blank=zero_is_blank,
        last_event=last_event,
    )


def _activity(metric: str, *names: str, level: Level = Level.INSTANCE) -> Field:
    scaled = _names(dict.fromkeys(names, AS_IS))
    return Field(f"{PREFIX}gpu_{metric}", scaled, level=level, activity=True)


def _throttled(reason: str, *names: str, seconds: str = "") -> Field:
    scaled = dict.fromkeys(names, NANOSECONDS)
    if seconds:
        scaled[f"DEV_GPU_{seconds}_THROTTLE_SECONDS_TOTAL"] = AS_IS
    return _field("throttled_seconds_total", scaled, reason=reason)


_EVENT = "DEV_CLOCKS_EVENT_REASON_"

FIELDS: tuple[Field, ...] = (
    # Profiling fields 1001-1005. SM activity and occupancy are off in the default file.
    _activity("sm_active_ratio", "PROF_SM_UTIL_RATIO", "PROF_SM_ACTIVE"),
    _activity("sm_occupancy_ratio", "PROF_SM_OCCUPANCY_RATIO", "PROF_SM_OCCUPANCY"),
    _activity("tensor_active_ratio", "PROF_TENSOR_UTIL_RATIO", "PROF_PIPE_TENSOR_ACTIVE"),
    _activity("dram_active_ratio", "PROF_DRAM_UTIL_RATIO", "PROF_DRAM_ACTIVE"),
    _activity("graphics_active_ratio", "PROF_GR_ENGINE_UTIL_RATIO", "PROF_GR_ENGINE_ACTIVE"),
    # Profiling fields 1009-1012 are rates whatever their names and their type in the file say.
    _activity("pcie_tx_bytes_per_second", "PROF_PCIE_TX_BYTES", level=Level.BOARD),
    _activity("pcie_rx_bytes_per_second", "PROF_PCIE_RX_BYTES", level=Level.BOARD),
    _activity("nvlink_tx_bytes_per_second", "PROF_NVLINK_TX_BYTES", level=Level.BOARD),
    _activity("nvlink_rx_bytes_per_second", "PROF_NVLINK_RX_BYTES", level=Level.BOARD),
    # A rate, though old files call it a counter, and a total of links and of directions, not of
    # time. DCGM takes KiB/s and divides by 1000, which it calls MB/s; the newest name is in bytes.
    _field(
        "nvlink_bytes_per_second",
        {
            "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": AS_IS,
            "DEV_NVLINK_THROUGHPUT_TOTAL": THOUSAND_KIB,
            "DEV_NVLINK_BANDWIDTH_TOTAL": THOUSAND_KIB,
        },
    ),
    # Utilisation: NVML has none for a GPU that is split, dcgm-exporter then says 0.
    _field(
        "utilization_ratio",
        {"DEV_GPU_UTIL_RATIO": AS_IS, "DEV_GPU_UTIL": PERCENT},
        Level.UNSPLIT,
    ),
    _field(
        "memory_utilization_ratio",
        {"DEV_MEMORY_UTIL_RATIO": AS_IS, "DEV_MEM_COPY_UTIL": PERCENT},
        Level.UNSPLIT,
    ),
    # Memory: an instance has its own.
    _field("memory_used_bytes", {"DEV_FB_USED_BYTES": AS_IS, "DEV_FB_USED": MIB}, Level.INSTANCE),
    _field("memory_free_bytes", {"DEV_FB_FREE_BYTES": AS_IS, "DEV_FB_FREE": MIB}, Level.INSTANCE),
    _field(
        "memory_reserved_bytes",
        {"DEV_FB_RESERVED_BYTES": AS_IS, "DEV_FB_RESERVED": MIB},
        Level.INSTANCE,
    ),
    _field(
        "memory_total_bytes",
        {"DEV_FB_CAPACITY_BYTES": AS_IS, "DEV_FB_TOTAL": MIB},
        Level.INSTANCE,
    ),
    # Power and heat
    _field("power_watts", {"DEV_BOARD_POWER_WATTS": AS_IS, "DEV_POWER_USAGE": AS_IS}),
    _field(
        "power_limit_watts",
        {"DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": AS_IS, "DEV_ENFORCED_POWER_LIMIT": AS_IS},
    ),
    _field(
        "energy_joules_total",
        {"DEV_GPU_ENERGY_JOULES_TOTAL": AS_IS, "DEV_TOTAL_ENERGY_CONSUMPTION": MILLIJOULES},
    ),
    _field(
        "temperature_celsius",
        {"DEV_GPU_TEMP_CELSIUS": AS_IS, "DEV_GPU_TEMP": AS_IS},
        sensor="gpu",
    ),
    _field(
        "temperature_celsius",
        {"DEV_MEMORY_TEMP_CELSIUS": AS_IS, "DEV_MEMORY_TEMP": AS_IS},
        zero_is_blank=True,
        sensor="memory",
    ),
    _field(
        "slowdown_temperature_celsius",
        {"DEV_GPU_TEMP_SLOWDOWN_CELSIUS": AS_IS, "DEV_SLOWDOWN_TEMP": AS_IS},
        zero_is_blank=True,
        sensor="gpu",
    ),
    _field("clock_hertz", {"DEV_SM_CLOCK_HERTZ": AS_IS, "DEV_SM_CLOCK": MEGAHERTZ}, domain="sm"),
    _field(
        "clock_hertz",
        {"DEV_MEMORY_CLOCK_HERTZ": AS_IS, "DEV_MEM_CLOCK": MEGAHERTZ},
        domain="memory",
    ),
    _field(
        "clock_max_hertz",
        {"DEV_SM_MAX_CLOCK_HERTZ": AS_IS, "DEV_MAX_SM_CLOCK": MEGAHERTZ},
        domain="sm",
    ),
    _field(
        "clock_max_hertz",
        {"DEV_MEMORY_MAX_CLOCK_HERTZ": AS_IS, "DEV_MAX_MEM_CLOCK": MEGAHERTZ},
        domain="memory",
    ),
    # Time held down, all off in the default file. The comments in files before 4.8 say
    # microseconds; NVML and DCGM's header count nanoseconds (dcgm-exporter pull request 589).
    _throttled("sw_power_cap", f"{_EVENT}SW_POWER_CAP_NS", "DEV_POWER_VIOLATION", seconds="POWER"),
    _throttled("sw_thermal", f"{_EVENT}SW_THERM_SLOWDOWN_NS"),
    _throttled("hw_thermal", f"{_EVENT}HW_THERM_SLOWDOWN_NS"),
    _throttled("hw_power_brake", f"{_EVENT}HW_POWER_BRAKE_SLOWDOWN_NS"),
    _throttled("thermal", "DEV_THERMAL_VIOLATION", seconds="THERMAL"),
    _throttled(
        "sync_boost",
        f"{_EVENT}SYNC_BOOST_NS",
        f"{_EVENT}SYNC_BOOST_COUNT_NS",
        "DEV_SYNC_BOOST_VIOLATION",
        seconds="SYNC_BOOST",
    ),
    _throttled("board_limit", "DEV_BOARD_LIMIT_VIOLATION", seconds="LIMIT"),
    _throttled("reliability", "DEV_RELIABILITY_VIOLATION", seconds="RELIABILITY"),
    # Faults
    _field(
        "pcie_replays_total",
        {"DEV_PCIE_REPLAY_TOTAL": AS_IS, "DEV_PCIE_REPLAY_COUNTER": AS_IS},
    ),
    Field(
        f"{PREFIX}gpu_xid_errors_total",
        MappingProxyType({"DCGM_EXP_XID_ERRORS_TOTAL": AS_IS}),
        labels=MappingProxyType({"xid": "xid"}),
    ),
    _field(
        "xid_errors_total",
        {"DEV_XID_ERROR": AS_IS, "DEV_XID_ERRORS": AS_IS},
        last_event=True,
    ),
    # Since the driver was loaded; the aggregates are for life and would count twice.
    _field("ecc_errors_total", {"DEV_ECC_SBE_VOL_TOTAL": AS_IS}, type="corrected"),
    _field("ecc_errors_total", {"DEV_ECC_DBE_VOL_TOTAL": AS_IS}, type="uncorrected"),
    _field(
        "remapped_rows",
        {"DEV_ROW_REMAP_CORRECTABLE_TOTAL": AS_IS, "DEV_CORRECTABLE_REMAPPED_ROWS": AS_IS},
        type="corrected",
    ),
    _field(
        "remapped_rows",
        {"DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": AS_IS, "DEV_UNCORRECTABLE_REMAPPED_ROWS": AS_IS},
        type="uncorrected",
    ),
    _field("remap_pending", {"DEV_ROW_REMAP_PENDING": AS_IS}),
    _field("remap_failed", {"DEV_ROW_REMAP_FAILED": AS_IS, "DEV_ROW_REMAP_FAILURE": AS_IS}),
)
