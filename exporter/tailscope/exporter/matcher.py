"""Pairs engine rows with gateway rows as they come, so that metrics count each request once.

The store keeps every row and joins at read time; metrics cannot wait. A row waits here for its
partner, a few seconds and a bounded number of rows; then it counts alone. Partners are found by
identity (the calling span, or the trace), never by time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from tailscope.records.record import RequestRecord

Emit = Callable[[RequestRecord | None, RequestRecord | None], None]

WAIT_SECONDS = 10.0
"""vLLM exports its spans up to 5 s after the request ended."""

_MAX_WAITING = 50_000


class _Waiting:
    __slots__ = ("matched", "record", "until")

    def __init__(self, record: RequestRecord, until: float) -> None:
        self.record = record
        self.until = until
        self.matched = False


class Matcher:
    """Pairs rows and hands each request on once.

    Args:
        emit: Called with the engine row and the gateway row of a request, one of them None if it
            has no partner. Called under the matcher's lock, in order.
        expect_gateway: Whether a gateway's rows are to be expected from the start. Otherwise
            engine rows begin to wait when the first gateway row has been seen.
        now: Monotonic clock, seconds.
    """

    def __init__(
        self, emit: Emit, *, expect_gateway: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._gateway_seen = expect_gateway
        self._now = now
        self._lock = threading.Lock()
        # By trace, oldest first; the value lists the rows of the trace that are still here.
        self._engines: OrderedDict[str, list[_Waiting]] = OrderedDict()
        self._gateways: OrderedDict[str, list[_Waiting]] = OrderedDict()
        self._alone: OrderedDict[str, float] = OrderedDict()

    def add(self, records: Iterable[RequestRecord]) -> None:
        """Take rows that were accepted."""
        with self._lock:
            until = self._now() + WAIT_SECONDS
            for record in records:
                if record.role == "engine":
                    self._add_engine(record, until)
                else:
                    self._add_gateway(record, until)
            self._expire()

    def expire(self) -> None:
        """Count what has waited long enough."""
        with self._lock:
            self._expire()

    def flush(self) -> None:
        """Count everything that waits."""
        with self._lock:
            self._expire(everything=True)

    def _add_engine(self, record: RequestRecord, until: float) -> None:
        trace = record.trace_id
        if trace is None:
            self._emit(record, None)
            return
        partner = _partner(record, self._gateways.get(trace, []))
        if partner is not None:
            partner.matched = True
            self._emit(record, partner.record)
        elif self._gateway_seen:
            self._engines.setdefault(trace, []).append(_Waiting(record, until))
        else:
            self._alone[trace] = until
            self._emit(record, None)

    def _add_gateway(self, record: RequestRecord, until: float) -> None:
        self._gateway_seen = True
        trace = record.trace_id
        if trace is None:
            self._emit(None, record)
            return
        entry = _Waiting(record, until)
        if trace in self._alone:
            entry.matched = True  # its engine row was counted before any gateway was known
        waiting = self._engines.get(trace, [])
        rest = []
        for engine in waiting:
            if engine.record.parent_span_id == record.span_id or len(waiting) == 1:
                entry.matched = True
                self._emit(engine.record, record)
            else:
                rest.append(engine)
        if rest:
            self._engines[trace] = rest
        else:
            self._engines.pop(trace, None)
        self._gateways.setdefault(trace, []).append(entry)

    def _expire(self, everything: bool = False) -> None:
        now = self._now()
        for waiting in (self._engines, self._gateways):
            while waiting:
                trace, entries = next(iter(waiting.items()))
                full = len(waiting) > _MAX_WAITING
                if entries[0].until > now and not full and not everything:
                    break
                del waiting[trace]
                self._release(trace, entries)
        while self._alone:
            trace, until = next(iter(self._alone.items()))
            if until > now and len(self._alone) <= _MAX_WAITING:
                break
            del self._alone[trace]

    def _release(self, trace: str, entries: list[_Waiting]) -> None:
        for entry in entries:
            if entry.record.role == "engine":
                self._alone[trace] = entry.until + WAIT_SECONDS
                self._emit(entry.record, None)
            elif not entry.matched:
                self._emit(None, entry.record)


def _partner(engine: RequestRecord, gateways: list[_Waiting]) -> _Waiting | None:
    for gateway in gateways:
        if engine.parent_span_id is not None and gateway.record.span_id == engine.parent_span_id:
            return gateway
    return gateways[0] if len(gateways) == 1 else None
