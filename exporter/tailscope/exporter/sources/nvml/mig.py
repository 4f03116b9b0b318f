"""The instances of a GPU that is split by MIG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tailscope.catalogue.nvml import MEMORY, Way
from tailscope.exporter.reading import Key
from tailscope.exporter.sources.nvml.device import Device
from tailscope.exporter.sources.nvml.gpm import Gpm
from tailscope.exporter.sources.nvml.identity import Identity
from tailscope.exporter.sources.nvml.library import CallFailed, GpuLost, Unsupported
from tailscope.exporter.sources.nvml.plausible import plausible

LOOK_SECONDS = 5.0
"""Time after which instances are looked for again, and after which their memory is read."""

_MOST_AT_ONCE = 4
"""Instances that are read at a time. Each takes three calls, so that seven at a time would be too
many; with more instances, each is read every second time, and its value is the mean of two
intervals."""
_ROOM = 2
"""Instances up to which they are read in the same round in which they are looked for."""

_MODE = (Way("nvmlDeviceGetMigMode"),)
_PROFILE = re.compile(r"MIG (\S+)")


@dataclass(slots=True)
class _Instance:
    gi: int
    uuid: str
    device: Device
    gpm: Gpm
    profile: str
    labels: tuple[str, ...]
    memory: dict[Key, float] = field(default_factory=dict)
    activity: dict[Key, float] = field(default_factory=dict)


class Mig:
    """Reads the instances of one GPU. For one thread.

    Board readings are of the whole GPU; an instance has its own activity and memory.

    Args:
        parent: The GPU; GPM is asked of it, by the number of the instance.
        identity: Who it is.
        clock: Monotonic clock, in seconds.
        interval: Seconds from one read to the next.
        shortest: Least time between two samples, in seconds.
    """

    def __init__(
        self,
        parent: Device,
        identity: Identity,
        *,
        clock: Callable[[], float],
        interval: float,
        shortest: float,
    ) -> None:
        self._parent = parent
        self._identity = identity
        self._clock = clock
        self._interval = interval
        self._shortest = shortest
        self._instances: list[_Instance] = []
        self._looked: float | None = None
        self._most: int | None = None
        self._known = False
        self._next = 0
        self._round = 0

    def mode(self) -> str:
        """Return whether the GPU is split: ``enabled``, ``disabled``, or nothing if it cannot be.

        Raises:
            GpuLost: If the GPU is lost.
            DriverGone: If NVML has to be opened anew.
        """
        answer = self._parent.ask(_MODE)
        if answer is None:
            return ""
        return "enabled" if int(answer[0]) else "disabled"

    def read(self, request: Any, with_gpm: bool) -> dict[Key, float]:
        """Return activity and memory of all instances.

        Args:
            request: A ``c_nvmlGpmMetricsGet_t`` that may be written to.
            with_gpm: Whether the GPU has GPM.

        Raises:
            GpuLost: If the GPU is lost.
            DriverGone: If NVML has to be opened anew.
        """
        turn = self._turn()
        looked = self._look(turn)
        if looked:
            turn = self._turn()
        if not looked or len(self._instances) <= _ROOM or not self._known:
            for instance in turn if with_gpm else ():
                instance.activity = self._activity(instance, request)
            for instance in self._due():
                instance.memory = _memory(instance)
        self._known = True
        self._round += 1
        found: dict[Key, float] = {}
        for instance in self._instances:
            found.update(instance.activity)
            found.update(instance.memory)
        return found

    def profile(self, gi: int) -> str:
        """Return the profile of an instance; empty if there is none of that number."""
        return next((one.profile for one in self._instances if one.gi == gi), "")

    def _turn(self) -> list[_Instance]:
        """The instances whose activity is read now; all when there was none yet."""
        if not self._known:
            return self._instances
        groups = math.ceil(len(self._instances) / _MOST_AT_ONCE)
        return [
            instance
            for place, instance in enumerate(self._instances)
            if place % groups == self._round % groups
        ]

    def _activity(self, instance: _Instance, request: Any) -> dict[Key, float]:
        try:
            return instance.gpm.read(request)
        except (CallFailed, Unsupported):
            self._looked = None  # perhaps it is gone
            return {}

    def _due(self) -> list[_Instance]:
        """The instances whose memory is read now: a few at a time, to spread the calls."""
        count = len(self._instances)
        some = min(count, math.ceil(count * self._interval / LOOK_SECONDS))
        due = [self._instances[(self._next + step) % count] for step in range(some)]
        self._next += some
        return due

    def _look(self, turn: Iterable[_Instance]) -> bool:
        """See which instances there are; returns whether all were looked for.

        The number of an instance is given again to the next one, so that each is asked for its
        UUID before its samples are paired.

        Args:
            turn: Those that are to be read now.
        """
        now = self._clock()
        fresh = self._looked is not None and now - self._looked < LOOK_SECONDS
        if fresh and all(map(self._same, turn)):
            return False
        self._looked = now
        known = {entry.uuid: entry for entry in self._instances}
        after: dict[int, _Instance] = {}
        for handle, uuid in self._found():
            instance = known.get(uuid) or self._new(handle, uuid)
            # A second compute instance in it has a UUID of its own, and the same activity.
            if instance is not None and instance.gi not in after:
                instance.device.handle = handle
                after[instance.gi] = instance
        for gone in self._instances:
            if after.get(gone.gi) is not gone:
                gone.gpm.free()
        self._instances = [after[gi] for gi in sorted(after)]
        return True

    def _same(self, instance: _Instance) -> bool:
        library = self._parent.library
        try:
            return library.text("nvmlDeviceGetUUID", instance.device.handle) == instance.uuid
        except (CallFailed, GpuLost, Unsupported):
            return False

    def _found(self) -> list[tuple[Any, str]]:
        """Return handle and UUID of each MIG device."""
        library, parent = self._parent.library, self._parent.handle
        found: list[tuple[Any, str]] = []
        for index in range(self._places()):
            try:
                handle = library.call("nvmlDeviceGetMigDeviceHandleByIndex", parent, index)
                found.append((handle, library.text("nvmlDeviceGetUUID", handle)))
            except (CallFailed, Unsupported):
                continue  # none at this index, or it went away
        return found

    def _places(self) -> int:
        if self._most is None:
            try:
                self._most = int(self._parent.call("nvmlDeviceGetMaxMigDeviceCount"))
            except (CallFailed, Unsupported):
                return 0
        return self._most

    def _new(self, handle: Any, uuid: str) -> _Instance | None:
        parent = self._parent
        library = parent.library
        try:
            gi = int(library.call("nvmlDeviceGetGpuInstanceId", handle))
            hit = _PROFILE.search(library.text("nvmlDeviceGetName", handle))
        except (CallFailed, Unsupported):
            return None
        profile = hit[1] if hit else ""
        labels = self._identity.labels(str(gi), profile)

        def take(sample: Any) -> object:
            return parent.call("nvmlGpmMigSampleGet", gi, sample)

        gpm = Gpm(parent, take, labels, instance=True, clock=self._clock, shortest=self._shortest)
        return _Instance(gi, uuid, Device(library, handle), gpm, profile, labels)

    def free(self) -> None:
        """Give back what is held of NVML, which must be open."""
        for instance in self._instances:
            instance.gpm.free()
        self._instances = []
        self._looked = None
        self._known = False


def _memory(instance: _Instance) -> dict[Key, float]:
    answer = instance.device.ask(MEMORY.ways)
    found: dict[Key, float] = {}
    for entry in MEMORY.values if answer is not None else ():
        raw = getattr(answer, str(entry.item), None)
        value = None if raw is None else plausible(entry.metric, float(raw))
        if value is not None:
            found[Key(entry.metric, instance.labels)] = value
    return found
