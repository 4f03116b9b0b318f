"""Metrics of requests, made from their records, a batch at a time.

Labels that come from outside are bounded: of tenants those with the most load have series of their
own, of engines, servers and models the first ones; the rest counts as ``other``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from tailscope.catalogue import METRICS, PREFIX, STAGES
from tailscope.catalogue.requests import REQUEST
from tailscope.exporter.amounts import Request, amounts, seconds
from tailscope.exporter.exposition import Family, Line, series
from tailscope.exporter.histogram import Histogram
from tailscope.exporter.matcher import Pair
from tailscope.exporter.tenants import Tenants
from tailscope.records.record import UNKNOWN_TENANT, RequestRecord

OTHER = "other"
_MAX_TENANTS = 50
_MAX_NAMES = 50


class Bounded:
    """Lets the first ``most`` values through; every further one is ``other``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value, or ``other``."""
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value


class _Plan:
    """Which columns of a record are counted in which histograms.

    Args:
        columns: Column to the metric's name, without prefix, and its further label values.
    """

    def __init__(self, columns: dict[str, tuple[str, ...]]) -> None:
        self.keys = tuple(columns.values())
        self.values: Callable[[RequestRecord], tuple[float | None, ...]] = attrgetter(*columns)


_OF_TENANT = _Plan(
    {
        "total_seconds": ("request_seconds",),
        "ttft_seconds": ("request_time_to_first_token_seconds",),
    }
)
_OF_PLACE = _Plan(
    {
        **{f"{stage}_seconds": ("request_stage_seconds", stage) for stage in STAGES},
        "input_tokens": ("request_input_tokens",),
        "output_tokens": ("request_output_tokens",),
    }
)
_PER_TOKEN = ("request_time_per_output_token_seconds",)
_OVERFLOW = f"{PREFIX}tenant_overflow_requests_total"

_Groups = dict[tuple[str, ...], dict[str, list[Request]]]
"""Requests by engine, server and model, then by tenant."""


class _Series:
    """Histograms and counters with the same labels at their front.

    Args:
        labels: Values of those labels, in the order of the metrics.
        plan: The histograms.
    """

    __slots__ = ("_counters", "_histograms", "_labels", "_plan")

    def __init__(self, labels: tuple[str, ...], plan: _Plan) -> None:
        self._labels = labels
        self._plan = plan
        self._histograms: dict[tuple[str, ...], Histogram] = {}
        self._counters: dict[tuple[str, ...], float] = {}

    def record(self, records: Sequence[RequestRecord]) -> None:
        """Count what is known of the records' columns."""
        traces = [record.trace_id for record in records]
        columns = zip(*map(self._plan.values, records), strict=True)
        for key, column in zip(self._plan.keys, columns, strict=True):
            self.observe(key, column, traces)

    def observe(
        self, key: tuple[str, ...], values: Sequence[float | None], traces: Sequence[str | None]
    ) -> None:
        """Count what is known in a histogram; ``key`` is its name and its further labels."""
        known = [value for value in values if value is not None]
        if not known:
            return
        if len(known) < len(values):
            traces = [
                trace for value, trace in zip(values, traces, strict=True) if value is not None
            ]
        found = self._histograms.get(key)
        if found is None:
            metric = METRICS[PREFIX + key[0]]
            found = self._histograms[key] = Histogram(metric, (*self._labels, *key[1:]))
        found.observe_all(known, traces)

    def count(self, key: tuple[str, ...], amount: float) -> None:
        """Add to a counter; ``key`` is its name and its further labels."""
        self._counters[key] = self._counters.get(key, 0.0) + amount

    def lines(self, found: dict[str, Family]) -> None:
        """Add all lines to ``found``, by metric."""
        for key, histogram in self._histograms.items():
            found.setdefault(PREFIX + key[0], Family()).extend(histogram.lines())
        for key, total in self._counters.items():
            name = PREFIX + key[0]
            text = series(name, METRICS[name].labels, (*self._labels, *key[1:]))
            found.setdefault(name, Family()).append(Line(text, total))


class RequestMetrics:
    """Counts requests. Safe to call from several threads.

    Args:
        max_tenants: Tenants that get a series of their own.
        now: Monotonic clock, seconds.
    """

    def __init__(
        self, max_tenants: int = _MAX_TENANTS, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = threading.Lock()
        self._names = tuple(Bounded(_MAX_NAMES) for _ in REQUEST)
        self._tenants = Tenants(max_tenants, now)
        self._places: dict[tuple[str, ...], _Series] = {}
        self._of_tenants: dict[str, dict[tuple[str, ...], _Series]] = {}
        self._overflow = 0
        self._lines: dict[str, Family] | None = None

    def observe(self, pairs: Iterable[Pair]) -> None:
        """Count requests, as their engine and their gateway saw them; one may be missing."""
        groups = _grouped(pairs)
        with self._lock:
            self._lines = None
            self._let_go()
            for place, tenants in self._bounded(groups).items():
                records: list[RequestRecord] = []
                for tenant, requests in tenants.items():
                    firsts = [first for first, _ in requests]
                    records += firsts
                    mine = self._of_tenant(place, tenant)
                    mine.record(firsts)
                    for key, amount in amounts(requests).items():
                        if amount is not None:
                            mine.count(key, amount)
                self._of_place(place).record(records)
                _per_token(records, self._of_place(place))

    def _bounded(self, groups: _Groups) -> _Groups:
        """Group once more, by names that have series: it costs no more if each tenant is new."""
        found: _Groups = {}
        for labels, tenants in groups.items():
            place = tuple(name(one) for name, one in zip(self._names, labels, strict=True))
            group = found.setdefault(place, {})
            for name, requests in tenants.items():
                tenant = name
                if not self._tenants.admit(name, seconds(requests)):
                    self._overflow += len(requests)
                    tenant = OTHER
                group.setdefault(tenant, []).extend(requests)
        return found

    def _of_place(self, place: tuple[str, ...]) -> _Series:
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = _Series(place, _OF_PLACE)
        return found

    def _of_tenant(self, place: tuple[str, ...], tenant: str) -> _Series:
        series_of = self._of_tenants.setdefault(tenant, {})
        found = series_of.get(place)
        if found is None:
            found = series_of[place] = _Series((*place, tenant), _OF_TENANT)
        return found

    def _let_go(self) -> None:
        for tenant in self._tenants.review():
            self._of_tenants.pop(tenant, None)
            self._lines = None

    def lines(self) -> dict[str, Family]:
        """Return all lines by metric; the caller does not change them."""
        with self._lock:
            self._let_go()
            if self._lines is None:
                self._lines = self._written()
            return self._lines

    def _written(self) -> dict[str, Family]:
        found: dict[str, Family] = {}
        for one in self._places.values():
            one.lines(found)
        for of_tenant in self._of_tenants.values():
            for one in of_tenant.values():
                one.lines(found)
        if self._places:
            found[_OVERFLOW] = Family([Line(_OVERFLOW, self._overflow)])
        return found


def _grouped(pairs: Iterable[Pair]) -> _Groups:
    groups: _Groups = {}
    for engine, gateway in pairs:
        first = engine or gateway
        if first is None:
            continue
        other = gateway or first
        place = (
            first.engine or other.engine or "",
            first.server or other.server or "",
            first.model or other.model or "",
        )
        tenant = first.tenant or other.tenant or UNKNOWN_TENANT
        tenants = groups.get(place)
        if tenants is None:
            tenants = groups[place] = {}
        if tenant in tenants:
            tenants[tenant].append((first, other))
        else:
            tenants[tenant] = [(first, other)]
    return groups


def _per_token(records: Sequence[RequestRecord], place: _Series) -> None:
    measured = [
        (one.decode_seconds / (one.output_tokens - 1), one.trace_id)
        for one in records
        if one.decode_seconds is not None and (one.output_tokens or 0) > 1 and one.output_tokens
    ]
    if measured:
        values, traces = zip(*measured, strict=True)
        place.observe(_PER_TOKEN, values, traces)
