"""Integrals and distributions of gauges, so that no peak is lost between two scrapes.

A gauge that is read every second becomes a counter, its integral over time, and a histogram of its
samples. Which gauges do is said by the catalogue (``integral_of``, ``distribution_of``).
"""

from __future__ import annotations

from collections.abc import Mapping

from tailscope.catalogue import METRICS, Metric
from tailscope.exporter.exposition import Family, Line, series
from tailscope.exporter.histogram import Histogram
from tailscope.exporter.reading import Key

_SPARE = 1_000
"""Series that are remembered beyond twice those of the last sample."""

_INTEGRALS = {metric.integral_of: metric for metric in METRICS.values() if metric.integral_of}
_DISTRIBUTIONS = {
    metric.distribution_of: metric for metric in METRICS.values() if metric.distribution_of
}


class _Integral:
    __slots__ = ("last", "text", "time", "total")

    def __init__(self, metric: Metric, values: tuple[str, ...]) -> None:
        self.text = series(metric.name, metric.labels, values)
        self.total = 0.0
        self.time: float | None = None
        self.last = 0.0

    def observe(self, now: float, value: float, longest: float) -> None:
        """Add the area since the last sample, by the trapezoid rule.

        Over a gap nothing is known, so nothing is added.
        """
        if self.time is not None and 0 < now - self.time <= longest:
            self.total += (now - self.time) * (value + self.last) / 2
        self.time, self.last = now, value


class Sampler:
    """Sums up the gauges of one source.

    Args:
        longest: Longest time between two samples that is still integrated over, in seconds.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._integrals: dict[Key, _Integral] = {}
        self._distributions: dict[Key, Histogram] = {}

    def observe(
        self, now: float, numbers: Mapping[Key, float], longest: float | None = None
    ) -> dict[str, Family]:
        """Take one sample of each gauge.

        Args:
            now: Monotonic clock, in seconds.
            numbers: What was read; counters in it are passed over.
            longest: Longest time since the last sample, where it is another one for this sample.

        Returns:
            Lines of the integrals and distributions of the series in ``numbers``.
        """
        found: dict[str, Family] = {}
        longest = self._longest if longest is None else longest
        for key, value in numbers.items():
            if (metric := _INTEGRALS.get(key.metric)) is not None:
                integral = self._integrals.get(key)
                if integral is None:
                    integral = self._integrals[key] = _Integral(metric, key.values)
                integral.observe(now, value, longest)
                found.setdefault(metric.name, Family()).append(Line(integral.text, integral.total))
            if (metric := _DISTRIBUTIONS.get(key.metric)) is not None:
                histogram = self._distributions.get(key)
                if histogram is None:
                    histogram = self._distributions[key] = Histogram(metric, key.values)
                histogram.observe(value)
                found.setdefault(metric.name, Family()).extend(histogram.lines())
        self._prune(numbers)
        return found

    def _prune(self, numbers: Mapping[Key, float]) -> None:
        """Let go of series that are gone, but only if they are many: one may come back."""
        room = 2 * len(numbers) + _SPARE
        if len(self._integrals) > room:
            self._integrals = {
                key: self._integrals[key] for key in numbers.keys() & self._integrals.keys()
            }
        if len(self._distributions) > room:
            self._distributions = {
                key: self._distributions[key] for key in numbers.keys() & self._distributions.keys()
            }
