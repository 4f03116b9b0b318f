"""The catalogue's entries for the families of one engine, by their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tailscope.catalogue import METRICS, PREFIX, Across, Engine, Kind, Metric, Upstream
from tailscope.catalogue.upstream import Term

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
class Entry:
    """A family that the catalogue maps: to what, by which entry, under which of its names.

    Attributes:
        dialect: The engine whose word it is: another one than that of the page, if it passes on.
        upstream: The entry.
        measure: What its series count for.
        number: Which entry it is.
        slot: As ``Series.slot``.
        age: As ``Series.age``.
        family: The family's name, without prefix.
    """

    dialect: Engine
    upstream: Upstream
    measure: Measure
    number: int
    slot: int
    age: int
    family: str


def term_name(dialect: Engine, name: str) -> str:
    """Return what a term of an engine is called among the metrics."""
    return f"{dialect.name}:{name}"


def entries_of(engine: Engine) -> list[tuple[str, dict[str, list[Entry]]]]:
    """Return, by prefix, the entries for each family name."""
    slots: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    found = []
    number = 0
    for dialect in engine.dialects:
        named: dict[str, list[Entry]] = {}
        for upstream in dialect.upstream:
            number += 1
            measure = _measure(dialect, upstream.metric)
            fixed = tuple(sorted(item for item in upstream.fixed.items() if item[1]))
            slot = slots.setdefault((measure.name, fixed), number)
            for age, family in enumerate(upstream.families):
                # The order of the entries comes before that of the names in one of them.
                entry = Entry(dialect, upstream, measure, number, slot, 1000 * number + age, family)
                named.setdefault(family, []).append(entry)
        found += [(prefix, named) for prefix in dialect.prefixes]
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


def mismatch(entry: Entry, kind: str | None, suffix: str) -> str:
    """Say what is wrong with a sample's type or suffix; empty if nothing is."""
    if suffix == "_created":
        return ""
    measure = entry.measure.kind
    spread = bool(entry.upstream.part) or measure is Kind.HISTOGRAM
    if kind not in (_SPREAD if spread else _NUMBER):
        return f"it is a {kind} here, a {measure} in the catalogue"
    suffixes: tuple[str, ...] = ("_bucket", "_sum", "_count") if spread else ("",)
    if measure is Kind.COUNTER and not spread:
        suffixes = ("", "_total")
    elif kind == "summary":
        suffixes = ("", "_sum", "_count")
    return "" if suffix in suffixes else f"sample suffix {suffix!r} is unexpected"
