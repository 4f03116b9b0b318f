"""What each series of an engine becomes, by the catalogue. Decided once per series."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailscope.catalogue import METRICS, Engine, Kind, Metric, Upstream
from tailscope.exporter.carry import SUM
from tailscope.records.record import MAX_TEXT

CREATED = "created"
"""Part of a series that tells when the engine made it."""

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
"""The name of a family. In quotes the format allows any text, and a text is not repeated."""

TYPE = re.compile(
    rf"^# TYPE ({NAME.pattern}) "
    r"(counter|gauge|histogram|summary|untyped|unknown|info|stateset|gaugehistogram)(?!\S)",
    re.MULTILINE,
)

_SUFFIXES = ("_bucket", "_sum", "_count", "_total", "_created")
_FITTING = {
    Kind.GAUGE: ("",),
    Kind.COUNTER: ("", "_total"),
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What becomes of one upstream series.

    Attributes:
        metric: Our metric.
        upstream: Which mapping of the engine it is.
        age: Which of the mapping's family names it has; 0 is the newest.
        series: Family and labels of the upstream series, but for its bound.
        model: The served model, as the engine says; None where it does not.
        rank: The data-parallel rank, as the engine says; None where it does not.
        more: Values of the metric's labels after the common four.
        part: Bound, ``sum`` or ``count`` of a histogram; ``created``; empty otherwise.
        scale: Factor from the engine's unit to ours.
        fixed_value: The value, where the engine tells it in labels.
    """

    metric: Metric
    upstream: int
    age: int
    series: tuple[str, str]
    model: str | None
    rank: str | None
    more: tuple[str, ...]
    part: str
    scale: float
    fixed_value: float | None


@dataclass(frozen=True, slots=True)
class _Hit:
    """A family that the catalogue maps: which mapping, which of its names."""

    upstream: int
    age: int


class Mapper:
    """Maps the series of one engine.

    Attributes:
        unmapped: Families that are neither mapped nor ignored, with the first reason seen.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._hits = {
            family: _Hit(number, age)
            for number, upstream in enumerate(engine.upstream)
            for age, family in enumerate(upstream.families)
        }
        self._types: dict[str, str] = {}
        self.unmapped: dict[str, str] = {}

    def forget(self) -> None:
        """Forget the declared types and the unmapped families."""
        self._types = {}
        self.unmapped = {}

    def declare(self, comment: str) -> bool:
        """Take a comment line; returns whether a family has another type than it had."""
        hit = TYPE.match(comment)
        if hit is None:
            return False
        changed = self._types.get(hit[1], hit[2]) != hit[2]
        self._types[hit[1]] = hit[2]
        return changed

    def target(self, name: str, labels: Mapping[str, str]) -> Target | None:
        """Say what becomes of a sample; None if nothing does."""
        found = self._find(name)
        if found is None:
            self._note_unmapped(name)
            return None
        hit, family, suffix = found
        upstream = self._engine.upstream[hit.upstream]
        metric = METRICS[upstream.metric]
        if suffix != "_created" and (problem := self._mismatch(family, metric, suffix)):
            self.unmapped.setdefault(family, problem)
            return None
        if any(labels.get(label) not in values for label, values in upstream.only.items()):
            return None
        series = (upstream.families[hit.age], _label_text(labels))
        # What is longer than any identifier is none.
        labels = {label: text for label, text in labels.items() if len(text) <= MAX_TEXT}
        value = _product(labels, upstream.product_of) if upstream.product_of else None
        part = _part(metric, suffix, labels, upstream.scale)
        if part is None or (upstream.product_of and value is None):
            return None
        return Target(
            metric=metric,
            upstream=hit.upstream,
            age=hit.age,
            series=series,
            model=labels.get(self._engine.model_labels[0]),
            rank=labels.get(self._engine.rank_label),
            more=_more(metric, upstream, labels),
            part=part,
            scale=upstream.scale if part in ("", SUM) else 1.0,
            fixed_value=value,
        )

    def _find(self, name: str) -> tuple[_Hit, str, str] | None:
        """Return the mapping of a sample name, its family's full name and its suffix."""
        for family, suffix in _readings(name):
            for prefix in self._engine.prefixes:
                if family.startswith(prefix):
                    short = family.removeprefix(prefix)
                    hit = self._hits.get(short) or self._hits.get(short.removesuffix("_total"))
                    if hit is not None:
                        return hit, family, suffix
        return None

    def _mismatch(self, family: str, metric: Metric, suffix: str) -> str:
        kind = self._kind(family)
        if kind not in (None, "unknown", "untyped", metric.kind):
            return f"it is a {kind} here, a {metric.kind} in the catalogue"
        return "" if suffix in _FITTING[metric.kind] else f"sample suffix {suffix!r} is unexpected"

    def _kind(self, family: str) -> str | None:
        """Return the type of a family: the catalogue's word before that of the engine."""
        for prefix in self._engine.prefixes:
            short = family.removeprefix(prefix)
            for name in (short, short + "_total", short.removesuffix("_total")):
                if name in self._engine.kinds:
                    return self._engine.kinds[name]
        return self._types.get(family) or self._types.get(family + "_total")

    def _note_unmapped(self, name: str) -> None:
        if not NAME.fullmatch(name):
            return
        families = [family for family, _ in _readings(name)]
        if any(
            entry.pattern.fullmatch(family) for entry in self._engine.ignored for family in families
        ):
            return
        family = next((family for family in families if family in self._types), name)
        self.unmapped.setdefault(family, "the catalogue does not know it")


def _readings(name: str) -> list[tuple[str, str]]:
    """Return what a sample name may be: a family alone, or a family and a suffix."""
    found = [(name, "")]
    found += [(name.removesuffix(suffix), suffix) for suffix in _SUFFIXES if name.endswith(suffix)]
    return found


def _more(metric: Metric, upstream: Upstream, labels: Mapping[str, str]) -> tuple[str, ...]:
    ours = {ours: labels.get(theirs, "") for theirs, ours in upstream.labels.items()}
    ours.update(upstream.fixed)
    return tuple(ours.get(label, "") for label in metric.labels[4:])


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()) if name != "le")


def _part(metric: Metric, suffix: str, labels: Mapping[str, str], scale: float) -> str | None:
    if suffix == "_created":
        return None if metric.kind is Kind.GAUGE else CREATED
    if metric.kind is not Kind.HISTOGRAM:
        return ""
    if suffix != "_bucket":
        return suffix.removeprefix("_")
    return _bound(labels.get("le", ""), scale)


def _bound(text: str, scale: float) -> str | None:
    """Write a bound in one way: Go says 1, Python 1.0."""
    try:
        value = float(text) * scale
    except ValueError:
        return None
    if math.isnan(value):
        return None
    return "+Inf" if value == math.inf else repr(value)


def _product(labels: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    product = 1.0
    for name in names:
        try:
            product *= float(labels[name])
        except (KeyError, ValueError):
            return None
    return product if math.isfinite(product) else None
