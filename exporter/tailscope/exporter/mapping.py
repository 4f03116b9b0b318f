"""What each series of an engine becomes, by the catalogue. Decided once per series."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tailscope.catalogue import METRICS, PREFIX, Across, Engine, Kind, Metric, Upstream
from tailscope.catalogue.upstream import Term
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

_SUFFIXES = ("_bucket", "_sum", "_count", "_total", "_created", "_gcount", "_gsum")
_UNSAID = (None, "unknown", "untyped")
_SPREAD = (*_UNSAID, "histogram", "summary")
_NUMBER = (*_UNSAID, "counter", "gauge")
"""Types of a plain number. Which of the two it is the catalogue knows better: Ray declares counters
gauges, or both side by side, and engines mistake one for the other."""


class Measure(NamedTuple):
    """What a series counts for: a metric of ours, or a term of its engine."""

    name: str
    kind: Kind
    across: Across
    labels: tuple[str, ...] = ()
    weighted_by: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One upstream series; the buckets of a histogram are one.

    Attributes:
        measure: What it counts for.
        key: Its identity from scrape to scrape: which entry of the engine, family, labels.
        slot: Which truth it tells; of several families in one slot that of the least age counts.
        age: Place of its family among those of the slot; 0 is the best.
        model: The served model, as the engine says; empty where it does not.
        rank: The data-parallel rank, as the engine says; None where it does not.
        more: Values of the metric's labels after the common four.
        origin: Values of the labels that tell ranks and replicas apart, for averages by capacity.
        twins: Identity without the labels of ranks that tell the same; None if it has none.
        copy: Which of its twins it is: the lowest counts.
        siblings: Identity without the labels that a total may stand under; None if it has none.
        total: Whether it is the total of its siblings.
        viewed: Whether several processes may each give a view of it.
    """

    measure: Measure
    key: tuple[int, str, str]
    slot: int
    age: int
    model: str
    rank: str | None
    more: tuple[str, ...]
    origin: tuple[str, ...]
    twins: tuple[int, str, str] | None
    copy: tuple[tuple[int, str], ...]
    siblings: tuple[int, str, str] | None
    total: bool
    viewed: bool


class Target(NamedTuple):
    """What becomes of the number in one line.

    Attributes:
        series: The series that it belongs to.
        part: Bound, ``sum`` or ``count`` of a histogram; ``created``; empty otherwise.
        scale: Factor from the engine's unit to ours.
        fixed_value: The value, where the engine tells it in labels.
    """

    series: Series
    part: str
    scale: float
    fixed_value: float | None


@dataclass(frozen=True, slots=True, eq=False)
class _Hit:
    """A family that the catalogue maps: to what, by which entry, under which of its names."""

    dialect: Engine
    upstream: Upstream
    measure: Measure
    number: int
    slot: int
    age: int
    family: str


class Mapper:
    """Maps the series of one engine.

    Attributes:
        unmapped: Families that are neither mapped nor ignored, with the first reason seen.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._hits = _hits(engine)
        self._types: dict[str, str] = {}
        self._series: dict[tuple[int, str, str], Series] = {}
        self._found: dict[str, tuple[list[_Hit], str, str] | None] = {}
        self.unmapped: dict[str, str] = {}

    def forget(self) -> None:
        """Forget the declared types, the series and the unmapped families."""
        self._types = {}
        self._series = {}
        self._found = {}
        self.unmapped = {}

    def declare(self, comment: str) -> str:
        """Take a comment line; returns the family that has another type than it had, if one has."""
        hit = TYPE.match(comment)
        if hit is None:
            return ""
        family = self._usual(hit[1])
        changed = self._types.get(family, hit[2]) != hit[2]
        self._types[family] = hit[2]
        return hit[1] if changed else ""

    def _usual(self, name: str) -> str:
        """Return a name with the engine's usual prefix in place of the one that a user chose."""
        renamed = self._engine.renamed
        if renamed and name.startswith(renamed):
            return self._engine.prefixes[0] + name.removeprefix(renamed)
        return name

    def knows(self, name: str) -> bool:
        """Return whether samples of that name are mapped; notes a name that is unknown."""
        name = self._usual(name)
        if self._find(name) is not None:
            return True
        self._note_unmapped(name)
        return False

    def targets(self, name: str, labels: Mapping[str, str]) -> tuple[Target, ...]:
        """Say what becomes of a sample; nothing, for most of what an engine says."""
        name = self._usual(name)
        found = self._find(name)
        if found is None:
            self._note_unmapped(name)
            return ()
        hits, family, suffix = found
        kind = self._kind(hits[0].dialect, family)
        problems = {hit: _mismatch(hit, kind, suffix) for hit in hits}
        if all(problems.values()):
            self.unmapped.setdefault(family, next(iter(problems.values())))
        # What is longer than any identifier is none.
        short = {label: text for label, text in labels.items() if len(text) <= MAX_TEXT}
        made = (self._target(hit, suffix, labels, short) for hit in hits if not problems[hit])
        return tuple(target for target in made if target is not None)

    def _target(
        self, hit: _Hit, suffix: str, labels: Mapping[str, str], short: Mapping[str, str]
    ) -> Target | None:
        upstream = hit.upstream
        if any(short.get(label, "") not in values for label, values in upstream.only.items()):
            return None
        value = _product(short, upstream.product_of) if upstream.product_of else None
        part = _part(hit, suffix, short)
        if part is None or (upstream.product_of and value is None):
            return None
        scale = upstream.scale if part in ("", SUM) else 1.0
        return Target(self._one(hit, labels, short), part, scale, value)

    def _one(self, hit: _Hit, labels: Mapping[str, str], short: Mapping[str, str]) -> Series:
        """Return the series of these labels, the same one for each of its parts."""
        dialect, gauge = hit.dialect, hit.measure.kind is Kind.GAUGE
        own = {label: text for label, text in labels.items() if label != "le"}
        viewed = gauge and any(label in own for label in dialect.writers)
        if viewed:
            own = _without(own, dialect.writers)
        key = (hit.number, hit.family, _label_text(own))
        series = self._series.get(key)
        if series is None:
            rank = short.get(dialect.rank_label) if dialect.rank_label else None
            copies = tuple(label for label in dialect.copies if label in own)
            totals = tuple(label for label in hit.upstream.total_under if label in own)
            series = self._series[key] = Series(
                measure=hit.measure,
                key=key,
                slot=hit.slot,
                age=hit.age,
                model=_model(dialect, short),
                rank=rank,
                more=_more(hit.measure, hit.upstream, short),
                origin=(rank or "", *(short.get(label, "") for label in dialect.replicas)),
                twins=(*key[:2], _label_text(_without(own, copies))) if copies else None,
                copy=tuple((len(own[label]), own[label]) for label in copies),
                siblings=(*key[:2], _label_text(_without(own, totals))) if totals else None,
                total=not any(own[label] for label in totals),
                viewed=viewed,
            )
        return series

    def _find(self, name: str) -> tuple[list[_Hit], str, str] | None:
        """Return the entries for a sample name, its family's full name and its suffix."""
        if name not in self._found:
            self._found[name] = self._look(name)
        return self._found[name]

    def _look(self, name: str) -> tuple[list[_Hit], str, str] | None:
        for family, suffix in _readings(name):
            for prefix, hits in self._hits:
                if family.startswith(prefix):
                    short = family.removeprefix(prefix)
                    found = hits.get(short) or hits.get(short.removesuffix("_total"))
                    if found is not None:
                        return found, family, suffix
        return None

    def _kind(self, dialect: Engine, family: str) -> str | None:
        """Return the type of a family: the catalogue's word before that of the engine."""
        for prefix in dialect.prefixes:
            short = family.removeprefix(prefix)
            for name in (short, short + "_total", short.removesuffix("_total")):
                if name in dialect.kinds:
                    return dialect.kinds[name]
        return self._types.get(family) or self._types.get(family + "_total")

    def _note_unmapped(self, name: str) -> None:
        if not NAME.fullmatch(name):
            return
        families = [family for family, _ in _readings(name)]
        if any(
            entry.pattern.fullmatch(family)
            for dialect in self._engine.dialects
            for entry in dialect.ignored
            for family in families
        ):
            return
        family = next((family for family in families if family in self._types), name)
        self.unmapped.setdefault(family, "the catalogue does not know it")


def term_name(dialect: Engine, name: str) -> str:
    """Return what a term of an engine is called among the metrics."""
    return f"{dialect.name}:{name}"


def _hits(engine: Engine) -> list[tuple[str, dict[str, list[_Hit]]]]:
    """Return, by prefix, the entries for each family name."""
    slots: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    found = []
    number = 0
    for dialect in engine.dialects:
        hits: dict[str, list[_Hit]] = {}
        for upstream in dialect.upstream:
            number += 1
            measure = _measure(dialect, upstream.metric)
            fixed = tuple(sorted(item for item in upstream.fixed.items() if item[1]))
            slot = slots.setdefault((measure.name, fixed), number)
            for age, family in enumerate(upstream.families):
                # The order of the entries comes before that of the names in one of them.
                hit = _Hit(dialect, upstream, measure, number, slot, 1000 * number + age, family)
                hits.setdefault(family, []).append(hit)
        found += [(prefix, hits) for prefix in dialect.prefixes]
    return found


def _measure(dialect: Engine, name: str) -> Measure:
    metric: Metric | Term | None = METRICS.get(name)
    if isinstance(metric, Metric):
        labels = metric.labels[4:]
        return Measure(name, metric.kind, metric.across, labels, metric.weighted_by)
    term = next(term for term in dialect.terms if term.name == name)
    return Measure(term_name(dialect, name), term.kind, term.across)


def operand_name(dialect: Engine, name: str) -> str:
    """Return what an operand of a derived value is called: a term, or else a metric."""
    if any(term.name == name for term in dialect.terms):
        return term_name(dialect, name)
    return f"{PREFIX}engine_{name}"


def _mismatch(hit: _Hit, kind: str | None, suffix: str) -> str:
    """Say what is wrong with a sample's type or suffix; empty if nothing is."""
    if suffix == "_created":
        return ""
    measure = hit.measure.kind
    spread = bool(hit.upstream.part) or measure is Kind.HISTOGRAM
    if kind not in (_SPREAD if spread else _NUMBER):
        return f"it is a {kind} here, a {measure} in the catalogue"
    suffixes: tuple[str, ...] = ("_bucket", "_sum", "_count") if spread else ("",)
    if measure is Kind.COUNTER and not spread:
        suffixes = ("", "_total")
    elif kind == "summary":
        suffixes = ("", "_sum", "_count")
    return "" if suffix in suffixes else f"sample suffix {suffix!r} is unexpected"


def _readings(name: str) -> Iterator[tuple[str, str]]:
    """Yield what a sample name may be: a family alone, or a family and a suffix."""
    yield name, ""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            yield name.removesuffix(suffix), suffix


def _model(dialect: Engine, labels: Mapping[str, str]) -> str:
    names = (labels.get(label, "") for label in dialect.model_labels)
    return next((name for name in names if name not in dialect.nameless), "")


def _more(measure: Measure, upstream: Upstream, labels: Mapping[str, str]) -> tuple[str, ...]:
    # Where a label was renamed, two names stand for one of ours; only one of them is there.
    ours = {ours: labels[theirs] for theirs, ours in upstream.labels.items() if theirs in labels}
    ours.update(upstream.fixed)
    return tuple(ours.get(label, "") for label in measure.labels)


def _without(labels: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {label: text for label, text in labels.items() if label not in names}


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _part(hit: _Hit, suffix: str, labels: Mapping[str, str]) -> str | None:
    kind, part = hit.measure.kind, hit.upstream.part
    if suffix == "_created":
        return None if kind is Kind.GAUGE else CREATED
    if part:
        return "" if suffix == f"_{part}" else None
    if kind is not Kind.HISTOGRAM:
        return ""
    if suffix != "_bucket":
        return suffix.removeprefix("_") or None
    return _bound(labels.get("le", ""), hit.upstream.scale)


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
