"""XID events: the driver's own reports of faults, as they come.

What happened before a GPU was registered is lost, and the counters begin at 0 with the exporter.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tailscope.catalogue import PREFIX
from tailscope.catalogue.nvml import TIMEOUT
from tailscope.catalogue.xid import FORESEEN, action
from tailscope.exporter.reading import Key
from tailscope.exporter.sources.nvml.identity import Identity
from tailscope.exporter.sources.nvml.library import Closed, Library, NvmlError

log = logging.getLogger(__name__)

_ERRORS = f"{PREFIX}gpu_xid_errors_total"
_LAST = f"{PREFIX}gpu_xid_last_timestamp_seconds"

_XID_EVENT = 0x8
_NO_INSTANCE = 0xFFFFFFFF
_PAUSE_SECONDS = 1.0


Profile = Callable[[int], str]
"""Profile of the instance with a number; empty where it is not known."""


class XidWatch:
    """Waits for events in a thread of its own.

    Args:
        library: NVML.
        wait: Seconds of one wait, for which NVML cannot be closed.
        now: Wall clock, in seconds.
    """

    def __init__(
        self, library: Library, wait: float = 0.5, now: Callable[[], float] = time.time
    ) -> None:
        self._library = library
        self._wait_ms = max(1, int(1000 * wait))
        self._now = now
        self._lock = threading.Lock()
        self._wanted: list[tuple[Any, Identity]] = []
        self._watched: dict[int, tuple[Any, Identity]] = {}
        self._foreseen: dict[Key, float] = {}
        self._profiles: dict[str, Profile] = {}
        self._counts: Counter[tuple[tuple[str, ...], int]] = Counter()
        self._last: dict[tuple[str, ...], float] = {}
        self._set: Any = None
        self._stop = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-xid", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, which it does after its wait."""
        self._stop.set()
        self._news.set()

    def add(self, handle: Any, identity: Identity, profile: Profile) -> None:
        """Watch a GPU, until NVML is closed.

        Args:
            handle: Its handle.
            identity: Who it is.
            profile: Tells the profile of an instance that an event names.
        """
        with self._lock:
            self._profiles[identity.uuid] = profile
            self._wanted.append((handle, identity))
        self._news.set()

    def free(self) -> None:
        """Give the event set back and forget the GPUs; NVML must be open and nobody inside."""
        with self._lock:
            self._wanted = []
        self._drop()

    def numbers(self) -> dict[Key, float]:
        """Return the counters; codes that are foreseen are there from the beginning."""
        with self._lock:
            found = dict(self._foreseen)
            found.update({_key(labels, code): n for (labels, code), n in self._counts.items()})
            found.update({Key(_LAST, labels): seen for labels, seen in self._last.items()})
        return found

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._library.inside():
                    idle = not self._round()
            except Closed:
                idle = True
            if idle:
                self._news.wait(_PAUSE_SECONDS)
                self._news.clear()

    def _round(self) -> bool:
        """Register who is new and wait once; returns whether to go on at once."""
        try:
            with self._lock:
                wanted, self._wanted = self._wanted, []
            for handle, identity in wanted:
                self._register(handle, identity)
            if self._watched:
                self._event(self._library.call("nvmlEventSetWait", self._set, self._wait_ms))
        except NvmlError as error:
            if error.code != TIMEOUT:  # which says that nothing happened
                self._restart(error)
                return False
        return bool(self._watched)

    def _register(self, handle: Any, identity: Identity) -> None:
        if self._set is None:
            self._set = self._library.call("nvmlEventSetCreate")
        try:
            if not int(self._library.call("nvmlDeviceGetSupportedEventTypes", handle)) & _XID_EVENT:
                return
            self._library.call("nvmlDeviceRegisterEvents", handle, _XID_EVENT, self._set)
        except NvmlError as error:
            # Not supported means no events, not a fault: vGPU, WSL, a GPU that is lost already.
            log.info("no XID events of GPU %s: %s", identity.gpu, error)
            return
        with self._lock:
            self._watched[_address(handle)] = (handle, identity)
            self._foreseen.update({_key(identity.labels(), code): 0.0 for code in FORESEEN})

    def _event(self, data: Any) -> None:
        identity = self._whose(data.device)
        if identity is None or not int(data.eventType) & _XID_EVENT:
            return
        code, gi = int(data.eventData), int(data.gpuInstanceId)
        labels = identity.labels()
        if gi != _NO_INSTANCE:
            labels = identity.labels(str(gi), self._profiles[identity.uuid](gi))
        with self._lock:
            self._counts[labels, code] += 1
            self._last[labels] = self._now()
            count = self._counts[labels, code]
        if not count & (count - 1):  # the first, the second, the fourth: a storm fills no disk
            _tell(identity, code, count)

    def _whose(self, handle: Any) -> Identity | None:
        known = self._watched.get(_address(handle))
        if known is not None:
            return known[1]
        try:
            uuid = self._library.text("nvmlDeviceGetUUID", handle)
        except NvmlError:
            return None
        return next((who for _, who in self._watched.values() if who.uuid == uuid), None)

    def _restart(self, error: NvmlError) -> None:
        """Begin anew with the same GPUs; one that is lost will not register."""
        self._library.count(error.call, error.code)
        with self._lock:
            self._wanted = [*self._watched.values(), *self._wanted]
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            self._watched, self._foreseen = {}, {}
            events, self._set = self._set, None
        if events is not None:
            try:
                self._library.call("nvmlEventSetFree", events)
            except NvmlError as error:
                log.debug("an event set was not given back: %s", error)


def _tell(identity: Identity, code: int, count: int) -> None:
    often = f", {count} times now" if count > 1 else ""
    log.warning("GPU %s (%s): XID %d, %s%s", identity.gpu, identity.uuid, code, action(code), often)


def _key(labels: Iterable[str], code: int) -> Key:
    return Key(_ERRORS, (*labels, str(code), action(code)))


def _address(handle: Any) -> int:
    """The value of a handle, which is a pointer."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
