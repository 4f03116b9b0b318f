"""A page of dcgm-exporter to readings in the catalogue's vocabulary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tailscope.catalogue import METRICS, PREFIX, Kind, xid
from tailscope.catalogue.dcgm import ACTIVITY
from tailscope.exporter.carry import Carry
from tailscope.exporter.dcgmseries import Gpu, Resolver, Target
from tailscope.exporter.doubt import Doubt, Verdict
from tailscope.exporter.reading import Key
from tailscope.exporter.scrape import SPARE, SeriesReader
from tailscope.exporter.scrapeerror import NotPrometheus
from tailscope.exporter.xidevents import XidEvents

_UP = f"{PREFIX}gpu_up"
_INFO = f"{PREFIX}gpu_info"
_XID = f"{PREFIX}gpu_xid_errors_total"
_XID_TIME = f"{PREFIX}gpu_xid_last_timestamp_seconds"
_TOTAL = f"{PREFIX}gpu_memory_total_bytes"
_PARTS = tuple(f"{PREFIX}gpu_memory_{part}_bytes" for part in ("used", "free", "reserved"))

_MAX_LOST = 64
"""GPUs that are gone and still called down; beyond, all of them are forgotten."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page, read.

    Attributes:
        numbers: Every series of ours, ``gpu_up`` and ``gpu_info`` among them.
        metrics: UUID of each GPU of which something was read, to the metrics that were.
        gpus: GPUs that the page names, read or not.
        renamed: Whether it has profiling fields by their names of 4.9.
        doubtful: UUIDs of the GPUs whose activity is not believed.
    """

    numbers: Mapping[Key, float] = field(default_factory=dict)
    metrics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    gpus: int = 0
    renamed: bool = False
    doubtful: frozenset[str] = frozenset()


class _Gathering:
    """What the lines of one page say, before it is put together."""

    def __init__(self) -> None:
        self.samples = 0
        self.values: dict[Key, tuple[int, float]] = {}
        self.last_xids: dict[str, set[int]] = {}
        self.xid_totals: dict[str, dict[int, float]] = {}
        self.gpus: dict[str, Gpu] = {}
        self.split: set[str] = set()
        self.renamed = False

    def add(self, target: Target, raw: float) -> None:
        """Take one sample."""
        uuid = target.gpu.uuid
        self.gpus[uuid] = target.gpu
        self.renamed |= target.renamed
        if target.split:
            self.split.add(uuid)
        value = target.value(raw)
        if value is None:
            return
        key = target.key
        if key is None:
            self.last_xids.setdefault(uuid, set()).add(int(value))
        elif key.metric == _XID:
            totals, code = self.xid_totals.setdefault(uuid, {}), int(key.values[-2])
            totals[code] = max(value, totals.get(code, 0.0))
        else:
            # A GPU's series comes once for each of its instances and each pod that shares it. What
            # they say differs by the moment at which each was read, at most.
            known = self.values.get(key)
            if known is None or (target.rank, -value) < (known[0], -known[1]):
                self.values[key] = (target.rank, value)


class DcgmPage:
    """Reads the page of one dcgm-exporter, scrape by scrape.

    Args:
        now: Wall clock, seconds.

    Attributes:
        resets: How often a counter went back, as it does when a driver is reloaded.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.resets = 0
        self._resolver = Resolver()
        self._series = SeriesReader(self._resolver)
        self._carries: dict[Key, Carry] = {}
        self._xids = XidEvents(now)
        self._known: dict[str, Gpu] = {}
        self._doubts: dict[str, Doubt] = {}
        self._text = ""
        self._page = Page()

    @property
    def unmapped(self) -> frozenset[str]:
        """Families that are neither mapped nor ignored, the first hundred."""
        return frozenset(self._resolver.unmapped)

    def read(self, text: str) -> Page:
        """Turn one page into readings.

        Raises:
            NotPrometheus: If no line of the text is a sample.
        """
        # It collects every 30 s and we read every second: most pages are the one before.
        if text != self._text:
            self._page = self._read(text)
            self._text = text
        return self._page

    def _read(self, text: str) -> Page:
        gathering = _Gathering()
        for target, raw in self._series.samples(text):
            gathering.samples += 1
            if target is not None:
                gathering.add(target, raw)
        if not gathering.samples:
            raise NotPrometheus("no line is a sample")
        self._remember(gathering.gpus)
        numbers = self._numbers(gathering.values)
        numbers.update(_missing_totals(numbers))
        doubtful = self._drop_doubtful(numbers)
        # A GPU that is lost still shows its last event: that is no reading.
        metrics: dict[str, set[str]] = {}
        for key in numbers:
            metrics.setdefault(key.values[1], set()).add(key.metric)
        numbers.update(self._events(gathering))
        numbers.update(self._states(gathering, metrics))
        read = {uuid: frozenset(names) for uuid, names in metrics.items()}
        return Page(numbers, read, len(gathering.gpus), gathering.renamed, doubtful)

    def _drop_doubtful(self, numbers: dict[Key, float]) -> frozenset[str]:
        """Leave out activity that has stood at 0 for pages on end while the GPU worked.

        Returns:
            The UUIDs of the GPUs.
        """
        boards: dict[str, dict[Key, float]] = {}
        for key, value in numbers.items():
            if not key.values[3]:  # an instance is not told from the rest of its GPU
                boards.setdefault(key.values[1], {})[key] = value
        self._doubts = {uuid: self._doubts.get(uuid) or Doubt() for uuid in boards}
        doubtful = frozenset(
            uuid
            for uuid, board in boards.items()
            if self._doubts[uuid].judge(board, board) is Verdict.DROP
        )
        for uuid in doubtful:
            for key in boards[uuid]:
                if key.metric in ACTIVITY:
                    del numbers[key]
        return doubtful

    def _remember(self, gpus: Mapping[str, Gpu]) -> None:
        self._known.update(gpus)
        if len(self._known) > len(gpus) + _MAX_LOST:
            self._known = dict(gpus)
            self._xids.keep(gpus)

    def _numbers(self, values: Mapping[Key, tuple[int, float]]) -> dict[Key, float]:
        numbers: dict[Key, float] = {}
        reset = False
        for key, (_, value) in values.items():
            if METRICS[key.metric].kind is Kind.COUNTER:
                carry = self._carries.get(key)
                if carry is None:
                    carry = self._carries[key] = Carry()
                reset |= carry.update({"": value}, None)
                value = carry.totals()[""]
            numbers[key] = value
        self.resets += reset
        if len(self._carries) > 2 * len(numbers) + SPARE:
            self._carries = {
                key: self._carries[key] for key in numbers.keys() & self._carries.keys()
            }
        return numbers

    def _events(self, gathering: _Gathering) -> Iterator[tuple[Key, float]]:
        for uuid, gpu in gathering.gpus.items():
            last = gathering.last_xids.get(uuid, set())
            self._xids.observe(uuid, last, gathering.xid_totals.get(uuid, {}))
            for code, count in self._xids.counts(uuid).items():
                yield Key(_XID, (*gpu.labels(), str(code), xid.action(code))), count
            if (at := self._xids.time(uuid)) is not None:
                yield Key(_XID_TIME, gpu.labels()), at

    def _states(
        self, gathering: _Gathering, metrics: Mapping[str, set[str]]
    ) -> Iterator[tuple[Key, float]]:
        for uuid, gpu in self._known.items():
            yield Key(_UP, (gpu.gpu, uuid, gpu.model_name)), float(uuid in metrics)
        for uuid in metrics:
            # One that is not split may still be in MIG mode: nothing says so.
            mig = "enabled" if uuid in gathering.split else ""
            yield Key(_INFO, (*gathering.gpus[uuid], mig)), 1.0


def _missing_totals(numbers: Mapping[Key, float]) -> dict[Key, float]:
    """Add up the memory where the page does not give its size, as no default file before 4.9 does.

    Each part is in whole MiB, so the sum is up to 2 MiB short.
    """
    found: dict[Key, float] = {}
    for key in numbers:
        total = Key(_TOTAL, key.values)
        if key.metric != _PARTS[0] or total in numbers:
            continue
        parts = [numbers.get(Key(part, key.values)) for part in _PARTS]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            found[total] = sum(known)
    return found
