"""The requests behind the pages: read from the store once, shared by all who look.

A read is kept as long as nothing was written, and while it is young. How young depends on what it
cost, so that a large store does not keep the machine busy.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from tailscope.app.gpus import examined
from tailscope.records.reader import Reader
from tailscope.triage.diagnosis import Diagnosis, Options
from tailscope.triage.finding import Finding
from tailscope.triage.hardware import Gpu
from tailscope.triage.identity import arrival, find
from tailscope.triage.neighbours import Neighbourhood, neighbours
from tailscope.triage.scope import Scope
from tailscope.triage.stages import floats, named

LOOKBACK_NS = 600 * 10**9
"""Requests that arrived this long before a window, or a request, may still have run in it."""

MIN_AGE = 4.0
COST_SHARE = 0.1
"""Part of the time that may go into reading."""

FILTERS = ("tenant", "model", "server")
"""Columns that can be filtered by."""

MAX_SAMPLED_NS = 3600 * 10**9
"""Samples beside one request are read for no longer than this."""

SETTLED_NS = 60 * 10**9
"""Samples of a time that ended so long ago have all been written."""

_KEPT = 3
_SAMPLES = 8
_DIAGNOSES = 8


class Loaded:
    """Requests of one window, and what was found in them.

    Attributes:
        frame: Requests of the window and of the time before it.
        start_ns: First arrival of the window.
        at: When it was read, seconds of the monotonic clock.
        cost: Seconds that reading and the first analysis took.
        gpus: What the GPUs went through in the window.
        names: What the frame holds of each column that can be filtered by.
        lock: Held while a part of a diagnosis is computed.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        start_ns: int,
        stamp: object,
        at: float,
        gpus: tuple[Gpu, ...] = (),
    ) -> None:
        self.frame = frame
        self.gpus = gpus
        self.start_ns = start_ns
        self.stamp = stamp
        self.at = at
        self.cost = 0.0
        self.names = {name: sorted(map(str, named(frame, name).unique())) for name in FILTERS}
        self._diagnoses: OrderedDict[Scope, Diagnosis] = OrderedDict()
        self.lock = threading.RLock()

    @property
    def pause(self) -> float:
        """Seconds after which a fresh read is worth what it costs."""
        return max(MIN_AGE, self.cost / COST_SHARE)

    def diagnosis(self, scope: Scope) -> Diagnosis:
        """What there is to say about a part of the window, as far as it was asked for.

        Its parts are computed when they are first read: read them under ``lock``.
        """
        with self.lock:
            if scope not in self._diagnoses:
                while len(self._diagnoses) >= _DIAGNOSES:
                    self._diagnoses.popitem(last=False)
                self._diagnoses[scope] = Diagnosis(self.frame, Options(scope), gpus=self.gpus)
            return self._diagnoses[scope]

    def finding(self, scope: Scope) -> Finding:
        """Percentiles, slow requests and tenants of a part of the window; nobody is named."""
        with self.lock:
            return self.diagnosis(scope).finding


class Source:
    """A store as the pages see it. Safe to share between threads.

    Args:
        directory: The exporter's ``--data``.
        now: Wall clock, seconds.
        clock: Monotonic clock, seconds.
    """

    def __init__(
        self,
        directory: Path,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self._reader = Reader(directory)
        self._now = now
        self._clock = clock
        self._kept: OrderedDict[float | None, Loaded] = OrderedDict()
        self._samples: OrderedDict[tuple[tuple[str, ...], int, int], pd.DataFrame] = OrderedDict()
        self._span: tuple[object, tuple[int, int] | None] | None = None
        self._lock = threading.Lock()

    def exists(self) -> bool:
        """Whether an exporter has ever written here."""
        return self._reader.exists()

    def span(self) -> tuple[int, int] | None:
        """Arrival of the oldest and the newest request; None if there is none."""
        with self._lock:
            stamp = self._stamp()
            if self._span is None or self._span[0] != stamp:
                self._span = stamp, self._reader.span()
            return self._span[1]

    def window(self, seconds: float | None) -> Loaded:
        """Requests of the last so many seconds, or all.

        Raises:
            ReaderError: If the store cannot be read.
        """
        with self._lock:
            stamp, clock = self._stamp(), self._clock()
            kept = self._kept.get(seconds)
            if kept is not None:
                young = clock - kept.at < kept.pause
                if young or (seconds is None and kept.stamp == stamp):
                    self._kept.move_to_end(seconds)
                    return kept
            self._kept.pop(seconds, None)
            loaded = self._load(seconds, stamp)
            self._kept[seconds] = loaded
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return loaded

    def _load(self, seconds: float | None, stamp: object) -> Loaded:
        began = self._clock()
        start = 0 if seconds is None else int((self._now() - seconds) * 1e9)
        frame = self._reader.requests(max(start - LOOKBACK_NS, 0))
        gpus = examined(self._reader, frame, Scope(start_ns=start or None))
        loaded = Loaded(frame, start, stamp, self._clock(), gpus)
        loaded.finding(Scope(start_ns=start or None))
        loaded.cost = self._clock() - began
        return loaded

    def samples(self, metrics: tuple[str, ...], start_ns: int, end_ns: int) -> pd.DataFrame:
        """Stored samples of engines and GPUs; those of the past are read once.

        Of a time that is longer than ``MAX_SAMPLED_NS`` only the end.

        Raises:
            ReaderError: If the store cannot be read.
        """
        key = metrics, max(start_ns, end_ns - MAX_SAMPLED_NS), end_ns
        with self._lock:
            if key in self._samples:
                self._samples.move_to_end(key)
                return self._samples[key]
        found = self._reader.samples(*key)
        if end_ns + SETTLED_NS < self._now() * 1e9:
            with self._lock:
                self._samples[key] = found
                while len(self._samples) > _SAMPLES:
                    self._samples.popitem(last=False)
        return found

    def _stamp(self) -> object:
        """Changes whenever something was written."""
        try:
            with os.scandir(self.directory / "requests") as entries:
                return frozenset((entry.name, entry.stat().st_size) for entry in entries)
        except FileNotFoundError:
            return None

    def around(self, text: str, loaded: Loaded) -> Neighbourhood | None:
        """One request and those beside it; None if it is not there.

        Args:
            text: Its key, which is found wherever in the store it is; or its span, trace or request
                id, which is found in the loaded window.
            loaded: The window that is looked at.

        Raises:
            ReaderError: If the store cannot be read.
        """
        position = find(loaded.frame, text)
        if position is not None:
            return neighbours(loaded.frame, position)
        arrived = arrival(text)
        if arrived is None:
            return None
        itself = self._reader.requests(arrived, arrived + 1)
        position = find(itself, text)
        if position is None:
            return None
        seconds = float(pd.Series(floats(itself, "total_seconds")).fillna(0.0).iloc[position])
        end = arrived + max(int(seconds * 1e9), 1)
        frame = self._reader.requests(max(arrived - LOOKBACK_NS, 0), end)
        position = find(frame, text)
        return None if position is None else neighbours(frame, position)
