"""Metrics of requests, made from their records.

Labels that come from outside are bounded: the first values get a series of their own, the rest
counts as ``other``.
"""

from __future__ import annotations

import threading

from tailscope.catalogue import METRICS, PREFIX, STAGES
from tailscope.catalogue.requests import REQUEST
from tailscope.exporter.exposition import Line, series
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


class _Series:
    """Histograms and counters with the same labels at their front.

    Args:
        values: Values of those labels, in the order of the metrics.
    """

    __slots__ = ("_values", "counters", "histograms")

    def __init__(self, values: tuple[str, ...]) -> None:
        self._values = values
        self.histograms: dict[tuple[str, ...], Histogram] = {}
        self.counters: dict[tuple[str, ...], float] = {}

    def record(self, key: tuple[str, ...], value: float | None, trace: str | None) -> None:
        """Count a value in a histogram; ``key`` is its name and its further labels."""
        if value is not None:
            histogram = self.histograms.get(key)
            if histogram is None:
                metric = METRICS[PREFIX + key[0]]
                histogram = self.histograms[key] = Histogram(metric, (*self._values, *key[1:]))
            histogram.observe(value, trace)

    def count(self, key: tuple[str, ...], amount: float) -> None:
        """Add to a counter; ``key`` is its name and its further labels."""
        self.counters[key] = self.counters.get(key, 0.0) + amount

    def lines(self, found: dict[str, list[Line]]) -> None:
        """Add all lines to ``found``, by metric."""
        for key, histogram in self.histograms.items():
            found.setdefault(PREFIX + key[0], []).extend(histogram.lines())
        for key, total in self.counters.items():
            name = PREFIX + key[0]
            text = series(name, METRICS[name].labels, (*self._values, *key[1:]))
            found.setdefault(name, []).append(Line(text, total))


_TOTAL = ("request_seconds",)
_TTFT = ("request_time_to_first_token_seconds",)
_PER_TOKEN = ("request_time_per_output_token_seconds",)
_STAGES = {stage: ("request_stage_seconds", stage) for stage in STAGES}
_INPUT, _OUTPUT = ("request_input_tokens",), ("request_output_tokens",)
_RETRIES = ("request_retries_total",)
_TENANT_OUTPUT, _SLOT = ("tenant_output_tokens_total",), ("tenant_slot_seconds_total",)
_TENANT_INPUT = {
    cached: ("tenant_input_tokens_total", cached) for cached in ("yes", "no", "unknown")
}


class RequestMetrics:
    """Counts requests. Safe to call from several threads.

    Args:
        max_tenants: Tenants that get a series of their own.
    """

    def __init__(self, max_tenants: int = _MAX_TENANTS) -> None:
        self._lock = threading.Lock()
        self._tenant = Bounded(max_tenants)
        self._names = tuple(Bounded(_MAX_NAMES) for _ in REQUEST)
        self._series: dict[tuple[str, ...], _Series] = {}

    def observe(self, engine: RequestRecord | None, gateway: RequestRecord | None) -> None:
        """Count one request, as its engine and its gateway saw it; one of them may be missing."""
        first = engine or gateway
        if first is None:
            return
        other = gateway or first
        with self._lock:
            base = (
                self._names[0](first.engine or other.engine or ""),
                self._names[1](first.server or other.server or ""),
                self._names[2](first.model or other.model or ""),
            )
            tenant = self._tenant(first.tenant or other.tenant or UNKNOWN_TENANT)
            of_base, of_tenant = self._of(base), self._of((*base, tenant))
            _times(first, of_base, of_tenant)
            _load(first, other, of_tenant)

    def _of(self, values: tuple[str, ...]) -> _Series:
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = _Series(values)
        return found

    def lines(self) -> dict[str, list[Line]]:
        """Return all lines by metric."""
        found: dict[str, list[Line]] = {}
        with self._lock:
            for one in self._series.values():
                one.lines(found)
        return found


def _times(record: RequestRecord, base: _Series, tenant: _Series) -> None:
    trace = record.trace_id
    tenant.record(_TOTAL, record.total_seconds, trace)
    tenant.record(_TTFT, record.ttft_seconds, trace)
    base.record(_STAGES["frontend"], record.frontend_seconds, trace)
    base.record(_STAGES["queue"], record.queue_seconds, trace)
    base.record(_STAGES["prefill"], record.prefill_seconds, trace)
    base.record(_STAGES["decode"], record.decode_seconds, trace)
    made = record.output_tokens
    if record.decode_seconds is not None and made is not None and made > 1:
        base.record(_PER_TOKEN, record.decode_seconds / (made - 1), trace)
    base.record(_INPUT, record.input_tokens, trace)
    base.record(_OUTPUT, made, trace)


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
