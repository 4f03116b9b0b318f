"""The shapes of the catalogue: frozen values, no logic beyond checking themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

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
        weighted_by: For an average: name of the gauge by which its parts weigh, where each part
            has one.
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
    weighted_by: str = ""

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
class Ignored:
    """Families that are left out, and why.

    Attributes:
        pattern: Regular expression over the whole family name, a prefix included.
        reason: One clause.
    """

    pattern: re.Pattern[str]
    reason: str
