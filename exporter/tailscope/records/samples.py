"""Samples of series that are kept beside the request records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """One value of one series at one time.

    Attributes:
        time_ns: Wall clock, UTC nanoseconds.
        metric: Full name of the metric.
        labels: Its labels, as ``label_text`` writes them.
        value: In the metric's unit.
    """

    time_ns: int
    metric: str
    labels: str
    value: float


def label_text(labels: Mapping[str, str]) -> str:
    """Write labels as the store keeps them: a JSON object with sorted keys."""
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"))
