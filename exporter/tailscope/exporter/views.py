"""Rows that came not long ago, so that each request of an engine counts once, and as a whole.

A row may be sent twice; more may be told of it when the spans of its stages come; and a line of a
file may be another view of it. Where such was seen, a row waits for it a while.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from tailscope.records.record import RequestRecord
from tailscope.records.view import merged, observer, same_request

_MAX_SEEN = 20_000
_MAX_VIEWS = 20_000
_MAX_EARLY = 5_000
_MAX_ALIKE = 64
_EXPECTED_SECONDS = 60.0

_Observer = tuple[str, bool]
_Id = tuple[str, str]


class _View:
    """A request of an engine: what was told of it, by whom, and whether it waits for more."""

    __slots__ = ("observers", "record", "until", "waits")

    def __init__(self, record: RequestRecord, until: float, waits: bool) -> None:
        self.record = record
        self.until = until
        self.waits = waits
        self.observers = {observer(record)}


class Views:
    """Rows by their span, of which only hashes are kept, and requests of engines by their ids.

    Args:
        seconds: How long a row waits for another view of its request.
        staged: Sources whose stages come in spans of their own, as long as nothing speaks against.
    """

    def __init__(self, seconds: float, staged: Iterable[str] = ()) -> None:
        self._seconds = seconds
        self._new: set[int] = set()
        self._old: set[int] = set()
        self._observers: set[_Observer] = set()
        self._early: deque[Sequence[RequestRecord]] = deque()
        self._early_rows = 0
        self._views: deque[_View] = deque()
        self._by_id: dict[_Id, dict[_View, None]] = {}
        # Until when it is expected of an observer that more comes: of stages, and another view.
        self._stages_until = {(source, False): math.inf for source in staged}
        self._twins_until: dict[_Observer, float] = {}

    def new(self, records: Iterable[RequestRecord], now: float) -> list[RequestRecord]:
        """Take rows; returns those that count now."""
        fresh = [record for record in records if self._first(record)]
        told = [record for record in fresh if record.role == "engine"]
        self._observers |= {observer(record) for record in told}
        if self._alone():
            self._remember_early(told)
            return fresh
        while self._early:
            for record in self._early.popleft():
                self._add(record, now, waits=False)
        return [one for record in fresh if (one := self._counts(record, now)) is not None]

    def fuller(self, records: Iterable[RequestRecord], now: float) -> list[RequestRecord]:
        """Take rows once more, with their stages; returns those that waited for them."""
        found = []
        for record in records:
            mine = observer(record)
            self._stages_until[mine] = now + _EXPECTED_SECONDS
            for view in self._by_id.get(("span", record.span_id or ""), ()):
                if view.waits and view.record.trace_id == record.trace_id:
                    view.record = record
                    if not self._expects_twin(mine, now):
                        view.waits = False
                        found.append(record)
        return found

    def due(self, now: float, everything: bool = False) -> Iterator[RequestRecord]:
        """Yield the rows that have waited long enough."""
        views = self._views
        while views and (everything or views[0].until <= now or len(views) > _MAX_VIEWS):
            view = views.popleft()
            if view.waits:
                view.waits = False
                self._in_vain(view.record)
                yield view.record
                if not everything:
                    view.until = now + self._seconds
                    views.append(view)
                    continue
            for key in _ids(view.record):
                del self._by_id[key][view]
                if not self._by_id[key]:
                    del self._by_id[key]

    def _in_vain(self, record: RequestRecord) -> None:
        """A row has waited: if no stage has ever come, none is expected until one does."""
        mine = observer(record)
        if record.queue_seconds is None and self._stages_until.get(mine) == math.inf:
            del self._stages_until[mine]

    def _alone(self) -> bool:
        """Whether no row has another view: that takes a second observer, and one of files."""
        files = any(file for _, file in self._observers)
        several = len(self._observers) > 1 and files
        return not several and self._observers.isdisjoint(self._stages_until)

    def _first(self, record: RequestRecord) -> bool:
        """Whether its span was not seen before."""
        if record.span_id is None:
            return True
        key = hash((record.role, record.trace_id, record.span_id))
        if key in self._new or key in self._old:
            return False
        if len(self._new) >= _MAX_SEEN:
            self._old, self._new = self._new, set()
        self._new.add(key)
        return True

    def _remember_early(self, records: Sequence[RequestRecord]) -> None:
        """Remember rows that have no other view as yet."""
        if records:
            self._early.append(records[-_MAX_EARLY:])
            self._early_rows += len(self._early[-1])
        while self._early_rows > _MAX_EARLY:
            self._early_rows -= len(self._early.popleft())

    def _counts(self, record: RequestRecord, now: float) -> RequestRecord | None:
        if record.role != "engine":
            return record
        mine = observer(record)
        for key in _ids(record):
            for view in islice(self._by_id.get(key, ()), _MAX_ALIKE):
                if mine not in view.observers and same_request(view.record, record):
                    return self._met(view, record, now)
        poor = record.queue_seconds is None and self._stages_until.get(mine, 0.0) > now
        waits = poor or self._expects_twin(mine, now)
        self._add(record, now, waits=waits)
        return None if waits else record

    def _met(self, view: _View, record: RequestRecord, now: float) -> RequestRecord | None:
        """Another view of a request has come."""
        for one in view.observers:
            self._twins_until[one] = now + _EXPECTED_SECONDS
        view.observers.add(observer(record))
        if not view.waits:
            return None
        view.waits = False
        return merged(view.record, record)

    def _expects_twin(self, mine: _Observer, now: float) -> bool:
        return self._twins_until.get(mine, 0.0) > now

    def _add(self, record: RequestRecord, now: float, *, waits: bool) -> None:
        view = _View(record, now + self._seconds, waits)
        self._views.append(view)
        for key in _ids(record):
            self._by_id.setdefault(key, {})[view] = None


def _ids(record: RequestRecord) -> tuple[_Id, ...]:
    told = (
        ("request", record.request_id),
        ("trace", record.trace_id),
        ("span", record.span_id),
    )
    return tuple((kind, text) for kind, text in told if text is not None)
