"""The shape of a span kind: which spans are requests, and which columns their attributes are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

TIMEOUT = "timeout"
"""An outcome that becomes ``generation_timeout`` after the first token, else ``queue_timeout``."""


@dataclass(frozen=True, slots=True)
class OutcomeMark:
    """An attribute that tells how the request ended.

    Attributes:
        attribute: Its name.
        pattern: Matches the whole of its text.
        outcome: One of the record's outcomes, or ``TIMEOUT``.
    """

    attribute: str
    pattern: re.Pattern[str]
    outcome: str


@dataclass(frozen=True, slots=True)
class SpanKind:
    """How the spans of one kind of producer become request records.

    Attributes:
        source: The record's ``source``.
        role: ``engine`` or ``gateway``.
        marks: Groups of attributes; of each group one must be there.
        attributes: Span attribute to column of the record; of two for one column, the first wins.
        name: Name of the spans, if it is always the same.
        engine: Name of the engine, if one sends it.
        lacks: Attributes of which none is there.
        without: Attributes and the texts of them that say that it is no request.
        patterns: Column to patterns whose first group is kept; first hit wins.
        needs: Column that means what it says only where another one is known.
        outcomes: What tells its end, best first; then the HTTP status and the span's.
        needs_tenant: Whether a span that names no tenant is left out.
        places: Attributes of a tenant rule, by the rule's text, or by its kind before ``:*``.
        durations: Whether times are texts such as ``12.3ms``, as Rust writes them.
        stages: Spans below it that last as long as a stage: name to column of the record.
        between: Attribute of the spans that lie between it and its stages.
    """

    source: str
    role: str
    marks: tuple[tuple[str, ...], ...]
    attributes: Mapping[str, str]
    name: str | None = None
    engine: str | None = None
    lacks: tuple[str, ...] = ()
    without: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    patterns: Mapping[str, tuple[re.Pattern[str], ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    needs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    outcomes: tuple[OutcomeMark, ...] = ()
    needs_tenant: bool = False
    places: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    durations: bool = False
    stages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    between: str = ""
