"""Metrics of requests, made from their records.

Labels that come from outside are bounded: the first values get a series of their own, the rest
counts as ``other``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter

from tailscope.catalogue import METRICS, PREFIX, STAGES
from tailscope.catalogue.requests import REQUEST
from tailscope.exporter.exposition import Family, Line, series
from tailscope.exporter.histogram import Histogram
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
_RETRIES, _SLOT = ("request_retries_total",), ("tenant_slot_seconds_total",)
_TENANT_OUTPUT = ("tenant_output_tokens_total",)
_TENANT_INPUT = {
    cached: ("tenant_input_tokens_total", cached) for cached in ("yes", "no", "unknown")
}


class _Series:
    """Histograms and counters with the same labels at their front.

    Args:
        labels: Values of those labels, in the order of the metrics.
        plan: The histograms.
    """

    __slots__ = ("_counters", "_histograms", "_labels", "_plan", "_planned")

    def __init__(self, labels: tuple[str, ...], plan: _Plan) -> None:
        self._labels = labels
        self._plan = plan
        self._planned: list[Histogram | None] = [None] * len(plan.keys)
        self._histograms: dict[tuple[str, ...], Histogram] = {}
        self._counters: dict[tuple[str, ...], float] = {}

    def record(self, record: RequestRecord) -> None:
        """Count what is known of the record's columns."""
        trace, planned = record.trace_id, self._planned
        for index, value in enumerate(self._plan.values(record)):
            if value is not None:
                histogram = planned[index]
                if histogram is None:
                    histogram = planned[index] = self._histogram(self._plan.keys[index])
                histogram.observe(value, trace)

    def observe(self, key: tuple[str, ...], value: float, trace: str | None) -> None:
        """Count a value in a histogram; ``key`` is its name and its further labels."""
        self._histogram(key).observe(value, trace)

    def _histogram(self, key: tuple[str, ...]) -> Histogram:
        found = self._histograms.get(key)
        if found is None:
            metric = METRICS[PREFIX + key[0]]
            found = self._histograms[key] = Histogram(metric, (*self._labels, *key[1:]))
        return found

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
    """

    def __init__(self, max_tenants: int = _MAX_TENANTS) -> None:
        self._lock = threading.Lock()
        self._names = (*(Bounded(_MAX_NAMES) for _ in REQUEST), Bounded(max_tenants))
        self._series: dict[tuple[str, ...], _Series] = {}
        self._known: dict[tuple[str, ...], tuple[_Series, _Series]] = {}
        self._lines: dict[str, Family] | None = None

    def observe(self, engine: RequestRecord | None, gateway: RequestRecord | None) -> None:
        """Count one request, as its engine and its gateway saw it; one of them may be missing."""
        first = engine or gateway
        if first is None:
            return
        other = gateway or first
        labels = (
            first.engine or other.engine or "",
            first.server or other.server or "",
            first.model or other.model or "",
            first.tenant or other.tenant or UNKNOWN_TENANT,
        )
        with self._lock:
            self._lines = None
            of_place, of_tenant = self._known.get(labels) or self._bounded(labels)
            of_place.record(first)
            made = first.output_tokens
            if first.decode_seconds is not None and made is not None and made > 1:
                of_place.observe(_PER_TOKEN, first.decode_seconds / (made - 1), first.trace_id)
            of_tenant.record(first)
            _load(first, other, of_tenant)

    def _bounded(self, labels: tuple[str, str, str, str]) -> tuple[_Series, _Series]:
        """Find the series of label values, of which there may be too many."""
        bounded = tuple(name(label) for name, label in zip(self._names, labels, strict=True))
        found = self._of(bounded[:-1], _OF_PLACE), self._of(bounded, _OF_TENANT)
        if bounded == labels:
            self._known[labels] = found
        return found

    def _of(self, labels: tuple[str, ...], plan: _Plan) -> _Series:
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = _Series(labels, plan)
        return found

    def lines(self) -> dict[str, Family]:
        """Return all lines by metric; the caller does not change them."""
        with self._lock:
            found = self._lines
            if found is None:
                found = self._lines = {}
                for one in self._series.values():
                    one.lines(found)
        return found


def _load(first: RequestRecord, other: RequestRecord, tenant: _Series) -> None:
    given_up = other.outcome not in (None, "ok")
    outcome = (other.outcome if given_up else first.outcome or other.outcome) or "unknown"
    tenant.count(("requests_total", outcome), 1)
    if max(first.attempt or 1, other.attempt or 1) > 1:
        tenant.count(_RETRIES, 1)
    tokens = first.input_tokens if first.input_tokens is not None else other.input_tokens
    cached = first.cached_tokens if first.cached_tokens is not None else other.cached_tokens
    if tokens is not None and cached is not None:
        tenant.count(_TENANT_INPUT["yes"], cached)
        tenant.count(_TENANT_INPUT["no"], max(tokens - cached, 0))
    elif tokens is not None:
        tenant.count(_TENANT_INPUT["unknown"], tokens)
    made = first.output_tokens if first.output_tokens is not None else other.output_tokens
    if made is not None:
        tenant.count(_TENANT_OUTPUT, made)
    if first.prefill_seconds is not None and first.decode_seconds is not None:
        tenant.count(_SLOT, first.prefill_seconds + first.decode_seconds)
