"""The NVML source: all GPUs of the machine, each read in a thread of its own.

A GPU that hangs or is lost takes only its own series with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tailscope.catalogue import PREFIX
from tailscope.exporter.exposition import Family, Lines
from tailscope.exporter.health import NothingThere, SourceError
from tailscope.exporter.poller import STALE_INTERVALS
from tailscope.exporter.reading import Key, Reading, Writer
from tailscope.exporter.shelf import Shelf
from tailscope.exporter.sources.nvml.board import Board
from tailscope.exporter.sources.nvml.fleet import Fleet
from tailscope.exporter.sources.nvml.gpu import Gpu, Shown, up_key
from tailscope.exporter.sources.nvml.identity import Identity, identify
from tailscope.exporter.sources.nvml.library import Library, trouble
from tailscope.exporter.sources.nvml.slot import Outcome
from tailscope.exporter.sources.nvml.xid import XidWatch
from tailscope.records.samples import Sample

log = logging.getLogger(__name__)

_Written = tuple[tuple[Shown, ...], tuple[bool, ...], Mapping[Key, float], Lines]
"""What the last page was made of, and its lines."""

_NONE = frozenset({"library_not_found", "no_gpu"})
"""Reasons of a machine that has no GPU."""

_CALL_ERRORS = f"{PREFIX}gpu_call_errors_total"


def binding() -> Any:
    """Return the Python binding of NVML; imported only where it is wanted, for it takes 6 MiB."""
    import pynvml

    return pynvml


class NvmlSource:
    """The GPUs of this machine.

    Args:
        interval: Seconds from one read to the next.
        longest: Longest gap between two reads that is integrated over, in seconds.
        keep: Takes the samples that go into the store.
        clock: Monotonic clock, in seconds.
        patience: Seconds that a read waits for GPUs that do not answer; less than the interval.
        xid_wait: Seconds of one wait for XID events.
        told: Whether the user asked for NVML, so that a machine without a GPU is a fault.
    """

    name = "nvml"

    def __init__(
        self,
        *,
        interval: float,
        longest: float,
        keep: Callable[[Sequence[Sample]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience: float | None = None,
        xid_wait: float = 0.5,
        told: bool = True,
    ) -> None:
        self._interval = interval
        self._longest = longest
        self._shelf = Shelf(keep, unmoved=False)
        self._clock = clock
        self._told = told
        self._nvml = binding()
        self._library = Library(self._nvml)
        self._xid = XidWatch(self._library, xid_wait)
        self._xid.start()
        self._fleet = Fleet(
            self._library,
            find=self._find,
            free=self._xid.free,
            clock=clock,
            patience=0.8 * interval if patience is None else patience,
        )
        self._writer = Writer()
        self._lock = threading.Lock()
        self._gpus: dict[str, Gpu] = {}
        self._shown: tuple[Shown, ...] = ()
        self._written: _Written | None = None

    def read(self) -> str:
        """Read every GPU once; returns who answers.

        Raises:
            SourceError: If none can be read.
            NothingThere: If there never was any, and nobody asked for one.
        """
        now = self._clock()
        try:
            self._fleet.read(now, self._accept)
        except SourceError as error:
            if error.reason in _NONE and not self._gpus and not self._told:
                raise NothingThere(error.reason, str(error)) from None
            raise
        finally:
            self._settle(now)
        return self._verdict()

    def _find(self, index: int) -> Board:
        """Find the GPU at an index; called in a thread of its own."""
        handle, identity = identify(self._library, index)
        board = Board(
            self._library,
            handle,
            identity,
            self._gpu(identity).ledger,
            request=self._nvml.c_nvmlGpmMetricsGet_t(),
            clock=self._clock,
            interval=self._interval,
            longest=self._longest,
        )
        self._xid.add(handle, identity, board.profile)
        return board

    def _gpu(self, identity: Identity) -> Gpu:
        with self._lock:
            gpu = self._gpus.get(identity.uuid)
            if gpu is None:
                gpu = self._gpus[identity.uuid] = Gpu(identity, self._longest)
            return gpu

    def _accept(self, outcome: Outcome) -> None:
        if outcome.identity is not None:
            self._gpu(outcome.identity).accept(outcome)

    def _settle(self, now: float) -> None:
        """Let go of what is too old, and publish the rest."""
        is_open = self._library.is_open
        present = {
            slot.board.identity.uuid: slot
            for slot in (self._fleet.slots if is_open else ())
            if slot.board is not None
        }
        with self._lock:
            gpus = dict(self._gpus)
        for uuid, gpu in gpus.items():
            if uuid not in present:
                gpu.lose("missing" if is_open else self._fleet.failure.reason)
            elif present[uuid].hangs(now - STALE_INTERVALS * self._interval):
                gpu.lose("hanging")
            gpu.tell()
        shown = [*(gpu.shown for gpu in gpus.values()), *self._nameless(gpus)]
        before, self._shown = (
            self._shown,
            tuple(sorted(shown, key=lambda entry: int(entry.identity.gpu))),
        )
        if self._shelf.wanted:
            # Of a GPU that is still being read there is nothing new to keep.
            old = set(map(id, before))
            new = [entry for entry in self._shown if id(entry) not in old]
            self._shelf.put({**self._numbers(new), **self._xid.numbers()})

    def _nameless(self, gpus: dict[str, Gpu]) -> list[Shown]:
        """GPUs that never said who they are."""
        known = {gpu.shown.identity.gpu for gpu in gpus.values()}
        return [
            Shown(Identity(str(slot.index), "", "", "", self._library.driver))
            for slot in self._fleet.slots
            if slot.board is None and slot.error is not None and str(slot.index) not in known
        ]

    def _verdict(self) -> str:
        up = [shown for shown in self._shown if shown.up]
        if not up:
            raise self._none_up()
        self._fleet.works()
        activity = sum(shown.activity for shown in up) or "none"
        return (
            f"{len(up)} of {len(self._shown)} GPUs answer, driver "
            f"{self._library.driver or 'unknown'}; SM and DRAM activity by GPM on {activity}"
        )

    def _none_up(self) -> SourceError:
        slots = self._fleet.slots
        error = next((slot.error for slot in slots if slot.error is not None), None)
        if error is not None:
            return trouble(error.code, f"no GPU can be read, {error.call} fails")
        if any(slot.lane.busy for slot in slots):
            return SourceError("hanging", "no GPU answers: calls into the driver do not return")
        return SourceError("starting", "no GPU was read yet")

    def lines(self, fresh: bool) -> Lines:
        """Return what was read of each GPU that is fresh, and of each whether it is up."""
        oldest = self._clock() - STALE_INTERVALS * self._interval
        entries = self._shown
        fit = tuple(fresh and entry.up and entry.read >= oldest for entry in entries)
        more = {**self._xid.numbers(), **self._failures()}
        written = self._written
        if written is not None and written[0] is entries and written[1:3] == (fit, more):
            return written[3]
        shown = [
            entry if good else Shown(entry.identity)
            for entry, good in zip(entries, fit, strict=True)
        ]
        found = self._write(shown, more)
        self._written = (entries, fit, more, found)
        return found

    def _write(self, shown: Iterable[Shown], more: Mapping[Key, float]) -> Lines:
        sampled: dict[str, Family] = {}
        for entry in shown:
            for name, lines in entry.sampled.items():
                sampled.setdefault(name, Family()).extend(lines)
        return {**self._writer.lines(Reading({**self._numbers(shown), **more})), **sampled}

    def _failures(self) -> dict[Key, float]:
        return {
            Key(_CALL_ERRORS, labels): float(count) for labels, count in self._library.failures()
        }

    def _numbers(self, shown: Iterable[Shown]) -> dict[Key, float]:
        found: dict[Key, float] = {}
        for entry in shown:
            found[up_key(entry.identity)] = float(entry.up)
            found.update(entry.numbers)
        return found

    def boards(self) -> frozenset[str]:
        """Return the UUIDs of the GPUs that were read last."""
        return frozenset(shown.identity.uuid for shown in self._shown if shown.up)

    def activities(self) -> frozenset[str]:
        """Return the UUIDs of those among them whose activity GPM gives."""
        return frozenset(
            shown.identity.uuid for shown in self._shown if shown.up and shown.activity
        )

    def close(self) -> None:
        """Close NVML, unless a call into it hangs; it then ends with the process."""
        self._xid.stop()
        self._fleet.close()
