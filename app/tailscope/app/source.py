"""The requests behind the pages: read from the store once, shared by all who look.

A read is kept as long as nothing was written, and while it is young. How young depends on what it
cost, so that a large store does not keep the machine busy.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tailscope.app.access import masked, single
from tailscope.app.gpus import examined
from tailscope.app.loaded import COST_SHARE, MIN_AGE, MOST_ROWS, Loaded, Question
from tailscope.app.prometheus import Prometheus
from tailscope.app.roles import OPERATOR, Viewer
from tailscope.app.series import Series
from tailscope.app.stores import Part, Stores
from tailscope.records.clocks import Skew
from tailscope.records.joining import MARGIN_NS, MAX_NS
from tailscope.triage.identity import arrival, find
from tailscope.triage.neighbours import Neighbourhood, neighbours
from tailscope.triage.scope import Scope
from tailscope.triage.stages import floats

__all__ = ["COST_SHARE", "MIN_AGE", "Loaded", "Question", "Source"]

LOOKBACK_NS = 600 * 10**9
"""Requests that arrived this long before a window, or a request, may still have run in it."""

MAX_SAMPLED_NS = 3600 * 10**9
"""Samples beside one request are read for no longer than this."""

SETTLED_NS = 60 * 10**9
"""Samples of a time that ended so long ago have all been written."""

ABSENT = 30.0
"""Seconds for which an id that the store lacks is not looked for again."""

CLOCKED_NS = 600 * 10**9
"""Clocks are compared over so long."""

_Key = tuple[float | None, tuple[int | None, int | None] | None]
_KEPT = 3
_SAMPLES = 8
_STAYS = 32


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
        self.viewer = viewer
        self._now = now
        self._clock = clock
        self._kept: OrderedDict[_Key, Loaded] = OrderedDict()
        self._samples: OrderedDict[tuple[tuple[str, ...], int, int], pd.DataFrame] = OrderedDict()
        self._stays: OrderedDict[str, tuple[float, tuple[int, int] | None]] = OrderedDict()
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
        until = MAX_NS if end is None else end
        frame = self._requests(max(start - LOOKBACK_NS, 0), until, start)
        scope = Scope(start_ns=start or None, end_ns=end)
        gpus = examined(self._series, frame, scope)
        loaded = Loaded(frame, start, stamp, self._clock(), gpus, end)
        loaded.cost = self._clock() - began
        return loaded

    def _requests(self, start_ns: int, end_ns: int, since_ns: int = 0) -> pd.DataFrame:
        return masked(self._reader.window(start_ns, end_ns), self.viewer, since_ns)

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

    def skews(self, loaded: Loaded) -> tuple[Skew, ...]:
        """How far the clocks of engines and gateways are apart, over the end of a window.

        Raises:
            ReaderError: If a store cannot be read.
        """
        if loaded.frame.empty:
            return ()
        end = int(loaded.frame["arrived_ns"].max()) + 1
        start = max(loaded.start_ns, end - CLOCKED_NS)
        return loaded.once(lambda: self._reader.skews(start, end), "skews")

    def _stamp(self) -> object:
        """Changes whenever something was written."""
        return tuple(_files(directory / "requests") for directory in self.directories)

    def around(self, text: str, loaded: Loaded) -> Neighbourhood | None:
        """One request and those beside it, wherever in the store it is; None if it is not there.

        Args:
            text: Its key; or its span, trace or request id, for which all of the store is searched
                where the loaded window does not hold it.
            loaded: The window that is looked at.

        Raises:
            ReaderError: If the store cannot be read.
        """
        position = find(loaded.frame, text)
        if position is not None:
            return _around(loaded.frame, position)
        stay = self._stay(text)
        if stay is None:
            return None
        frame = self._requests(max(stay[0] - LOOKBACK_NS, 0), stay[1])
        position = find(frame, text)
        return None if position is None else _around(frame, position)

    def _stay(self, text: str) -> tuple[int, int] | None:
        """From when to when a request was there, UTC nanoseconds; whoever looks."""
        with self._lock:
            at, found = self._stays.get(text, (-math.inf, None))
        if found is not None or self._clock() - at < ABSENT:
            return found
        if (arrived := arrival(text)) is not None:
            found = self._stayed(text, arrived, arrived)
        if found is None and (arrived := self._reader.arrival(text)) is not None:
            # The row that has the id may be the partner of the one that counts.
            found = self._stayed(text, max(arrived - MARGIN_NS, 0), arrived + MARGIN_NS)
        with self._lock:
            self._stays[text] = self._clock(), found
            while len(self._stays) > _STAYS:
                self._stays.popitem(last=False)
        return found

    def _stayed(self, text: str, first: int, last: int) -> tuple[int, int] | None:
        frame = self._reader.window(first, last + 1)
        position = find(frame, text)
        if position is None:
            return None
        arrived = int(frame["arrived_ns"].iloc[position])
        seconds = float(np.nan_to_num(floats(frame, "total_seconds")[position]))
        return arrived, arrived + max(int(seconds * 1e9), 1)


def _around(frame: pd.DataFrame, position: int) -> Neighbourhood | None:
    """One request and those beside it; None where it is not to be looked at by itself."""
    if not single(frame.iloc[[position]])[0]:
        return None
    return neighbours(frame, position)


def _files(folder: Path) -> frozenset[tuple[str, int]] | None:
    try:
        with os.scandir(folder) as entries:
            return frozenset((entry.name, entry.stat().st_size) for entry in entries)
    except FileNotFoundError:
        return None
