"""What each series of an engine becomes, by the catalogue. Decided once per series."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tailscope.catalogue import Engine, Kind, Upstream
from tailscope.exporter.carry import SUM
from tailscope.exporter.entries import Entry, Measure, entries_of, mismatch
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


class Mapper:
    """Maps the series of one engine.

    Attributes:
        unmapped: Families that are neither mapped nor ignored, with the first reason seen.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._entries = entries_of(engine)
        self._types: dict[str, str] = {}
        self._series: dict[tuple[int, str, str], Series] = {}
        self._found: dict[str, tuple[list[Entry], str, str] | None] = {}
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
        entries, family, suffix = found
        kind = self._kind(entries[0].dialect, family)
        problems = {entry: mismatch(entry, kind, suffix) for entry in entries}
        if all(problems.values()):
            self.unmapped.setdefault(family, next(iter(problems.values())))
        # What is longer than any identifier is none.
        short = {label: text for label, text in labels.items() if len(text) <= MAX_TEXT}
        made = (
            self._target(entry, suffix, labels, short) for entry in entries if not problems[entry]
        )
        return tuple(target for target in made if target is not None)

    def _target(
        self, entry: Entry, suffix: str, labels: Mapping[str, str], short: Mapping[str, str]
    ) -> Target | None:
        upstream = entry.upstream
        if any(short.get(label, "") not in values for label, values in upstream.only.items()):
            return None
        value = _product(short, upstream.product_of) if upstream.product_of else None
        part = _part(entry, suffix, short)
        if part is None or (upstream.product_of and value is None):
            return None
        scale = upstream.scale if part in ("", SUM) else 1.0
        return Target(self._one(entry, labels, short), part, scale, value)

    def _one(self, entry: Entry, labels: Mapping[str, str], short: Mapping[str, str]) -> Series:
        """Return the series of these labels, the same one for each of its parts."""
        dialect, gauge = entry.dialect, entry.measure.kind is Kind.GAUGE
        own = {label: text for label, text in labels.items() if label != "le"}
        viewed = gauge and any(label in own for label in dialect.writers)
        if viewed:
            own = _without(own, dialect.writers)
        key = (entry.number, entry.family, _label_text(own))
        series = self._series.get(key)
        if series is None:
            rank = short.get(dialect.rank_label) if dialect.rank_label else None
            copies = tuple(label for label in dialect.copies if label in own)
            totals = tuple(label for label in entry.upstream.total_under if label in own)
            series = self._series[key] = Series(
                measure=entry.measure,
                key=key,
                slot=entry.slot,
                age=entry.age,
                model=_model(dialect, short),
                rank=rank,
                more=_more(entry.measure, entry.upstream, short),
                origin=(rank or "", *(short.get(label, "") for label in dialect.replicas)),
                twins=(*key[:2], _label_text(_without(own, copies))) if copies else None,
                copy=tuple((len(own[label]), own[label]) for label in copies),
                siblings=(*key[:2], _label_text(_without(own, totals))) if totals else None,
                total=not any(own[label] for label in totals),
                viewed=viewed,
            )
        return series

    def _find(self, name: str) -> tuple[list[Entry], str, str] | None:
        """Return the entries for a sample name, its family's full name and its suffix."""
        if name not in self._found:
            self._found[name] = self._look(name)
        return self._found[name]

    def _look(self, name: str) -> tuple[list[Entry], str, str] | None:
        for family, suffix in _readings(name):
            for prefix, entries in self._entries:
                if family.startswith(prefix):
                    short = family.removeprefix(prefix)
                    found = entries.get(short) or entries.get(short.removesuffix("_total"))
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
            ignored.pattern.fullmatch(family)
            for dialect in self._engine.dialects
            for ignored in dialect.ignored
            for family in families
        ):
            return
        family = next((family for family in families if family in self._types), name)
        self.unmapped.setdefault(family, "the catalogue does not know it")


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


def _part(entry: Entry, suffix: str, labels: Mapping[str, str]) -> str | None:
    kind, part = entry.measure.kind, entry.upstream.part
    if suffix == "_created":
        return None if kind is Kind.GAUGE else CREATED
    if part:
        return "" if suffix == f"_{part}" else None
    if kind is not Kind.HISTOGRAM:
        return ""
    if suffix != "_bucket":
        return suffix.removeprefix("_") or None
    return _bound(labels.get("le", ""), entry.upstream.scale)


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
