"""The field values of one GPU: many numbers in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from tailscope.catalogue import METRICS, Kind
from tailscope.catalogue.nvml import (
    FIELDS,
    GONE,
    LOST,
    RECOVERY_ACTION_FIELD,
    RECOVERY_ACTIONS,
    UNSUPPORTED,
    VALUE_MEMBERS,
    WIDE_TYPES,
    Field,
)
from tailscope.exporter.reading import Key
from tailscope.exporter.sources.nvml.device import Device
from tailscope.exporter.sources.nvml.ledger import Ledger
from tailscope.exporter.sources.nvml.library import CallFailed, DriverGone, GpuLost, Unsupported
from tailscope.exporter.sources.nvml.plausible import plausible

_CALL = "nvmlDeviceGetFieldValues"
_INVALID_ARGUMENT = 2

# The binding's own way to read a member of a structure looks for text in it, and takes ten times
# as long.
_member = ctypes.Structure.__getattribute__


class Fields:
    """Reads the fields that a GPU has.

    Args:
        device: The GPU.
        labels: Values of the labels of a GPU series.
        ledger: Carries the counters on.
    """

    def __init__(self, device: Device, labels: tuple[str, ...], ledger: Ledger) -> None:
        self._device = device
        self._ledger = ledger
        version = device.library.driver_version
        self._wanted = [
            (field, Key(field.value.metric, labels + field.value.more))
            for field in FIELDS
            if version >= field.since
        ]

    def read(self) -> dict[Key, float]:
        """Return what the fields say now.

        Raises:
            GpuLost: If the GPU is lost.
            DriverGone: If NVML has to be opened anew.
        """
        if not self._wanted:
            return {}
        ask = [(field.number, field.scope) for field, _ in self._wanted]
        try:
            answers = self._device.call(_CALL, ask)
        except Unsupported:
            self._wanted = []
            return {}
        except CallFailed:
            return {}
        return dict(self._take(answers))

    def _take(self, answers: Sequence[Any]) -> Iterator[tuple[Key, float]]:
        done: set[Key] = set()
        never: list[Field] = []
        for (field, key), answer in zip(self._wanted, answers, strict=True):
            code, kind = int(_member(answer, "nvmlReturn")), int(_member(answer, "valueType"))
            if not self._usable(field, code, kind):
                never.append(field)
            elif code == 0 and key not in done:
                done.add(key)
                raw = getattr(_member(answer, "value"), VALUE_MEMBERS[kind])
                yield from self._number(field, key, raw)
        if never:
            self._wanted = [entry for entry in self._wanted if entry[0] not in never]

    def _usable(self, field: Field, code: int, kind: int) -> bool:
        """Return whether the field is worth asking again."""
        if code in LOST:
            raise GpuLost(_CALL, code)
        if code in GONE:
            raise DriverGone(_CALL, code)
        if code in UNSUPPORTED or code == _INVALID_ARGUMENT:
            return False
        if code:
            self._device.library.count(_CALL, code)
            return True
        return kind in WIDE_TYPES if field.wide else kind < len(VALUE_MEMBERS)

    def _number(self, field: Field, key: Key, raw: float) -> Iterator[tuple[Key, float]]:
        if field.number == RECOVERY_ACTION_FIELD:
            action = RECOVERY_ACTIONS.get(int(raw), "other")
            yield Key(key.metric, (*key.values, action)), 1.0
            return
        value = plausible(key.metric, field.value.ours(float(raw)))
        if value is None or (value == 0 and METRICS[key.metric].kind is Kind.GAUGE):
            return  # a memory sensor that is at 0 degrees is none
        if METRICS[key.metric].kind is Kind.COUNTER:
            value = self._ledger.carry(key, value, field.number)
        yield key, value
