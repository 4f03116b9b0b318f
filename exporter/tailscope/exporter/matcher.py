"""Pairs engine rows with gateway rows as they come, so that metrics count each request once.

The store keeps every row and joins at read time; metrics cannot wait. A row waits here for its
partner, a few seconds and within a bounded number of rows; then it counts alone. Partners are found
by identity, as the reader of the store finds them: the span that called the engine, then a trace
that holds one gateway row only, then a request id that only one gateway row has; never by time.

A gateway row whose span called that of another gateway row, or that is the one other row beside a
middleware's in a trace, is an outer view of the same request: it gives what the nearer one does not
know, and its word if it gave up, and counts not. Spans end from the inside to the outside, so the
outer view comes last: where one is to be expected, a pair waits for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum

from tailscope.exporter.outerview import lent
from tailscope.exporter.views import Views
from tailscope.records.record import RequestRecord

Pair = tuple[RequestRecord | None, RequestRecord | None]
"""The engine row and the gateway row of a request; one of them is None if it has no partner."""

Emit = Callable[[Sequence[Pair]], None]

WAIT_SECONDS = 10.0
"""vLLM exports its spans up to 5 s after the request ended."""

_MAX_ROWS = 20_000
_MAX_EARLY_ROWS = 5_000


class _State(Enum):
    WAITING = 1
    PAIRED = 2
    ALONE = 3
    OUTER = 4


class _Row:
    __slots__ = ("held", "lent", "outer", "record", "state", "until")

    def __init__(self, record: RequestRecord, state: _State, until: float) -> None:
        self.record = record
        self.state = state
        self.until = until
        # Of a gateway row: its engine rows that wait for its outer view, whether that has come,
        # and whether the tenant is that of a row beside it, which is not certain.
        self.held: list[RequestRecord] = []
        self.outer = False
        self.lent = False

    def identities(self) -> Iterator[tuple[int, Hashable]]:
        """Yield what identifies the request, best first: (kind of key, key)."""
        record = self.record
        if record.trace_id is not None:
            span = record.parent_span_id if record.role == "engine" else record.span_id
            if span is not None:
                yield _SPAN, (record.trace_id, span)
            yield _TRACE, record.trace_id
        if record.request_id is not None:
            yield _REQUEST, record.request_id


_SPAN, _TRACE, _REQUEST = range(3)


class _Index:
    """Rows of one role by their keys."""

    def __init__(self) -> None:
        self._rows: tuple[dict[Hashable, list[_Row]], ...] = ({}, {}, {})

    def add(self, row: _Row) -> None:
        for kind, key in row.identities():
            self._rows[kind].setdefault(key, []).append(row)

    def remove(self, row: _Row) -> None:
        for kind, key in row.identities():
            rows = self._rows[kind]
            rows[key].remove(row)
            if not rows[key]:
                del rows[key]

    def find(self, kind: int, key: Hashable) -> list[_Row]:
        return self._rows[kind].get(key, [])


class Matcher:
    """Pairs rows and hands each request on once.

    A row that comes more than twice ``WAIT_SECONDS`` after its partner counts once more; one that
    comes after its partner was counted alone, but sooner than that, is not counted.

    Args:
        emit: Called with the requests that are complete. Called under the matcher's lock, in order.
        expect_gateway: Whether a gateway's rows are to be expected from the start. Otherwise
            engine rows begin to wait when the first gateway row has been seen.
        staged: Sources whose stages come in spans of their own.
        now: Monotonic clock, seconds.
    """

    def __init__(
        self,
        emit: Emit,
        *,
        expect_gateway: bool,
        staged: Iterable[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = emit
        self._gateway_seen = expect_gateway
        self._now = now
        self._lock = threading.Lock()
        self._engines, self._gateways = _Index(), _Index()
        self._called: dict[Hashable, list[_Row]] = {}
        self._outers: dict[Hashable, _Row] = {}
        self._views = Views(WAIT_SECONDS, staged)
        self._waiting: deque[_Row] = deque()
        self._settled: deque[_Row] = deque()
        self._complete: list[Pair] = []
        # Engine rows from before the first gateway row, in batches: how long they are remembered.
        self._early: deque[tuple[float, Sequence[RequestRecord]]] = deque()
        self._early_rows = 0

    def add(self, records: Sequence[RequestRecord], fuller: Sequence[RequestRecord] = ()) -> None:
        """Take rows that were accepted.

        Args:
            records: The rows.
            fuller: Rows that came before, of which more is known now.
        """
        with self._lock:
            now = self._now()
            self._take(self._views.new(records, now))
            self._take(self._views.fuller(fuller, now))
            self._hand_on()

    def expire(self) -> None:
        """Count what has waited long enough."""
        with self._lock:
            self._hand_on()

    def flush(self) -> None:
        """Count everything that waits."""
        with self._lock:
            self._hand_on(everything=True)

    def _take(self, records: Sequence[RequestRecord]) -> None:
        until = self._now() + WAIT_SECONDS
        if not self._gateway_seen:
            first = _first_gateway(records)
            self._add_early(records[:first], until)
            records = records[first:]
        for record in records:
            if record.role == "engine":
                self._add_engine(_Row(record, _State.WAITING, until))
            else:
                self._add_gateway(_Row(record, _State.WAITING, until))

    def _hand_on(self, everything: bool = False) -> None:
        self._take(list(self._views.due(self._now(), everything)))
        self._expire(everything)
        if self._complete:
            complete, self._complete = self._complete, []
            self._emit(complete)

    def _add_early(self, records: Sequence[RequestRecord], until: float) -> None:
        """Count engine rows at once.

        They are remembered only for the first gateway row, which may belong to one of these, and
        may wait for a better one before it takes it.
        """
        self._complete += [(record, None) for record in records]
        if records:
            self._early.append((until + WAIT_SECONDS, records[-_MAX_EARLY_ROWS:]))
            self._early_rows += len(self._early[-1][1])

    def _forget_early(self) -> None:
        now, early = self._now(), self._early
        while early and (
            early[0][0] <= now or self._early_rows - len(early[0][1]) >= _MAX_EARLY_ROWS
        ):
            self._early_rows -= len(early.popleft()[1])

    def _add_engine(self, row: _Row) -> None:
        for gateway in self._partners(row, certain=True):
            self._pair(row, gateway)
            break
        self._keep(row, self._engines)

    def _add_gateway(self, row: _Row) -> None:
        if not self._gateway_seen:
            self._gateway_seen = True
            self._forget_early()
            for until, records in self._early:
                for record in records:
                    self._keep(_Row(record, _State.ALONE, until), self._engines)
            self._early.clear()
            self._early_rows = 0
        if self._is_outer(row):
            return
        self._gateways.add(row)  # first, so that it is seen whether it is the only one
        for engine in self._partners(row, certain=True):
            self._pair(engine, row)
        (self._waiting if row.state is _State.WAITING else self._settled).append(row)

    def _is_outer(self, row: _Row) -> bool:
        """Find the rows that see the same request from nearer or from farther.

        Returns:
            Whether ``row`` is the outer view of one that is there.
        """
        trace, span, parent = row.record.trace_id, row.record.span_id, row.record.parent_span_id
        if trace is None:
            return False
        inner = list(self._called.get((trace, span), ()))
        outer = list(self._gateways.find(_SPAN, (trace, parent))) if parent else []
        if parent and not outer and (known := self._outers.get((trace, parent))):
            outer = [known]
        called = bool(inner or outer)
        others = self._gateways.find(_TRACE, trace)
        if not called and len(others) == 1:
            if _is_middleware(row) and not _is_middleware(others[0]):
                outer = list(others)
            elif _is_middleware(others[0]) and not _is_middleware(row):
                inner = list(others)
        for one in inner:
            _inherit(one, row, called, len(inner) == 1)
            self._release(one, called)
        if inner:
            row.state = _State.OUTER
            self._outers[trace, span] = row
            self._settled.append(row)
        for one in outer:
            if not inner:
                _inherit(row, one, called, one.state is not _State.OUTER)
                row.outer = called
            self._step_back(one, row)
        if parent is not None:
            self._called.setdefault((trace, parent), []).append(row)
        return bool(inner)

    def _step_back(self, outer: _Row, inner: _Row) -> None:
        """Let an outer view count no more; if it was counted, the nearer one was."""
        if outer.state is _State.OUTER:
            return
        if inner.state is not _State.OUTER:
            inner.state = outer.state
            inner.held, outer.held = outer.held, []
        outer.state = _State.OUTER
        self._gateways.remove(outer)
        self._outers[outer.record.trace_id, outer.record.span_id] = outer

    def _forget_call(self, row: _Row) -> None:
        self._outers.pop((row.record.trace_id, row.record.span_id), None)
        key = row.record.trace_id, row.record.parent_span_id
        if rows := self._called.get(key):
            if row in rows:
                rows.remove(row)
            if not rows:
                del self._called[key]

    def _keep(self, row: _Row, index: _Index) -> None:
        index.add(row)
        (self._waiting if row.state is _State.WAITING else self._settled).append(row)

    def _pair(self, engine: _Row, gateway: _Row) -> None:
        if engine.state is _State.WAITING and gateway.state is not _State.ALONE:
            gateway.held.append(engine.record)
            if not self._expects_outer(gateway):
                self._release(gateway, gateway.outer)
        for row in (engine, gateway):
            if row.state is _State.WAITING:
                row.state = _State.PAIRED

    def _expects_outer(self, gateway: _Row) -> bool:
        """Whether an outer view may yet come that matters: it names the tenant, or others came."""
        record = gateway.record
        return (
            not gateway.outer
            and record.parent_span_id is not None
            and record.trace_id is not None
            and (record.tenant is None or gateway.lent or bool(self._outers))
        )

    def _release(self, gateway: _Row, outer: bool) -> None:
        """Hand on what waited for the outer view, unless a better one may come."""
        gateway.outer = gateway.outer or outer
        if gateway.held and not self._expects_outer(gateway):
            self._complete += [(engine, gateway.record) for engine in gateway.held]
            gateway.held = []

    def _partners(self, row: _Row, *, certain: bool) -> list[_Row]:
        """Find the rows of the other role that belong to ``row``.

        Args:
            row: A row, indexed if it is a gateway's.
            certain: Leave out partners for which a better one may yet come.
        """
        engine = row.record.role == "engine"
        others = self._gateways if engine else self._engines
        for kind, key in row.identities():
            found = others.find(kind, key)
            if kind != _SPAN:
                if len(found if engine else self._gateways.find(kind, key)) != 1:
                    continue  # several gateway rows: which one it was is not known
                found = [
                    other
                    for other in found
                    if (engine or other.state is not _State.PAIRED)
                    and not (certain and _may_do_better(row, other))
                ]
            if found:
                return found
        return []

    def _expire(self, everything: bool = False) -> None:
        self._forget_early()
        now = self._now()
        waiting, settled = self._waiting, self._settled
        while waiting and (everything or waiting[0].until <= now or len(waiting) > _MAX_ROWS):
            row = waiting.popleft()
            if row.state is _State.WAITING:
                self._give_up(row)
            self._release(row, True)
            row.until = now + WAIT_SECONDS
            settled.append(row)
        while settled and (settled[0].until <= now or len(settled) > _MAX_ROWS):
            row = settled.popleft()
            self._count_alone(row)
            self._release(row, True)
            if row.record.role == "gateway":
                self._forget_call(row)
            if row.state is not _State.OUTER:
                (self._engines if row.record.role == "engine" else self._gateways).remove(row)
        if everything:
            for row in settled:
                self._count_alone(row)
                self._release(row, True)

    def _give_up(self, row: _Row) -> None:
        partners = self._partners(row, certain=False)
        if row.record.role == "engine":
            for gateway in partners[:1]:
                self._pair(row, gateway)
        else:
            for engine in partners:
                if engine.state is not _State.WAITING:
                    self._pair(engine, row)
            if partners:
                return  # those that wait for a better one take this one if none comes
        self._count_alone(row)

    def _count_alone(self, row: _Row) -> None:
        if row.state is not _State.WAITING:
            return
        row.state = _State.ALONE
        if row.record.role == "engine":
            self._complete.append((row.record, None))
        else:
            self._complete.append((None, row.record))


def _first_gateway(records: Sequence[RequestRecord]) -> int:
    return next(
        (index for index, record in enumerate(records) if record.role != "engine"), len(records)
    )


def _is_middleware(row: _Row) -> bool:
    return row.record.source == "middleware"


def _inherit(inner: _Row, outer: _Row, called: bool, alone: bool) -> None:
    """Give a nearer view what it lacks; ``called``: its span was called by the outer one's."""
    again = inner.lent and called
    found = lent(inner.record, outer.record, alone=alone, again=again)
    if "tenant" in found:
        inner.lent = not called
    if found:
        inner.record = replace(inner.record, **found)


def _may_do_better(row: _Row, other: _Row) -> bool:
    """Whether a gateway row whose span called the engine may yet come, in place of this one."""
    return all(
        (one.record.parent_span_id if one.record.role == "engine" else one.record.span_id)
        is not None
        for one in (row, other)
    )
