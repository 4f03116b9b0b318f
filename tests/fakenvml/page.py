"""A metrics page, to be asked for values."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tailscope.catalogue import PREFIX


class Sample(NamedTuple):
    """One sample of a page."""

    name: str
    labels: dict[str, str]
    value: float


class Page:
    """What a text in Prometheus's format says.

    Raises:
        AssertionError: If two samples are of the same series.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            Sample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
        series = Counter((name, *sorted(labels.items())) for name, labels, _ in self.samples)
        assert all(count == 1 for count in series.values()), series.most_common(3)

    def all(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples of a metric that have these labels."""
        return [
            sample
            for sample in self.samples
            if sample.name == PREFIX + name and labels.items() <= sample.labels.items()
        ]

    def get(self, name: str, **labels: str) -> float | None:
        """Return the value of one series; None if there is none.

        Raises:
            AssertionError: If the labels fit several.
        """
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def names(self, **labels: str) -> set[str]:
        """Return the metrics that have a sample with these labels, without the prefix."""
        return {
            sample.name.removeprefix(PREFIX)
            for sample in self.samples
            if labels.items() <= sample.labels.items()
        }
