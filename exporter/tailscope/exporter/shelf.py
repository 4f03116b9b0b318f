"""What goes into the store beside the request records: samples of engines and of GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tailscope.catalogue import METRICS, Kind, Metric
from tailscope.exporter.reading import Key
from tailscope.records.samples import Sample, label_text

SPARE = 10_000
"""Texts of labels that are remembered beyond twice those of the last reading."""


class Shelf:
    """Hands samples to the store: of the metrics that are stored.

    Args:
        keep: Takes the samples; None to keep nothing.
        unmoved: Whether counters are kept that never counted: most kinds of faults on most GPUs.
    """

    def __init__(
        self, keep: Callable[[Sequence[Sample]], None] | None, *, unmoved: bool = True
    ) -> None:
        self._keep = keep
        self._unmoved = unmoved
        self._texts: dict[Key, str] = {}

    @property
    def wanted(self) -> bool:
        """Whether anything is kept."""
        return self._keep is not None

    def put(self, numbers: Mapping[Key, float]) -> None:
        """Hand over what was read now."""
        if self._keep is None:
            return
        if len(self._texts) > 2 * len(numbers) + SPARE:
            self._texts = {}
        now = time.time_ns()
        self._keep(
            [
                Sample(now, key.metric, self._text(key), value)
                for key, value in numbers.items()
                if self._wants(METRICS[key.metric], value)
            ]
        )

    def _wants(self, metric: Metric, value: float) -> bool:
        return metric.stored and (self._unmoved or value != 0 or metric.kind is not Kind.COUNTER)

    def _text(self, key: Key) -> str:
        text = self._texts.get(key)
        if text is None:
            labels = dict(zip(METRICS[key.metric].labels, key.values, strict=True))
            text = self._texts[key] = label_text(labels)
        return text
