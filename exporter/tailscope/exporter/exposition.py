"""Writes metric lines in the Prometheus text format and in OpenMetrics.

``prometheus-client`` formats each label set anew at every scrape, 15 microseconds a sample; here a
series' text is made once, and a scrape only joins texts and numbers. Tests parse the result with
the client's own strict parsers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import ProcessCollector

from tailscope.catalogue import METRICS, Kind, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Line(NamedTuple):
    """One sample: ``name{labels}``, its value, and an exemplar's text or an empty string."""

    series: str
    value: float
    exemplar: str = ""


Lines = Mapping[str, Sequence[Line]]
"""Lines by the name of their metric."""


_INFINITIES = {"inf": "+Inf", "-inf": "-Inf"}


def escape(value: str) -> str:
    """Escape a label value."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def series(name: str, labels: Sequence[str], values: Sequence[str], extra: str = "") -> str:
    """Write ``name{labels}``; ``extra`` is one more label, written out."""
    parts = [f'{label}="{escape(value)}"' for label, value in zip(labels, values, strict=True)]
    if extra:
        parts.append(extra)
    return f"{name}{{{','.join(parts)}}}" if parts else name


def bound_text(bound: float) -> str:
    """Write a bucket bound as the Python client does: 1.0, 0.005, +Inf."""
    return "+Inf" if bound == float("inf") else repr(float(bound))


def bucket(metric: Metric, values: Sequence[str], bound: str) -> str:
    """Write the series of one bucket."""
    return series(f"{metric.name}_bucket", metric.labels, values, f'le="{bound}"')


def number(value: float) -> str:
    """Write a value: ``repr`` is what the Python client writes, but for the infinities."""
    text = repr(float(value))
    return _INFINITIES.get(text, text)


def render(groups: Iterable[Lines], process: ProcessCollector | None, openmetrics: bool) -> bytes:
    """Write the whole exposition, metrics in the catalogue's order.

    Args:
        groups: Lines of each publisher; several may give lines of the same metric.
        process: The collector of the process's own CPU, memory and descriptors.
        openmetrics: OpenMetrics 1.0 with exemplars, else Prometheus text 0.0.4.
    """
    found = list(groups)
    out: list[str] = []
    for name, metric in METRICS.items():
        lines = [line for group in found for line in group.get(name, ())]
        if lines:
            _header(out, name, metric.kind, metric.help, openmetrics)
            if openmetrics:
                out += [f"{text} {number(value)}{exemplar}" for text, value, exemplar in lines]
            else:
                out += [f"{text} {number(value)}" for text, value, _ in lines]
    for family in process.collect() if process else ():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        _header(out, name, family.type, family.documentation, openmetrics)
        out.extend(f"{sample.name} {number(sample.value)}" for sample in family.samples)
    if openmetrics:
        out.append("# EOF")
    # A label may hold what is no UTF-8, for example from a file name; the page goes on.
    return ("\n".join(out) + "\n").encode("utf-8", "replace")


def _header(out: list[str], name: str, kind: str, help: str, openmetrics: bool) -> None:
    family = name.removesuffix("_total") if openmetrics and kind == Kind.COUNTER else name
    out.append(f"# HELP {family} {help}")
    out.append(f"# TYPE {family} {kind}")
