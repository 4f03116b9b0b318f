"""The requests behind the pages: read from the store once, shared by all who look.

A read is kept as long as nothing was written, and while it is young. How young depends on what it
cost, so that a large store does not keep the machine busy.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from tailscope.app.access import masked
from tailscope.app.gpus import examined
from tailscope.app.prometheus import Prometheus
from tailscope.app.roles import OPERATOR, Viewer
from tailscope.app.series import Series
from tailscope.app.stores import Part, Stores
from tailscope.records.joining import MAX_NS
from tailscope.triage.capacity import Capacity
from tailscope.triage.diagnosis import Diagnosis, Options
from tailscope.triage.finding import Finding, Sight
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

_Key = tuple[float | None, tuple[int | None, int | None] | None]
_T = TypeVar("_T")
_KEPT = 3
_DERIVED = 64
_SAMPLES = 8
_DIAGNOSES = 8

MOST_ROWS = 3_000_000
"""Requests that are kept, in one or several windows; a single window may have more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the requests that were read.

    Attributes:
        scope: Window, filters and what slow means.
        offline: Tenants whose work may take its time.
        objective: Seconds that p99 of the total time may have.
    """

    scope: Scope
    offline: frozenset[str] = frozenset()
    objective: float | None = None

    def options(self) -> Options:
        """The same for the triage."""
        return Options(self.scope, offline=self.offline, objective=self.objective)


class Loaded:
    """Requests of one window, and what was found in them.

    Attributes:
        frame: Requests of the window and of the time before it.
        start_ns: First arrival of the window; 0 for the beginning.
        end_ns: First arrival behind it; None for the end.
        at: When it was read, seconds of the monotonic clock.
        cost: Seconds that reading and the first analysis took.
        gpus: What the GPUs went through in the window.
        names: What the frame holds of each column that can be filtered by.
        lock: Held while a part of a diagnosis is computed.
        read_ns: When it was read, UTC nanoseconds.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        start_ns: int,
        stamp: object,
        at: float,
        gpus: tuple[Gpu, ...] = (),
        end_ns: int | None = None,
    ) -> None:
        self.frame = frame
        self.gpus = gpus
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.stamp = stamp
        self.at = at
        self.cost = 0.0
        self.names = {name: sorted(map(str, named(frame, name).unique())) for name in FILTERS}
        self._diagnoses: OrderedDict[Question, Diagnosis] = OrderedDict()
        self._capacities: OrderedDict[tuple[Question, str | None], Capacity | None] = OrderedDict()
        self._derived: OrderedDict[tuple[Hashable, ...], Any] = OrderedDict()
        self.lock = threading.RLock()
        self._replaying = threading.Lock()
        self.read_ns = time.time_ns()

    @property
    def _room(self) -> int:
        """How many diagnoses are kept: each holds as much as the requests themselves."""
        return max(min(_DIAGNOSES, MOST_ROWS // max(len(self.frame), 1)), 1)

    @property
    def checked(self) -> bool:
        """Whether a replay was made of any part of it."""
        with self.lock:
            return any(one.checked for one in self._diagnoses.values())

    @property
    def pause(self) -> float:
        """Seconds after which a fresh read is worth what it costs."""
        return max(MIN_AGE, self.cost / COST_SHARE)

    def diagnosis(self, asked: Scope | Question) -> Diagnosis:
        """What there is to say about a part of the window, as far as it was asked for.

        Its parts are computed when they are first read: read them under ``lock``.
        """
        question = asked if isinstance(asked, Question) else Question(asked)
        with self.lock:
            if question not in self._diagnoses:
                while len(self._diagnoses) >= self._room:
                    self._diagnoses.popitem(last=False)
                self._diagnoses[question] = Diagnosis(
                    self.frame, question.options(), gpus=self.gpus
                )
            self._diagnoses.move_to_end(question)
            return self._diagnoses[question]

    def replay(self, asked: Scope | Question) -> None:
        """Check what is said of a part of the window by a replay.

        It takes seconds, in which others read what is known without it.
        """
        diagnosis = self.diagnosis(asked)
        with self._replaying:
            if diagnosis.checked:
                return
            with self.lock:
                _ = diagnosis.quick
            began = time.monotonic()
            found = diagnosis.replay()
            with self.lock:
                diagnosis.adopt(found)
            self.cost = max(self.cost, time.monotonic() - began)

    def replayed(self, asked: Scope | Question) -> bool:
        """Whether there is such a check already."""
        question = asked if isinstance(asked, Question) else Question(asked)
        with self.lock:
            found = self._diagnoses.get(question)
            return found is not None and found.checked

    def sight(self, asked: Scope | Question) -> Sight:
        """Percentiles of a part of the window."""
        with self.lock:
            return self.diagnosis(asked).sight

    def finding(self, asked: Scope | Question) -> Finding:
        """Percentiles, slow requests and tenants of a part of the window; nobody is named."""
        with self.lock:
            began = time.monotonic()
            found = self.diagnosis(asked).finding
            self.cost = max(self.cost, time.monotonic() - began)
            return found

    def once(self, make: Callable[[], _T], *key: Hashable) -> _T:
        """Something small that is derived from the requests, made once for a key.

        Args:
            make: Makes it.
            key: What it depends on, beside the requests.
        """
        with self.lock:
            if key not in self._derived:
                while len(self._derived) >= _DERIVED:
                    self._derived.popitem(last=False)
                self._derived[key] = make()
            self._derived.move_to_end(key)
            found: _T = self._derived[key]
            return found

    def capacity(self, question: Question, tenant: str | None) -> Capacity | None:
        """Latency against load, played once for a question and a tenant."""
        key = question, tenant
        with self.lock:
            if key not in self._capacities:
                while len(self._capacities) >= _DIAGNOSES:
                    self._capacities.popitem(last=False)
                self._capacities[key] = self.diagnosis(question).capacity(tenant)
            return self._capacities[key]


class Source:
    """Stores, and perhaps a Prometheus, as the pages see them. Safe to share between threads.

    Args:
        directories: The exporters' ``--data``, or one of them.
        prometheus: Where series come from that the store does not hold.
        viewer: Who looks: what others may not see is taken out as it is read.
        now: Wall clock, seconds.
        clock: Monotonic clock, seconds.
    """

    def __init__(
        self,
        directories: Path | Sequence[Path],
        *,
        prometheus: Prometheus | None = None,
        viewer: Viewer = OPERATOR,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        found = (directories,) if isinstance(directories, Path) else tuple(directories)
        self.directories = found
        self.prometheus = prometheus
        self._reader = Stores(found)
        self._series = Series(self._reader, prometheus)
        self._viewer = viewer
        self._now = now
        self._clock = clock
        self._kept: OrderedDict[_Key, Loaded] = OrderedDict()
        self._samples: OrderedDict[tuple[tuple[str, ...], int, int], pd.DataFrame] = OrderedDict()
        self._span: tuple[object, tuple[int, int] | None] | None = None
        self._parts: tuple[object, tuple[Part, ...]] | None = None
        self._lock = threading.Lock()
        self._last: tuple[_Key, Loaded] | None = None

    def exists(self) -> bool:
        """Whether an exporter has ever written here."""
        return self._reader.exists()

    def parts(self) -> tuple[Part, ...]:
        """What each of the stores holds.

        Raises:
            ReaderError: If one cannot be read.
        """
        with self._lock:
            stamp = self._stamp()
            if self._parts is None or self._parts[0] != stamp:
                self._parts = stamp, self._reader.parts()
            return self._parts[1]

    def span(self) -> tuple[int, int] | None:
        """Arrival of the oldest and the newest request; None if there is none."""
        with self._lock:
            stamp = self._stamp()
            if self._span is None or self._span[0] != stamp:
                self._span = stamp, self._reader.span()
            return self._span[1]

    def window(
        self, seconds: float | None, period: tuple[int | None, int | None] | None = None
    ) -> Loaded:
        """Requests of the last so many seconds, of a period, or all.

        Args:
            seconds: How far back from now; None for all that there is.
            period: Bounds of the arrival instead, UTC nanoseconds; None for an open end.

        Raises:
            ReaderError: If the store cannot be read.
        """
        key = seconds, period
        with self._lock:
            stamp, clock = self._stamp(), self._clock()
            kept = self._kept.get(key)
            if kept is not None:
                young = clock - kept.at < kept.pause
                if young or (seconds is None and kept.stamp == stamp):
                    self._kept.move_to_end(key)
                    if kept.checked and self._last is not None and self._last[0] == key:
                        self._last = None  # it has done its service
                    return kept
            self._kept.pop(key, None)
            loaded = self._load(key, stamp)
            self._kept[key] = loaded
            if kept is not None and kept.checked:
                self._last = key, kept
            while len(self._kept) > 1 and self._crowded():
                self._kept.popitem(last=False)
            return loaded

    def _crowded(self) -> bool:
        rows = sum(len(loaded.frame) for loaded in self._kept.values())
        return len(self._kept) > _KEPT or rows > MOST_ROWS

    def last(
        self, seconds: float | None, period: tuple[int | None, int | None] | None = None
    ) -> Loaded | None:
        """The same window as it was read before, if replays were made of it; of one window only.

        It is what a page may show while the replay of a newer read is made.
        """
        with self._lock:
            if self._last is None or self._last[0] != (seconds, period):
                return None
            return self._last[1]

    def _load(self, key: _Key, stamp: object) -> Loaded:
        began = self._clock()
        seconds, period = key
        start = 0 if seconds is None else int((self._now() - seconds) * 1e9)
        end = None
        if period is not None:
            start, end = period[0] or 0, period[1]
        frame = self._requests(max(start - LOOKBACK_NS, 0), MAX_NS if end is None else end)
        scope = Scope(start_ns=start or None, end_ns=end)
        gpus = examined(self._series, frame, scope)
        loaded = Loaded(frame, start, stamp, self._clock(), gpus, end)
        loaded.cost = self._clock() - began
        return loaded

    def _requests(self, start_ns: int, end_ns: int) -> pd.DataFrame:
        return masked(self._reader.window(start_ns, end_ns), self._viewer)

    def samples(self, metrics: tuple[str, ...], start_ns: int, end_ns: int) -> pd.DataFrame:
        """Samples of engines and GPUs, each with its ``origin``; those of the past are read once.

        Of a time that is longer than ``MAX_SAMPLED_NS`` only the end.

        Raises:
            ReaderError: If the store cannot be read.
        """
        key = metrics, max(start_ns, end_ns - MAX_SAMPLED_NS), end_ns
        with self._lock:
            if key in self._samples:
                self._samples.move_to_end(key)
                return self._samples[key]
        found = self._series.samples(*key)
        told = self.prometheus is None or not self.prometheus.trouble
        if told and end_ns + SETTLED_NS < self._now() * 1e9:
            with self._lock:
                self._samples[key] = found
                while len(self._samples) > _SAMPLES:
                    self._samples.popitem(last=False)
        return found

    def _stamp(self) -> object:
        """Changes whenever something was written."""
        return tuple(_files(directory / "requests") for directory in self.directories)

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
        itself = self._requests(arrived, arrived + 1)
        position = find(itself, text)
        if position is None:
            return None
        seconds = float(pd.Series(floats(itself, "total_seconds")).fillna(0.0).iloc[position])
        end = arrived + max(int(seconds * 1e9), 1)
        frame = self._requests(max(arrived - LOOKBACK_NS, 0), end)
        position = find(frame, text)
        return None if position is None else neighbours(frame, position)


def _files(folder: Path) -> frozenset[tuple[str, int]] | None:
    try:
        with os.scandir(folder) as entries:
            return frozenset((entry.name, entry.stat().st_size) for entry in entries)
    except FileNotFoundError:
        return None
