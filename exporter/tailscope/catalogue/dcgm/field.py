"""The shape of one DCGM field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Level(StrEnum):
    """What a field speaks of when a GPU is split by MIG; dcgm-exporter repeats it per instance."""

    BOARD = "board"
    """The whole GPU: published once, on the board."""
    UNSPLIT = "unsplit"
    """The whole GPU, but 0 or stuck while it is split: then left out."""
    INSTANCE = "instance"
    """The instance: one series each."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From a field's unit to ours: ``value * times / over``."""

    times: float = 1.0
    over: float = 1.0


AS_IS = Scale()
PERCENT = Scale(over=100.0)
MIB = Scale(times=float(1 << 20))
THOUSAND_KIB = Scale(times=1024e3)
MEGAHERTZ = Scale(times=1e6)
MILLIJOULES = Scale(over=1e3)
NANOSECONDS = Scale(over=1e9)


@dataclass(frozen=True, slots=True)
class Field:
    """What DCGM knows of one thing, and the metric of ours that it becomes.

    Attributes:
        metric: Name of our metric.
        names: The field's names in the wild and the unit of each, preferred one first: if a page
            has several for one series, the first one counts and nothing is counted twice.
        fixed: Labels of ours with a constant value.
        labels: Upstream label to ours, for labels that only this field has.
        level: What it speaks of on a GPU that is split by MIG.
        activity: Whether it comes from the profiling counters, as NVML's GPM does.
        zero_is_blank: Whether 0 says that there is no such sensor.
        last_event: Whether the value is the code of the last event, for ever.
    """

    metric: str
    names: Mapping[str, Scale]
    fixed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    level: Level = Level.BOARD
    activity: bool = False
    zero_is_blank: bool = False
    last_event: bool = False
