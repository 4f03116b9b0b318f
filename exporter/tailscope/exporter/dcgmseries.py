"""What becomes of one series of dcgm-exporter, from its name and its labels."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tailscope.catalogue import METRICS, Kind, Metric, Unit, dcgm, xid
from tailscope.catalogue.gpu import MOST, ROUNDING
from tailscope.exporter.mapping import NAME
from tailscope.exporter.reading import Key

log = logging.getLogger(__name__)

MAX_XID = 999
_MAX_UNMAPPED = 100

_UUID = re.compile(r"[\w.:-]{1,80}", re.ASCII)
"""Switches, processors and links have none."""

_FIELDS = {name: (field, rank) for field in dcgm.FIELDS for rank, name in enumerate(field.names)}


class Gpu(NamedTuple):
    """What the labels say of one GPU."""

    gpu: str
    uuid: str
    model_name: str
    pci_bus_id: str
    driver: str

    def labels(self, gi: str = "", profile: str = "") -> tuple[str, ...]:
        """Return the values of the labels of its series, or of one instance's."""
        return (self.gpu, self.uuid, self.model_name, gi, profile)


@dataclass(frozen=True, slots=True)
class Target:
    """What becomes of one upstream series.

    Attributes:
        gpu: Whose it is.
        split: Whether the GPU is split by MIG.
        key: Our series; None for the code of the last event.
        rank: Place of the name among those of the field, 0 is preferred.
        scale: From its unit to ours.
        most: Largest value that can be.
        ratio: Whether the value is a ratio.
        zero_is_blank: Whether 0 says that there is no such sensor.
        renamed: Whether it is a profiling field by the name that came with DCGM 4.6.
    """

    gpu: Gpu
    split: bool
    key: Key | None
    rank: int
    scale: dcgm.Scale
    most: float
    ratio: bool
    zero_is_blank: bool
    renamed: bool

    def value(self, raw: float) -> float | None:
        """Return the value in our unit; None if it is none."""
        if not raw >= 0 or dcgm.is_blank(raw) or (raw == 0 and self.zero_is_blank):
            return None
        value = raw * self.scale.times / self.scale.over
        if value > self.most:
            return None
        return min(value, 1.0) if self.ratio else value


class Resolver:
    """Finds the targets of series.

    Attributes:
        unmapped: Families that are neither mapped nor ignored, the first hundred.
    """

    def __init__(self) -> None:
        self.unmapped: set[str] = set()

    def __call__(self, name: str, labels: dict[str, str]) -> Target | None:
        """Return what becomes of a series; None if nothing does."""
        known = _FIELDS.get(name)
        if known is None:
            self._note_unmapped(name)
            return None
        field, rank = known
        ours = {
            label: next((labels[each] for each in spellings if each in labels), "")
            for label, spellings in dcgm.LABELS.items()
        }
        gi, profile = ours.pop("gi"), ours.pop("profile")
        gpu = Gpu(**ours)
        if not _UUID.fullmatch(gpu.uuid) or (gi and field.level is dcgm.Level.UNSPLIT):
            return None
        metric, scale = METRICS[field.metric], field.names[name]
        key: Key | None = None
        if not field.last_event:
            more = _more(field, metric, labels)
            if more is None:
                return None
            of = gpu.labels(gi, profile) if field.level is dcgm.Level.INSTANCE else gpu.labels()
            key = Key(metric.name, (*of, *more))
        return Target(
            gpu,
            bool(gi),
            key,
            rank,
            scale,
            MAX_XID if field.last_event else _most(metric, scale),
            metric.unit is Unit.RATIO,
            field.zero_is_blank,
            renamed=field.activity and len(field.names) > 1 and rank == 0,
        )

    def _note_unmapped(self, name: str) -> None:
        if name in self.unmapped or len(self.unmapped) >= _MAX_UNMAPPED:
            return
        if any(entry.pattern.fullmatch(name) for entry in dcgm.IGNORED):
            return
        self.unmapped.add(name)
        if name.startswith(dcgm.PREFIXES) and NAME.fullmatch(name):
            log.warning("dcgm-exporter gives %.200r, which is not known: left out", name)


def _more(field: dcgm.Field, metric: Metric, labels: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the values of the labels beyond those of each GPU; None if one is out of bounds."""
    ours = {ours: labels.get(theirs, "") for theirs, ours in field.labels.items()}
    ours.update(field.fixed)
    if (code := ours.get("xid")) is not None:
        if not code.isdecimal() or not 0 < int(code) <= MAX_XID:
            return None
        ours.update(xid=str(int(code)), action=xid.action(int(code)))
    return tuple(ours[label] for label in metric.labels[5:])


def _most(metric: Metric, scale: dcgm.Scale) -> float:
    """Return the largest value that can be: beyond it, a reading is garbage."""
    if metric.unit is Unit.RATIO:
        return ROUNDING if scale.over == 1 else 1.0
    most = dcgm.MOST_COUNTED if metric.kind is Kind.COUNTER else MOST
    return most.get(metric.unit, dcgm.MOST_EXACT)
