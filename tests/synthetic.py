"""Time series of every metric of the catalogue, made up from its own declarations.

The same seed gives the same numbers. A metric with a label that is new here fails with its name:
give the label values in ``LABELS``.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailscope.catalogue import METRICS, STAGES, Kind, Metric, Unit

JOB = 'job="tailscope",instance="127.0.0.1:9836"'

LABELS: Mapping[str, tuple[str, ...]] = {
    "cached": ("yes", "no"),
    "action": ("reset_gpu",),
    "call": ("nvmlDeviceGetPowerUsage",),
    "code": ("timeout",),
    "domain": ("sm",),
    "driver": ("580.95",),
    "engine": ("vllm",),
    "gi": ("",),
    "gpu": ("0",),
    "mig": ("",),
    "model": ("tiny-llama",),
    "model_name": ("NVIDIA H200",),
    "origin": ("local_compute",),
    "outcome": ("ok", "error"),
    "pci_bus_id": ("00000000:19:00.0",),
    "profile": ("",),
    "python": ("3.11.2",),
    "rank": ("0", "1"),
    "readings": ("activity",),
    "reason": ("ok",),
    "sensor": ("gpu",),
    "server": ("10.0.0.1:8000", "10.0.0.2:8000"),
    "source": ("vllm", "otlp"),
    "stage": STAGES,
    "tenant": ("acme", "bee"),
    "tier": ("cpu",),
    "type": ("corrected",),
    "uuid": ("GPU-1", "GPU-2"),
    "xid": ("79",),
    "version": ("0.1.0",),
}

ENGINE_BOUNDS: Mapping[Unit, tuple[float, ...]] = {
    Unit.SECONDS: (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480),
    Unit.TOKENS: tuple(float(2**k) for k in range(15)),
    Unit.NONE: (1, 2, 5, 10),
}
"""Bounds as an engine might choose them, where the catalogue leaves them to it."""

_WHOLES = ("_max_hertz", "_limit_watts", "_gpu_memory_total_bytes", "_capacity_tokens")
"""Gauges that others are a part of: steady, and larger than those."""

PER_SECOND: Mapping[str, float] = {
    # Less is found than is looked for.
    "tailscope_engine_prefix_cache_hit_tokens_total": 2,
    "tailscope_engine_external_cache_hit_tokens_total": 2,
    "tailscope_engine_speculative_accepted_tokens_total": 2,
    # No more than a second a second, over all reasons.
    "tailscope_gpu_throttled_seconds_total": 0.3,
}
"""Growth of a counter, where it is not 5."""


SHORTER: Mapping[str, float] = {
    # A part of the time to first token.
    "tailscope_engine_queue_seconds": 0.1,
}
"""How much shorter than the middle of its buckets a histogram's observations are."""


def openmetrics(
    start: int, count: int, step: int, seed: int = 1, *, steady: bool = False
) -> Iterator[str]:
    """Lines of OpenMetrics: ``count`` samples of each series, ``step`` seconds apart.

    Steady ones grow alike all the time, so that it is no matter which samples a rate looks at.
    """
    times = range(start, start + count * step, step)
    for metric in METRICS.values():
        yield f"# TYPE {metric.name.removesuffix('_total')} {metric.kind}"
        for labels in _label_sets(metric):
            dice = _Dice(f"{seed} {metric.name} {labels}", steady)
            yield from _series(metric, labels, times, dice)
    yield "# EOF"


def still(start: int, count: int, step: int) -> Iterator[str]:
    """As ``openmetrics``, but nothing happens: no counter grows, and no gauge moves."""
    first = f" {start}"
    for line in openmetrics(start, 2, step):
        if line.startswith("#"):
            yield line
        elif line.endswith(first):
            series = line.removesuffix(first)
            yield from (f"{series} {at}" for at in range(start, start + count * step, step))


class _Dice(random.Random):
    """Random numbers; if it is steady, those of the first time again and again."""

    def __init__(self, seed: str, steady: bool) -> None:
        super().__init__(seed)
        self._start = self.getstate() if steady else None

    def again(self) -> None:
        """Begin the next time."""
        if self._start:
            self.setstate(self._start)


def _label_sets(metric: Metric) -> Iterator[str]:
    for values in itertools.product(*(LABELS[label] for label in metric.labels)):
        pairs = zip(metric.labels, values, strict=True)
        yield ",".join([JOB, *(f'{label}="{value}"' for label, value in pairs)])


def _series(metric: Metric, labels: str, times: Sequence[int], dice: _Dice) -> Iterator[str]:
    if metric.kind is Kind.HISTOGRAM:
        return _histogram(metric, labels, times, dice)
    values = (
        _gauge(metric, times, dice) if metric.kind is Kind.GAUGE else _counter(metric, times, dice)
    )
    return (
        f"{metric.name}{{{labels}}} {value} {at}" for value, at in zip(values, times, strict=True)
    )


def _gauge(metric: Metric, times: Sequence[int], dice: _Dice) -> Iterable[float]:
    if metric.name.endswith("_timestamp_seconds"):
        return [at - _random(dice) for at in times]
    if metric.name.endswith(("_up", "_state", "_info")):
        return [1.0 for _ in times]
    if metric.name.endswith(_WHOLES):
        return [10.0 for _ in times]
    scale = 1 if metric.unit is Unit.RATIO else 8
    return [round(_random(dice) * scale, 3) for _ in times]


def _counter(metric: Metric, times: Sequence[int], dice: _Dice) -> Iterable[float]:
    # A rate of a second per second is the most that the integral of a ratio can have.
    of_ratio = metric.integral_of and METRICS[metric.integral_of].unit is Unit.RATIO
    speed = 0.6 if of_ratio else PER_SECOND.get(metric.name, 5)
    step = times[1] - times[0]
    return itertools.accumulate((0.5 + _random(dice)) * speed * step for _ in times)


def _random(dice: _Dice) -> float:
    dice.again()
    return dice.random()


def _histogram(metric: Metric, labels: str, times: Sequence[int], dice: _Dice) -> Iterator[str]:
    bounds = metric.buckets or ENGINE_BOUNDS[metric.unit]
    middle = bounds[len(bounds) // 2] * SHORTER.get(metric.name, 1)
    most = bounds[-1] if metric.unit is Unit.RATIO else float("inf")
    observed = [[min(dice.lognormvariate(0, 1) * middle, most) for _ in range(20)] for _ in times]
    within = zip(*(_within(bounds, some) for some in observed), strict=True)
    for bound, counts in zip((*bounds, float("inf")), within, strict=True):
        le = "+Inf" if bound == float("inf") else f"{bound:g}"
        for total, at in zip(itertools.accumulate(counts), times, strict=True):
            yield f'{metric.name}_bucket{{{labels},le="{le}"}} {total} {at}'
    sums = itertools.accumulate(sum(some) for some in observed)
    for total_sum, at in zip(sums, times, strict=True):
        yield f"{metric.name}_sum{{{labels}}} {total_sum} {at}"
    for number, at in enumerate(times, 1):
        yield f"{metric.name}_count{{{labels}}} {number * 20} {at}"


def _within(bounds: Sequence[float], values: Iterable[float]) -> list[int]:
    """How many values lie within each bound, and within none."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return list(itertools.accumulate(counts))
