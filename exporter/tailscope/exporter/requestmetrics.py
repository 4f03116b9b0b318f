"""Metrics of requests, made from their records.

Labels that come from outside are bounded: the first values get a series of their own, the rest
counts as ``other``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tailscope.catalogue import METRICS, PREFIX, STAGES
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


class RequestMetrics:
    """Counts requests. Safe to call from several threads.

    Args:
        max_tenants: Tenants that get a series of their own.
    """

    def __init__(self, max_tenants: int = _MAX_TENANTS) -> None:
        self._lock = threading.Lock()
        self._tenant = Bounded(max_tenants)
        self._names = {name: Bounded(_MAX_NAMES) for name in ("engine", "server", "model")}
        self._histograms: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        self._counters: dict[tuple[str, tuple[str, ...]], float] = {}

    def observe(self, engine: RequestRecord | None, gateway: RequestRecord | None) -> None:
        """Count one request, as its engine and its gateway saw it; one of them may be missing."""
        first = engine or gateway
        if first is None:
            return
        other = gateway or first
        with self._lock:
            base = tuple(
                bounded(getattr(first, name) or getattr(other, name) or "")
                for name, bounded in self._names.items()
            )
            tenant = self._tenant(first.tenant or other.tenant or UNKNOWN_TENANT)
            self._times(first, base, tenant)
            self._load(first, other, base, tenant)

    def _times(self, record: RequestRecord, base: tuple[str, ...], tenant: str) -> None:
        trace = record.trace_id
        self._record("request_seconds", (*base, tenant), record.total_seconds, trace)
        self._record(
            "request_time_to_first_token_seconds", (*base, tenant), record.ttft_seconds, trace
        )
        for stage in STAGES:
            value = getattr(record, f"{stage}_seconds")
            self._record("request_stage_seconds", (*base, stage), value, trace)
        if record.decode_seconds is not None and (record.output_tokens or 0) > 1:
            steps = (record.output_tokens or 0) - 1
            self._record(
                "request_time_per_output_token_seconds", base, record.decode_seconds / steps, trace
            )
        self._record("request_input_tokens", base, record.input_tokens, trace)
        self._record("request_output_tokens", base, record.output_tokens, trace)

    def _load(
        self, first: RequestRecord, other: RequestRecord, base: tuple[str, ...], tenant: str
    ) -> None:
        given_up = other.outcome not in (None, "ok")
        outcome = (other.outcome if given_up else first.outcome or other.outcome) or "unknown"
        self._count("requests_total", (*base, tenant, outcome), 1)
        if max(first.attempt or 1, other.attempt or 1) > 1:
            self._count("request_retries_total", (*base, tenant), 1)
        tokens = first.input_tokens if first.input_tokens is not None else other.input_tokens
        cached = first.cached_tokens if first.cached_tokens is not None else other.cached_tokens
        if tokens is not None and cached is not None:
            self._count("tenant_input_tokens_total", (*base, tenant, "yes"), cached)
            self._count("tenant_input_tokens_total", (*base, tenant, "no"), max(tokens - cached, 0))
        elif tokens is not None:
            self._count("tenant_input_tokens_total", (*base, tenant, "unknown"), tokens)
        made = first.output_tokens if first.output_tokens is not None else other.output_tokens
        if made is not None:
            self._count("tenant_output_tokens_total", (*base, tenant), made)
        if first.prefill_seconds is not None and first.decode_seconds is not None:
            self._count(
                "tenant_slot_seconds_total",
                (*base, tenant),
                first.prefill_seconds + first.decode_seconds,
            )

    def _record(
        self, name: str, values: tuple[str, ...], value: float | None, trace: str | None
    ) -> None:
        if value is None:
            return
        key = (name, values)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Histogram(METRICS[PREFIX + name], values)
        histogram.observe(value, trace)

    def _count(self, name: str, values: tuple[str, ...], amount: float) -> None:
        key = (name, values)
        self._counters[key] = self._counters.get(key, 0.0) + max(amount, 0)

    def lines(self) -> dict[str, list[Line]]:
        """Return all lines by metric."""
        found: dict[str, list[Line]] = {}
        with self._lock:
            for (name, _), histogram in self._histograms.items():
                found.setdefault(PREFIX + name, []).extend(histogram.lines())
            for (name, values), total in self._counters.items():
                found.setdefault(PREFIX + name, []).append(
                    Line(_text(PREFIX + name, values), total)
                )
        return found


def _text(name: str, values: Sequence[str]) -> str:
    return series(name, METRICS[name].labels, values)
