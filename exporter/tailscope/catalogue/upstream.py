"""How an engine is described: what it is called, how it is recognised, what becomes of its words.

All of it is data. An engine is one module of ``catalogue.engines`` that defines ``ENGINE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tailscope.catalogue.model import Across, Ignored, Kind
from tailscope.catalogue.spans.model import SpanKind

NO_TEXT: Mapping[str, str] = MappingProxyType({})


class Part(StrEnum):
    """Which number of a family counts."""

    WHOLE = ""
    SUM = "sum"
    COUNT = "count"


class Operation(StrEnum):
    """How a derived value is computed from its operands."""

    SUM = "sum"
    PRODUCT = "product"
    RATIO = "ratio"
    DIFFERENCE = "difference"


class Reduce(StrEnum):
    """How one number, or one histogram, is made of the rows of a document."""

    LAST = "last"
    SUM = "sum"
    COUNT = "count"
    BUCKETS = "buckets"


@dataclass(frozen=True, slots=True)
class Upstream:
    """One family of an engine, and the metric of ours that it becomes.

    Where several entries have the same metric and the same fixed labels (empty ones apart), the
    first one that the engine gives counts, and the others do not: they are the same truth under
    other names.

    Attributes:
        metric: Name of our metric, or of a term of the engine.
        families: The family's names in the wild, newest first, without the engine's prefix, and
            without ``_total`` (the text format adds and drops it freely).
        scale: Factor from the engine's unit to ours.
        labels: Upstream label name to ours, for labels that differ per family.
        fixed: Labels of ours with a constant value.
        only: Upstream label to the values of it that count; samples with others are left out.
            An empty text stands for a label that is absent.
        total_under: Labels under which the engine gives, beside each value, the total as the
            empty value. Where there is one, it alone counts.
        product_of: Labels whose product is the value, for facts that an engine tells in labels.
        part: The sum or the count of a histogram or summary, where that is a counter of ours.
    """

    metric: str
    families: tuple[str, ...]
    scale: float = 1.0
    labels: Mapping[str, str] = field(default_factory=lambda: NO_TEXT)
    fixed: Mapping[str, str] = field(default_factory=lambda: NO_TEXT)
    only: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    total_under: tuple[str, ...] = ()
    product_of: tuple[str, ...] = ()
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Term:
    """A number that an engine gives and that is no metric of ours, but part of a derived one.

    Attributes:
        name: What the engine's entries call it.
        kind: Counter or gauge.
        across: How several ranks or replicas are combined.
    """

    name: str
    kind: Kind = Kind.GAUGE
    across: Across = Across.SUM


@dataclass(frozen=True, slots=True)
class Derived:
    """A metric that is computed, where the engine does not give it itself.

    Attributes:
        metric: Name of our metric. A counter can only be a sum of counters.
        operation: How.
        operands: Names of terms or of our metrics, without labels of their own. Without one of
            them there is no value.
        optional: Further operands of a sum that an engine may lack.
        fixed: Labels of ours with a constant value.
    """

    metric: str
    operation: Operation
    operands: tuple[str, ...]
    optional: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=lambda: NO_TEXT)


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells an engine: a family that it has.

    Attributes:
        family: Its name without the engine's prefix and without ``_total``.
        labels: Labels that its first series must have.
        lacks: Labels that it must not have.
    """

    family: str
    labels: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where the name of the served model is, if no label has it.

    Attributes:
        path: Path of a JSON document.
        pointer: Keys and indexes from its root to the name.
        last_part: Whether only what follows the last slash counts, for names that are files.
    """

    path: str
    pointer: tuple[str | int, ...]
    last_part: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One number of each row of a JSON document, and the family that is made of it.

    Attributes:
        family: Name of the family, without the engine's prefix, for the entries of ``upstream``.
        pointer: Keys and indexes from a row to the number.
        minus: The same for a number that is taken from it; negative differences are left out.
        reduce: How the rows become one number.
        bounds: Upper bounds for ``BUCKETS``, ascending, in the unit of the number.
        when: A flag of the row. Where it is not true the row counts as 0; where it is and one row
            lacks the number, there is no value at all.
    """

    family: str
    pointer: tuple[str | int, ...]
    minus: tuple[str | int, ...] = ()
    reduce: Reduce = Reduce.LAST
    bounds: tuple[float, ...] = ()
    when: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON list that an engine serves beside, or instead of, its Prometheus text.

    Attributes:
        path: Its path.
        marks: Keys that each row has; how it is told from other JSON.
        fields: What is read of it.
        drained: Whether each read empties it: its rows are then events, and are added up over all
            reads. There must be no second reader.
    """

    path: str
    marks: tuple[str, ...]
    fields: tuple[Field, ...]
    drained: bool = False


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine or gateway: how to recognise it and how to read it.

    Attributes:
        name: The value of the ``engine`` label.
        title: Name for people.
        ports: Usual ports of what serves its metrics, most usual first.
        paths: Paths of its Prometheus text, most usual first.
        prefixes: Family-name prefixes in the wild, usual one first; may be the empty text.
        recognise: What tells it: one of these marks is enough. None, if it must be named.
        layer: 0 for what runs a model; more for what stands in front of others and may repeat
            their families on its own page. The highest that is recognised counts.
        upstream: What is mapped.
        ignored: What is left out, and why.
        terms: Operands of ``derived`` that are no metrics.
        derived: What is computed.
        model_labels: Labels that hold the served model's name, best first.
        nameless: Values of them that are no name.
        model_at: Where else that name is, best first.
        rank_label: Label that holds the data-parallel rank; its values are told apart.
        copies: Labels of ranks that all tell the same (tensor, pipeline, expert parallel): of
            series that differ in these alone, that of the lowest rank counts.
        writers: Labels of processes that each give their view of one gauge: the largest counts.
        replicas: Labels of replicas behind one page: they are added up, or averaged by capacity.
        kinds: Real types of families whose ``# TYPE`` or name misleads, without prefix.
        documents: JSON that it serves.
        passes_on: Engines whose families stand on its page unchanged.
        switch_on: How to switch its metrics on: one clause, for a message and the docs.
        spans: How its spans become records, if it sends any.
        renamed: What one server writes in place of the usual prefix, if its user chose another.
    """

    name: str
    title: str
    ports: tuple[int, ...]
    prefixes: tuple[str, ...]
    upstream: tuple[Upstream, ...]
    ignored: tuple[Ignored, ...]
    recognise: tuple[Mark, ...] = ()
    layer: int = 0
    paths: tuple[str, ...] = ("/metrics",)
    terms: tuple[Term, ...] = ()
    derived: tuple[Derived, ...] = ()
    model_labels: tuple[str, ...] = ()
    nameless: tuple[str, ...] = ("", "undefined")
    model_at: tuple[Lookup, ...] = ()
    rank_label: str = ""
    copies: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=lambda: MappingProxyType({}))
    documents: tuple[Document, ...] = ()
    passes_on: tuple[Engine, ...] = ()
    switch_on: str = ""
    spans: SpanKind | None = None
    renamed: str = ""

    @property
    def dialects(self) -> tuple[Engine, ...]:
        """Itself and what it passes on, itself first."""
        return (self, *(more for one in self.passes_on for more in one.dialects))
