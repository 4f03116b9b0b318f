"""GPU metrics: what the hardware really does while requests are served.

"GPU utilisation" is the share of time in which any kernel ran: one thread on one multiprocessor
says 100 %. SM activity and DRAM activity say how much of the chip and of its memory bandwidth is
used. Where each value comes from is told per metric: an NVML call, a GPM metric id (NVIDIA's
nvml.h), or the field of a dcgm-exporter (see ``dcgm``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tailscope.catalogue.model import PREFIX, Across, Kind, Metric, Unit

GPU = ("gpu", "uuid", "model_name", "gi", "profile")
"""Labels of a GPU series; ``gi`` and ``profile`` are empty but for MIG instances."""

ROUNDING = 1.05
"""Largest ratio that is still taken for 1: counters of cycles are read one after the other."""

MOST: Mapping[Unit, float] = MappingProxyType(
    {
        Unit.CELSIUS: 200.0,
        Unit.WATTS: 20e3,
        Unit.HERTZ: 20e9,
        Unit.BYTES: float(1 << 46),
        Unit.BYTES_PER_SECOND: 20e12,
    }
)
"""Beyond what hardware can be: a gauge above it was never set. Not for counters."""

_ACTIVITY_BUCKETS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def _gauge(
    name: str,
    help: str,
    unit: Unit = Unit.NONE,
    labels: tuple[str, ...] = (),
    across: Across = Across.SUM,
    stored: bool = False,
) -> Metric:
    return Metric(
        f"{PREFIX}gpu_{name}", Kind.GAUGE, help, GPU + labels, unit, across, stored=stored
    )


def _counter(
    name: str,
    help: str,
    unit: Unit = Unit.NONE,
    labels: tuple[str, ...] = (),
    stored: bool = False,
) -> Metric:
    return Metric(
        f"{PREFIX}gpu_{name}_total", Kind.COUNTER, help, GPU + labels, unit, stored=stored
    )


def _activity(name: str, of: str, source: str) -> tuple[Metric, Metric, Metric]:
    """A ratio, its integral, and the distribution of its samples."""
    gauge = f"{name}_ratio"
    return (
        _gauge(gauge, f"Share of {of}. {source}", Unit.RATIO, across=Across.MEAN, stored=True),
        Metric(
            f"{PREFIX}gpu_{name}_seconds_total",
            Kind.COUNTER,
            f"Time integral of the share of {of}: its rate is the true mean ratio.",
            GPU,
            Unit.SECONDS,
            Across.MEAN,
            integral_of=f"{PREFIX}gpu_{gauge}",
        ),
        Metric(
            f"{PREFIX}gpu_{gauge}_sampled",
            Kind.HISTOGRAM,
            f"Samples of the share of {of}, one an interval.",
            GPU,
            Unit.RATIO,
            buckets=_ACTIVITY_BUCKETS,
            distribution_of=f"{PREFIX}gpu_{gauge}",
        ),
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        f"{PREFIX}gpu_up",
        Kind.GAUGE,
        "Whether a GPU that was seen could be read (1) or is lost (0).",
        ("gpu", "uuid", "model_name"),
        stored=True,
    ),
    Metric(
        f"{PREFIX}gpu_info",
        Kind.GAUGE,
        "Facts about a GPU; the value is always 1.",
        ("gpu", "uuid", "model_name", "pci_bus_id", "driver", "mig"),
        across=Across.MAX,
    ),
    Metric(
        f"{PREFIX}gpu_source_info",
        Kind.GAUGE,
        "Which source gives the readings, health or activity, of a GPU; the value is always 1.",
        ("gpu", "uuid", "readings", "source"),
        across=Across.MAX,
    ),
    # Activity
    *_activity(
        "sm_active",
        "the multiprocessors' cycles with at least one warp resident",
        "GPM metric 2, or DCGM field 1002.",
    ),
    *_activity(
        "dram_active",
        "the memory's cycles in which it moved data",
        "GPM metric 10, or DCGM field 1005.",
    ),
    *_activity(
        "tensor_active", "the tensor cores' cycles in use", "GPM metric 5, or DCGM field 1004."
    ),
    _gauge(
        "sm_occupancy_ratio",
        "Warps resident on the multiprocessors as a share of what fits.",
        Unit.RATIO,
        across=Across.MEAN,
    ),
    _gauge(
        "graphics_active_ratio",
        "Share of time in which the compute or graphics engine was busy.",
        Unit.RATIO,
        across=Across.MEAN,
    ),
    _gauge(
        "utilization_ratio",
        "Share of time in which any kernel ran: one thread is enough for 1.",
        Unit.RATIO,
        across=Across.MEAN,
    ),
    _gauge(
        "memory_utilization_ratio",
        "Share of time in which memory was read or written: neither bandwidth nor fullness.",
        Unit.RATIO,
        across=Across.MEAN,
    ),
    # Memory
    _gauge(
        "memory_used_bytes",
        "Memory in use, without what the driver reserves where the driver tells it apart (R510).",
        Unit.BYTES,
    ),
    _gauge("memory_free_bytes", "Memory that is free.", Unit.BYTES),
    _gauge("memory_reserved_bytes", "Memory that the driver reserves for itself.", Unit.BYTES),
    _gauge("memory_total_bytes", "Memory of the GPU.", Unit.BYTES),
    # Power and heat
    _gauge("power_watts", "Power draw.", Unit.WATTS, stored=True),
    _gauge("power_limit_watts", "Power limit that is enforced.", Unit.WATTS),
    _counter("energy_joules", "Energy used since the driver was loaded.", Unit.JOULES),
    _gauge(
        "temperature_celsius",
        "Temperature by sensor: gpu or memory.",
        Unit.CELSIUS,
        ("sensor",),
        Across.MAX,
        stored=True,
    ),
    _gauge(
        "slowdown_temperature_celsius",
        "Temperature at which the hardware slows down, by sensor.",
        Unit.CELSIUS,
        ("sensor",),
        Across.MAX,
    ),
    _gauge(
        "clock_hertz", "Clock by domain: sm or memory.", Unit.HERTZ, ("domain",), Across.MAX, True
    ),
    _gauge(
        "clock_max_hertz",
        "Highest clock by domain: sm or memory.",
        Unit.HERTZ,
        ("domain",),
        Across.MAX,
    ),
    _counter(
        "throttled_seconds",
        "Time for which clocks were held down, by reason; hw_slowdown covers the other hw_ ones.",
        Unit.SECONDS,
        ("reason",),
        stored=True,
    ),
    # Links
    _counter("pcie_tx_bytes", "Bytes sent over PCIe.", Unit.BYTES),
    _counter("pcie_rx_bytes", "Bytes received over PCIe.", Unit.BYTES),
    _counter("nvlink_tx_bytes", "Bytes sent over NVLink.", Unit.BYTES),
    _counter("nvlink_rx_bytes", "Bytes received over NVLink.", Unit.BYTES),
    _gauge("pcie_tx_bytes_per_second", "Rate sent over PCIe.", Unit.BYTES_PER_SECOND),
    _gauge("pcie_rx_bytes_per_second", "Rate received over PCIe.", Unit.BYTES_PER_SECOND),
    _gauge("nvlink_tx_bytes_per_second", "Rate sent over NVLink.", Unit.BYTES_PER_SECOND),
    _gauge("nvlink_rx_bytes_per_second", "Rate received over NVLink.", Unit.BYTES_PER_SECOND),
    _gauge(
        "nvlink_bytes_per_second",
        "Rate over NVLink, both directions together.",
        Unit.BYTES_PER_SECOND,
    ),
    _counter("pcie_replays", "PCIe packets that had to be sent again."),
    # Faults
    _counter(
        "xid_errors",
        "XID events that came while the exporter watched, by code and class of action; where "
        "DCGM tells only its last code, there may have been more.",
        labels=("xid", "action"),
        stored=True,
    ),
    Metric(
        f"{PREFIX}gpu_xid_last_timestamp_seconds",
        Kind.GAUGE,
        "When a GPU last had an XID event, as Unix time.",
        GPU,
        Unit.SECONDS,
        Across.MAX,
    ),
    _counter(
        "ecc_errors",
        "Memory errors since the driver was loaded, by type: corrected or uncorrected.",
        labels=("type",),
    ),
    _gauge(
        "remapped_rows",
        "Memory rows that were replaced, by type: corrected or uncorrected.",
        labels=("type",),
    ),
    _gauge(
        "remap_pending",
        "Whether a row waits to be replaced at the next reset (1).",
        across=Across.MAX,
    ),
    _gauge("remap_failed", "Whether a row could not be replaced (1).", across=Across.MAX),
    _gauge(
        "recovery_action",
        "What the driver asks for: 1 for the action that holds, of none, reset_gpu, "
        "restart_node, drain_p2p, drain_and_reset, other.",
        labels=("action",),
        across=Across.MAX,
    ),
    Metric(
        f"{PREFIX}gpu_call_errors_total",
        Kind.COUNTER,
        "Calls into the GPU's library that failed, but for what a GPU does not support.",
        ("call", "code"),
    ),
)
