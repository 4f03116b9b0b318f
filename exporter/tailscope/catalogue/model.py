"""The shapes of the catalogue: frozen values, no logic beyond checking themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

PREFIX = "tailscope_"


class Kind(StrEnum):
    """A Prometheus metric type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """Base unit of a metric; it is the last word of the name before ``_total``, but for counts."""

    SECONDS = "seconds"
    BYTES = "bytes"
    RATIO = "ratio"
    CELSIUS = "celsius"
    WATTS = "watts"
    JOULES = "joules"
    HERTZ = "hertz"
    BYTES_PER_SECOND = "bytes_per_second"
    TOKENS = "tokens"
    NONE = ""


class Across(StrEnum):
    """How the values of several ranks, replicas or upstream series become one."""

    SUM = "sum"
    MEAN = "avg"
    MAX = "max"


class CatalogueError(ValueError):
    """A declaration of the catalogue contradicts itself."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the vocabulary.

    Attributes:
        name: Full name, with prefix; a counter ends in ``_total``.
        kind: Prometheus type.
        help: One sentence.
        labels: Label names, in the order in which they are written.
        unit: Base unit of the value.
        across: How several ranks or replicas are combined into one value.
        buckets: Upper bounds for a histogram that Tailscope fills itself, in ``unit``; empty
            where the bounds are those of the engine.
        integral_of: For a counter: name of the gauge whose time integral it is.
        distribution_of: For a histogram: name of the gauge whose samples it counts.
        stored: True if its samples go into the store, so that triage needs no Prometheus.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: Unit = Unit.NONE
    across: Across = Across.SUM
    buckets: tuple[float, ...] = ()
    integral_of: str = ""
    distribution_of: str = ""
    stored: bool = False

    def __post_init__(self) -> None:
        if not self.name.startswith(PREFIX):
            raise CatalogueError(f"{self.name}: a name starts with {PREFIX}")
        if (self.kind is Kind.COUNTER) != self.name.endswith("_total"):
            raise CatalogueError(f"{self.name}: _total is for counters, and for each of them")
        stem = self.name.removesuffix("_total")
        if self.unit not in (Unit.NONE, Unit.TOKENS) and not (
            stem.endswith("_" + self.unit) or self.distribution_of
        ):
            raise CatalogueError(f"{self.name}: the name does not end in its unit {self.unit}")
        if not (self.help.endswith(".") and self.help[0].isupper()):
            raise CatalogueError(f"{self.name}: help is a sentence")


@dataclass(frozen=True, slots=True)
class Upstream:
    """One family of an engine, and the metric of ours that it becomes.

    Attributes:
        metric: Name of our metric.
        families: The family's names in the wild, newest first, without the engine's prefix, and
            without ``_total`` (the text format adds and drops it freely).
        scale: Factor from the engine's unit to ours.
        labels: Upstream label name to ours, for labels that differ per family.
        fixed: Labels of ours with a constant value.
        only: Upstream label to the values of it that count; samples with others are left out.
        product_of: Labels whose product is the value, for facts that an engine tells in labels.
    """

    metric: str
    families: tuple[str, ...]
    scale: float = 1.0
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fixed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    only: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    product_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ignored:
    """Families that are left out, and why.

    Attributes:
        pattern: Regular expression over the whole family name, the engine's prefix included.
        reason: One clause.
    """

    pattern: re.Pattern[str]
    reason: str


@dataclass(frozen=True, slots=True)
class SpanMapping:
    """How the spans of one producer become request records.

    Attributes:
        name: Span name that marks a request; other spans of the producer are left out.
        attributes: Span attribute to column of the request record.
        request_id: Patterns whose first group is the id that the client sent; first hit wins.
    """

    name: str
    attributes: Mapping[str, str]
    request_id: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine: how to recognise it and how to read it.

    Attributes:
        name: The value of the ``engine`` label.
        title: Name for people.
        port: Usual port of its HTTP server.
        path: Path of its Prometheus text.
        prefixes: Family-name prefixes in the wild, usual one first.
        recognise: Families (without prefix) of which one at least is always there.
        model_label: Label that holds the served model's name.
        rank_label: Label that holds the data-parallel rank.
        upstream: What is mapped.
        ignored: What is left out, and why.
        kinds: Real types of families whose ``# TYPE`` or name misleads, without prefix.
        spans: How its spans become records, if it sends any.
    """

    name: str
    title: str
    port: int
    path: str
    prefixes: tuple[str, ...]
    recognise: tuple[str, ...]
    model_label: str
    rank_label: str
    upstream: tuple[Upstream, ...]
    ignored: tuple[Ignored, ...]
    kinds: Mapping[str, Kind] = field(default_factory=lambda: MappingProxyType({}))
    spans: SpanMapping | None = None
