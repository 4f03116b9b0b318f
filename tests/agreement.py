"""Whether a page of metrics says what the catalogue says, in both formats."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterable

from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from tailscope.catalogue import METRICS, Kind
from tests.tools import tool

_SUFFIXES = {Kind.COUNTER: {""}, Kind.GAUGE: {""}, Kind.HISTOGRAM: {"_bucket", "_sum", "_count"}}


def check_page(text: str, *, openmetrics: bool = False) -> list[Family]:
    """Parse a page strictly and compare every sample with the catalogue."""
    parse = openmetrics_families if openmetrics else text_string_to_metric_families
    families = list(parse(text))
    assert len({family.name for family in families}) == len(families), "a family is there twice"
    _check(families)
    return families


def _check(families: Iterable[Family]) -> None:
    for family in families:
        if family.name.startswith("process_"):
            continue
        name = family.name if family.name in METRICS else f"{family.name}_total"
        metric = METRICS[name]
        assert family.type == metric.kind, f"{name} is a {family.type}"
        assert family.documentation == metric.help
        seen = set()
        for sample in family.samples:
            suffix = sample.name.removeprefix(metric.name)
            assert suffix in _SUFFIXES[metric.kind], sample.name
            labels = {*metric.labels, *(["le"] if suffix == "_bucket" else [])}
            assert sample.labels.keys() == labels, f"{sample.name} has {sorted(sample.labels)}"
            assert math.isfinite(sample.value), f"{sample.name} is {sample.value}"
            series = (sample.name, *sorted(sample.labels.items()))
            assert series not in seen, f"{series} is there twice"
            seen.add(series)
            assert sample.exemplar is None or suffix == "_bucket"


def check_lint(text: str) -> None:
    """Ask promtool, which knows the naming rules of Prometheus."""
    done = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
