"""dcgm-exporter, 3.x to 4.9: its fields, and the metrics that they become.

Two vocabularies are in use. dcgm-exporter 4.9 (DCGM 4.7) renamed the 23 fields of its default file
that DCGM 4.7 deprecates, and changed the unit of 11 of them; a custom file may hold either. The old
names and units were read in its counters files up to 4.8.4, the new ones in NVIDIA's lists of field
identifiers for DCGM 4.6 and 4.7. What a value means is said here and by no ``# TYPE``: the file's
own types are wrong for NVLink bandwidth and have been wrong for PCIe.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tailscope.catalogue.dcgm.field import Field, Level, Scale
from tailscope.catalogue.dcgm.fields import FIELDS
from tailscope.catalogue.dcgm.ignored import IGNORED
from tailscope.catalogue.dcgm.values import MOST_COUNTED, MOST_EXACT, is_blank

__all__ = [
    "ACTIVITY",
    "FIELDS",
    "IGNORED",
    "LABELS",
    "MOST_COUNTED",
    "MOST_EXACT",
    "PATH",
    "PORT",
    "PREFIXES",
    "PROPRIETARY_PACKAGE",
    "SM_ACTIVE",
    "Field",
    "Level",
    "Scale",
    "is_blank",
]

PORT = 9400
PATH = "/metrics"

PREFIXES = ("DCGM_FI_", "DCGM_EXP_")
"""Of DCGM's fields, and of what the exporter makes of them."""

ACTIVITY = frozenset(field.metric for field in FIELDS if field.activity)
"""Metrics that come from the profiling counters."""

LABELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gpu": ("gpu",),
        "uuid": ("UUID", "uuid"),
        "model_name": ("modelName",),
        "gi": ("GPU_I_ID",),
        "profile": ("GPU_I_PROFILE",),
        "pci_bus_id": ("pci_bus_id",),
        "driver": ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"),
    }
)
"""Our labels and their spellings. All other labels are dropped: ``Hostname`` or ``hostname`` names
the exporter's pod as often as the machine, and pods and containers come and go without bound."""

SM_ACTIVE = ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO")
"""The field that is off by default: its old name and its new one."""

PROPRIETARY_PACKAGE = "datacenter-gpu-manager-4-proprietary"
"""Holds the profiling module for GPUs without GPM, Ada and older, since DCGM 4."""
