"""A histogram that Tailscope fills itself, with an exemplar per bucket."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from tailscope.catalogue import Metric
from tailscope.exporter.exposition import Line, bound_text, bucket, escape, series

EXEMPLAR_SECONDS = 60.0
"""The exemplar of a bucket is the slowest request of so much time; then the next one counts."""

_MAX_TRACE = 64
"""Longest trace id that becomes an exemplar; OpenMetrics allows 128 characters with the name."""

_Exemplar = tuple[str, float, float]
"""Trace id, value, Unix time in seconds."""


class Histogram:
    """Counts observations of one series. Its owner holds the lock.

    Args:
        metric: A histogram with bounds.
        values: Label values in the order of ``metric.labels``.
    """

    __slots__ = (
        "_bounds",
        "_buckets",
        "_counts",
        "_exemplars",
        "_lines",
        "_names",
        "_renewed",
        "_slowest",
        "_total",
    )

    def __init__(self, metric: Metric, values: Sequence[str]) -> None:
        self._bounds = metric.buckets
        texts = [*map(bound_text, metric.buckets), "+Inf"]
        self._buckets = [bucket(metric, values, text) for text in texts]
        self._names = (
            series(f"{metric.name}_sum", metric.labels, values),
            series(f"{metric.name}_count", metric.labels, values),
        )
        self._counts = [0] * len(texts)
        self._exemplars: list[_Exemplar | None] = [None] * len(texts)
        self._slowest: list[float] = []
        self._renewed = 0.0
        self._total = 0.0
        self._lines: list[Line] | None = None

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value
        self._lines = None

    def observe_all(self, values: Sequence[float], traces: Sequence[str | None]) -> None:
        """Count values, each with the trace that may become the exemplar of its bucket."""
        bounds, slowest = self._bounds, self._fresh()
        ordered = sorted(values)
        done, end = 0, len(ordered)
        while done < end:
            index = bisect_left(bounds, ordered[done])
            last = index == len(bounds)
            upto = end if last else bisect_right(ordered, bounds[index], done)
            self._counts[index] += upto - done
            done = upto
            if (value := ordered[done - 1]) >= slowest[index]:
                trace = traces[values.index(value)]
                if trace and len(trace) <= _MAX_TRACE:
                    slowest[index] = value
                    # Written out only when it is asked for: most are replaced before that.
                    self._exemplars[index] = (trace, value, time.time())
        self._total += sum(ordered)
        self._lines = None

    def _fresh(self) -> list[float]:
        """Return what an exemplar must exceed; nothing once the present ones are old."""
        now = time.monotonic()
        if not self._slowest or now >= self._renewed + EXEMPLAR_SECONDS:
            self._slowest = [0.0] * len(self._counts)
            self._renewed = now
        return self._slowest

    def lines(self) -> list[Line]:
        """Return the cumulative buckets, sum and count; the caller does not change the list."""
        if self._lines is None:
            exemplars = [_text(one) if one else "" for one in self._exemplars]
            found = list(map(Line, self._buckets, accumulate(self._counts), exemplars))
            found.append(Line(self._names[0], self._total))
            found.append(Line(self._names[1], found[-2].value))
            self._lines = found
        return self._lines


def _text(exemplar: _Exemplar) -> str:
    trace_id, value, when = exemplar
    return f' # {{trace_id="{escape(trace_id)}"}} {float(value)!r} {when:.3f}'
