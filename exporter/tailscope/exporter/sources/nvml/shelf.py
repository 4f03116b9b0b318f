"""What goes into the store beside the request records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tailscope.catalogue import METRICS, Kind
from tailscope.exporter.reading import Key
from tailscope.records.samples import Sample, label_text

_MOST_TEXTS = 10_000


class Shelf:
    """Hands samples to the store: of the metrics that are stored, no counter before its first step.

    Args:
        keep: Takes the samples; None to keep nothing.
    """

    def __init__(self, keep: Callable[[Sequence[Sample]], None] | None) -> None:
        self._keep = keep
        self._texts: dict[Key, str] = {}

    @property
    def wanted(self) -> bool:
        """Whether anything is kept."""
        return self._keep is not None

    def put(self, numbers: Mapping[Key, float]) -> None:
        """Hand over what was read now."""
        if self._keep is None:
            return
        if len(self._texts) > _MOST_TEXTS:
            self._texts = {}
        now = time.time_ns()
        self._keep(
            [
                Sample(now, key.metric, self._text(key), value)
                for key, value in numbers.items()
                if METRICS[key.metric].stored
                and (value or METRICS[key.metric].kind is not Kind.COUNTER)
            ]
        )

    def _text(self, key: Key) -> str:
        text = self._texts.get(key)
        if text is None:
            labels = dict(zip(METRICS[key.metric].labels, key.values, strict=True))
            text = self._texts[key] = label_text(labels)
        return text
