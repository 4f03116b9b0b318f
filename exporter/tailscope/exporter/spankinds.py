"""Span kinds of the catalogue, made ready to be found and read span by span."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from tailscope.catalogue.spans import KINDS, TIMEOUT, SpanKind
from tailscope.exporter.anyvalue import read_duration, read_float, read_int, read_name
from tailscope.exporter.otlp import Attributes
from tailscope.records.outcome import of_status, of_timeout
from tailscope.records.record import COLUMNS, MAX_TEXT, RequestRecord
from tailscope.records.tenancy import TenantRule

_READ: dict[type, Callable[[bytes], Any]] = {float: read_float, int: read_int, str: read_name}


class Kind:
    """One kind.

    Args:
        kind: As the catalogue has it.
        rules: Where the tenant is.

    Attributes:
        tenant: Finds the tenant.
    """

    def __init__(self, kind: SpanKind, rules: Sequence[TenantRule]) -> None:
        self.declared = kind
        self.tenant = TenantPlaces(rules, kind.places).tenant
        self._marks = tuple(map(frozenset, kind.marks))
        self._told = frozenset(mark.attribute for mark in kind.outcomes)
        read = {**_READ, float: read_duration} if kind.durations else _READ
        # Of two for one column the first wins: it is read last.
        self._slots = tuple(
            (name, column, read[COLUMNS[column]])
            for name, column in reversed(tuple(kind.attributes.items()))
        )

    def marked(self, name: str, names: Set[str]) -> bool:
        """Whether a span of this name that has attributes of these names is of this kind."""
        declared = self.declared
        if declared.name is not None and declared.name != name:
            return False
        for group in self._marks:
            if group.isdisjoint(names):
                return False
        return not declared.lacks or names.isdisjoint(declared.lacks)

    def matches(self, name: str, names: Set[str], attributes: Attributes) -> bool:
        """Whether a span is a request of this kind.

        Args:
            name: Of the span.
            names: The attributes' names, for a set is asked sooner than a message.
            attributes: Their values.
        """
        if not self.marked(name, names):
            return False
        for attribute, texts in self.declared.without.items():
            if attribute in names and read_name(attributes[attribute]) in texts:
                return False
        return True

    def values(self, names: Set[str], attributes: Attributes) -> dict[str, Any]:
        """The columns that the attributes tell."""
        found: dict[str, Any] = {}
        for name, column, read in self._slots:
            if name in names and (value := read(attributes[name])) is not None:
                found[column] = value
        for column, patterns in self.declared.patterns.items():
            if column in found:
                found[column] = trimmed(found[column], patterns)
        for column, needed in self.declared.needs.items():
            if needed not in found:
                found.pop(column, None)
        if self.declared.engine is not None:
            found["engine"] = self.declared.engine
        return found

    def outcome(
        self, names: Set[str], attributes: Attributes, record: RequestRecord, failed: bool
    ) -> str:
        """How the request ended, by what its span says."""
        if not self._told.isdisjoint(names) and (told := self._mark(attributes)):
            return of_timeout(record) if told == TIMEOUT else told
        by_status = of_status(record.status)
        if by_status not in (None, "ok"):
            return str(by_status)
        return "error" if failed or "error.type" in names else "ok"

    def _mark(self, attributes: Attributes) -> str | None:
        for mark in self.declared.outcomes:
            raw = attributes.get(mark.attribute)
            if raw is not None and mark.pattern.fullmatch(read_name(raw) or ""):
                return mark.outcome
        return None


def kinds(rules: Sequence[TenantRule], engines: Iterable[SpanKind] = ()) -> tuple[Kind, ...]:
    """Make kinds ready: those of engines first, the one with the most marks first of all.

    Args:
        rules: Where the tenant is.
        engines: Those of engines.
    """
    by_marks = sorted(engines, key=lambda kind: (kind.name is None, -len(kind.marks)))
    return tuple(Kind(kind, rules) for kind in (*by_marks, *KINDS))


def trimmed(text: str, patterns: Sequence[re.Pattern[str]]) -> str | None:
    """The first group of the first pattern that matches; the text where none does."""
    for pattern in patterns:
        if hit := pattern.fullmatch(text):
            return hit[1] or None
    return text


class Step(NamedTuple):
    """One place where a tenant may be: names of attributes, or a rule for another place."""

    of_resource: bool
    names: tuple[str, ...]
    rule: TenantRule | None = None


class TenantPlaces:
    """Finds the tenant of the spans of one kind.

    Args:
        rules: Best first.
        places: Attributes of a rule, by its text.
    """

    def __init__(
        self, rules: Sequence[TenantRule], places: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._steps = _steps(rules, places or {})

    @property
    def plain(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Attributes of the span, then of its resource, if the rules ask for nothing else.

        Whoever reads spans in a quicker way needs to know that; None if they ask for more.
        """
        if any(step.rule is not None for step in self._steps):
            return None
        of_resource = [step.of_resource for step in self._steps]
        if of_resource != sorted(of_resource):
            return None
        found = {step.of_resource: step.names for step in self._steps}
        return found.get(False, ()), found.get(True, ())

    def tenant(
        self,
        attributes: Attributes,
        resource: Attributes,
        trace_state: str,
        values: Mapping[str, Any],
    ) -> str | None:
        """Name the tenant; None where no rule finds one.

        Args:
            attributes: The span's.
            resource: Those of its resource.
            trace_state: The span's W3C trace state.
            values: Columns of the record that are known.
        """
        for step in self._steps:
            if step.rule is None:
                found = first(resource if step.of_resource else attributes, step.names)
            elif step.rule.kind == "tracestate":
                found = _of_trace_state(trace_state, step.rule.key)
            else:
                found = step.rule.of_record(values.get("request_id"), values.get("adapter"))
            if found and len(found) <= MAX_TEXT:
                return found
        return None


def _steps(rules: Sequence[TenantRule], places: Mapping[str, tuple[str, ...]]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for rule in rules:
        step = _step(rule, places)
        if steps and step.rule is None and steps[-1].rule is None:
            if not step.names:
                continue
            if step.of_resource == steps[-1].of_resource:
                steps[-1] = Step(step.of_resource, (*steps[-1].names, *step.names))
                continue
        steps.append(step)
    return tuple(steps)


def _step(rule: TenantRule, places: Mapping[str, tuple[str, ...]]) -> Step:
    match rule.kind:
        case "span" | "resource":
            return Step(rule.kind == "resource", (rule.key,))
        case "tracestate" | "request-id" | "adapter":
            return Step(False, (), rule)
        case "header":
            # OpenTelemetry's libraries for Python write an underscore for a hyphen.
            keys = dict.fromkeys((rule.key, rule.key.replace("-", "_")))
            names = [f"http.request.header.{key}" for key in keys]
            return Step(False, (*names, *places.get("header:*", ())))
    return Step(False, places.get(rule.text, ()))


def first(attributes: Attributes, names: Sequence[str]) -> str | None:
    """The first of these attributes that is a name."""
    for name in names:
        raw = attributes.get(name)
        if raw is not None and (text := read_name(raw)):
            return text
    return None


def _of_trace_state(text: str, key: str) -> str | None:
    for member in text.split(","):
        name, _, value = member.strip().partition("=")
        if name == key:
            return value or None
    return None
