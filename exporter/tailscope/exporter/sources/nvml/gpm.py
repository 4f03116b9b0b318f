"""GPM: what the multiprocessors and the memory did between two samples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tailscope.catalogue.gpu import ROUNDING
from tailscope.catalogue.nvml import GPM, GpmMetric
from tailscope.exporter.reading import Key
from tailscope.exporter.sources.nvml.device import Device
from tailscope.exporter.sources.nvml.library import NvmlError, Unsupported
from tailscope.exporter.sources.nvml.plausible import plausible

log = logging.getLogger(__name__)

LONGEST = 120.0
"""Time between two samples, in seconds, above which the older one is too old."""
SHORTEST = 0.1
"""Time between two samples, in seconds, that NVML asks for at least."""


def shortest_window(interval: float) -> float:
    """Return the least time between two samples, in seconds, at an interval of reads.

    A second, or the interval where that is less; a read that comes a little early still counts.
    """
    return max(SHORTEST, 0.8 * min(1.0, interval))


class Gpm:
    """One GPU or GPU instance: keeps one sample, and computes from it and the next one.

    The value is the true mean over the time between the two. Two buffers are used in turn, so
    that nothing is allocated at a read.

    Args:
        device: Notes errors; the GPU, or the parent of the instance.
        take: Fills a sample.
        labels: Values of the labels of a GPU series.
        instance: Whether it is an instance of a GPU that is split.
        clock: Monotonic clock, in seconds.
        shortest: Least time between two samples, in seconds.
    """

    def __init__(
        self,
        device: Device,
        take: Callable[[Any], object],
        labels: tuple[str, ...],
        *,
        instance: bool = False,
        clock: Callable[[], float],
        shortest: float,
    ) -> None:
        self._device = device
        self._take = take
        self._clock = clock
        self._shortest = shortest
        self._metrics = [
            (metric, Key(metric.value.metric, labels))
            for metric in GPM
            if not (instance and metric.board)
        ]
        self._samples: list[Any] = []
        self._taken: float | None = None
        self._values: dict[Key, float] = {}

    def read(self, request: Any) -> dict[Key, float]:
        """Take a sample; returns the means since the last one, nothing at the first.

        Args:
            request: A ``c_nvmlGpmMetricsGet_t`` that may be written to.

        Raises:
            NvmlError: If it does not work; the next read then begins anew.
        """
        try:
            return self._read(request)
        except NvmlError:
            self.forget()
            raise

    def _read(self, request: Any) -> dict[Key, float]:
        while len(self._samples) < 2:
            self._samples.append(self._device.run("nvmlGpmSampleAlloc"))
        older, newer = self._samples
        self._take(newer)
        now, taken = self._clock(), self._taken
        if taken is not None and now - taken < self._shortest:
            return self._values  # too short: the older sample waits for the next one
        values: dict[Key, float] = {}
        if taken is not None and now - taken <= LONGEST:
            values = self._mean(older, newer, request)
        self._samples = [newer, older]
        self._taken, self._values = now, values
        return values

    def _mean(self, older: Any, newer: Any, request: Any) -> dict[Key, float]:
        request.version = 1
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = older, newer
        answers = request.metrics
        for place, (metric, _) in enumerate(self._metrics):
            answers[place].metricId = metric.number
        self._device.run("nvmlGpmMetricsGet", request)
        return _believed(answers, self._metrics)

    def forget(self) -> None:
        """Begin anew at the next read."""
        self._taken = None
        self._values = {}

    def free(self) -> None:
        """Give the samples back; NVML must be open."""
        self.forget()
        samples, self._samples = self._samples, []
        for sample in samples:
            try:
                self._device.library.call("nvmlGpmSampleFree", sample)
            except NvmlError as error:
                log.debug("a GPM sample was not given back: %s", error)


def _believed(answers: Any, metrics: Sequence[tuple[GpmMetric, Key]]) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for place, (metric, key) in enumerate(metrics):
        answer = answers[place]
        if answer.nvmlReturn == 0:
            value = plausible(key.metric, metric.value.ours(answer.value), ROUNDING)
            if value is not None:
                found[key] = value
    return found


def supported(device: Device) -> bool:
    """Return whether a GPU has GPM.

    Raises:
        NvmlError: If that cannot be said, other than by a library that does not know GPM.
    """
    try:
        return bool(device.call("nvmlGpmQueryDeviceSupport").isSupportedDevice)
    except Unsupported:
        return False
