"""The requests of one window, and what was found in them, part by part as it is asked for."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import pandas as pd

from tailscope.triage.capacity import Capacity
from tailscope.triage.diagnosis import Diagnosis, Options
from tailscope.triage.finding import Finding, Sight
from tailscope.triage.hardware import Gpu
from tailscope.triage.scope import Scope
from tailscope.triage.stages import named

MIN_AGE = 4.0
COST_SHARE = 0.1
"""Part of the time that may go into reading."""

FILTERS = ("tenant", "model", "server")
"""Columns that can be filtered by."""

MOST_ROWS = 3_000_000
"""Requests that are kept, in one or several windows; a single window may have more."""

_T = TypeVar("_T")
_DERIVED = 64
_DIAGNOSES = 8


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
