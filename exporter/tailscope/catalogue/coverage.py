"""What each engine gives of the vocabulary, and from which of its families."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tailscope.catalogue.model import PREFIX, Metric
from tailscope.catalogue.upstream import Derived, Engine, Operation, Upstream

_SIGNS = {
    Operation.SUM: " + ",
    Operation.PRODUCT: " * ",
    Operation.RATIO: " / ",
    Operation.DIFFERENCE: " - ",
}


class How(StrEnum):
    """Whether an engine gives a metric."""

    YES = "yes"
    PASSED = "passed on"
    DERIVED = "derived"
    NO = "no"


class Coverage(NamedTuple):
    """How an engine gives a metric.

    Attributes:
        how: Whether it does.
        sources: Families, or formulas over families, best first.
    """

    how: How
    sources: tuple[str, ...] = ()


def coverage(engine: Engine, metric: Metric) -> Coverage:
    """Say how an engine gives a metric."""
    own = _given(engine, metric)
    computed = _computed(engine, metric)
    passed = [source for other in engine.passes_on for source in coverage(other, metric).sources]
    sources = tuple(dict.fromkeys([*own, *computed, *passed]))
    if own:
        return Coverage(How.YES, sources)
    if computed:
        return Coverage(How.DERIVED, sources)
    return Coverage(How.PASSED if passed else How.NO, sources)


def _given(engine: Engine, metric: Metric) -> list[str]:
    return [
        source
        for upstream in engine.upstream
        if upstream.metric == metric.name
        for source in _families(engine, upstream)
    ]


def _computed(engine: Engine, metric: Metric) -> list[str]:
    return [
        _formula(engine, derived) for derived in engine.derived if derived.metric == metric.name
    ]


def _families(dialect: Engine, upstream: Upstream) -> list[str]:
    documents = {
        field.family: f"{document.path} {'.'.join(map(str, field.pointer))}"
        + (f" - {'.'.join(map(str, field.minus))}" if field.minus else "")
        for document in dialect.documents
        for field in document.fields
    }
    chosen = ",".join(
        f'{label}="{value}"' for label, values in upstream.only.items() for value in values
    )
    end = f"_{upstream.part}" if upstream.part else ""
    return [
        documents.get(family)
        or f"{dialect.prefixes[0]}{family}{end}" + (f"{{{chosen}}}" if chosen else "")
        for family in upstream.families
    ]


def _formula(dialect: Engine, derived: Derived) -> str:
    parts = [_operand(dialect, name) for name in (*derived.operands, *derived.optional)]
    return _SIGNS[derived.operation].join(parts)


def _operand(dialect: Engine, name: str) -> str:
    for upstream in dialect.upstream:
        if upstream.metric in (name, f"{PREFIX}engine_{name}"):
            return _families(dialect, upstream)[0]
    return f"{PREFIX}engine_{name}"
