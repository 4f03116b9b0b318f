"""Made-up samples of GPUs, as the exporter stores them: no counter before its first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tailscope.catalogue import METRICS, PREFIX, Kind
from tailscope.records.record import RequestRecord
from tailscope.records.samples import Sample, label_text
from tailscope.records.store import Store

SECOND = 10**9

Curve = Callable[[int], float | None]
"""Value at a second; None where there is none."""


def steady(value: float) -> Curve:
    """The same value at all times."""
    return lambda second: value


def rising(begin: int, end: int, each: float = 1.0) -> Curve:
    """A counter that rises by so much in each second between two, and not before or after."""
    return lambda second: each * (min(max(second, begin), end) - begin)


@dataclass(frozen=True)
class Board:
    """One GPU, read once a second.

    Attributes:
        index: Its number.
        curves: By metric (without ``tailscope_gpu_``) and further labels, what it shows.
        lost: Seconds at which it cannot be read.
        silent: Seconds at which nobody reads it.
        instance: Labels of a MIG instance, for the curves.
    """

    index: int
    curves: Mapping[tuple[str, tuple[tuple[str, str], ...]], Curve]
    lost: Iterable[int] = ()
    silent: Iterable[int] = ()
    instance: Mapping[str, str] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """Who it is."""
        return f"GPU-0000000{self.index}"

    def samples(self, start_ns: int, seconds: int) -> list[Sample]:
        """What is stored of it from a time on."""
        found = []
        lost, silent = set(self.lost), set(self.silent)
        for second in range(seconds + 1):
            if second not in silent:
                time_ns = start_ns + second * SECOND
                found.append(self._sample(time_ns, "up", {}, float(second not in lost)))
                if second not in lost:
                    found += self._values(time_ns, second)
        return found

    def _values(self, time_ns: int, second: int) -> list[Sample]:
        found = []
        for (name, more), curve in self.curves.items():
            value = curve(second)
            counts = METRICS[f"{PREFIX}gpu_{name}"].kind is Kind.COUNTER
            if value is not None and (value or not counts):
                labels = {"gi": "", "profile": "", **self.instance, **dict(more)}
                found.append(self._sample(time_ns, name, labels, value))
        return found

    def _sample(self, time_ns: int, name: str, more: Mapping[str, str], value: float) -> Sample:
        board = {"gpu": str(self.index), "uuid": self.uuid, "model_name": "NVIDIA H200"}
        text = _text(name, tuple({**board, **more}.items()))
        return Sample(time_ns, f"{PREFIX}gpu_{name}", text, value)


@cache
def _text(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    metric = METRICS[f"{PREFIX}gpu_{name}"]
    assert metric.stored
    assert set(dict(labels)) == set(metric.labels)
    return label_text(dict(labels))


def of(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Name of a curve."""
    return name, tuple(labels.items())


BUSY = {
    of("sm_active_ratio"): steady(0.9),
    of("dram_active_ratio"): steady(0.4),
    of("tensor_active_ratio"): steady(0.35),
    of("power_watts"): steady(600.0),
    of("temperature_celsius", sensor="gpu"): steady(61.0),
    of("clock_hertz", domain="sm"): steady(1.98e9),
}
"""A GPU that does well."""


def beside(rows: Iterable[RequestRecord], *boards: Board) -> list[Sample]:
    """What is stored of GPUs that are read from 30 s before the first request to after the last."""
    rows = list(rows)
    start = min(row.arrived_ns for row in rows) - 30 * SECOND
    seconds = (max(row.arrived_ns for row in rows) - start) // SECOND + 10
    return [sample for board in boards for sample in board.samples(start, seconds)]


def add(directory: Path, samples: Iterable[Sample]) -> Path:
    """Write samples into a store, as an exporter does, and close it."""
    writer = Store(directory)
    writer.submit_samples(list(samples))
    writer.close()
    return directory
