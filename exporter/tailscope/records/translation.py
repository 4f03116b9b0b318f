"""Rows of foreign files to request records: the mechanism; what is read stands in ``formats``.

Foreign rows are full of texts that nobody may keep. What a format does not name is never looked at,
and a text that is longer than an identifier is dropped.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tailscope.records.formats import formats
from tailscope.records.formats.model import TIMEOUT, Clock, Field, Format
from tailscope.records.outcome import of_status, of_timeout
from tailscope.records.record import (
    COLUMNS,
    MAX_TEXT,
    RecordError,
    RequestRecord,
    complete,
    from_mapping,
)
from tailscope.records.tenancy import DEFAULT_RULES, TenantRule, parse_rules, tenant_of

ORIGIN_NS = 946_684_800 * 10**9
"""2000-01-01 UTC: where the arrivals of a recording begin that tells no date."""

_TIMES = ("arrived_ns", "ended_ns")
_MAX_EMBEDDED = 1 << 20
_MOST_SHAPES = 64
_ABSENT = ("", "-", "null", "None")


class Translator:
    """Makes records of the rows of one file, in its own columns or in a known format.

    Args:
        told: The format, if a user told it; otherwise each row is recognised by its keys.
        more: Formats that the user declared.
        rules: Where the tenant is.
        start_ns: The first arrival is moved to this time, and all others with it.
    """

    def __init__(
        self,
        told: Format | None = None,
        *,
        more: Iterable[Format] = (),
        rules: Sequence[TenantRule] | None = None,
        start_ns: int | None = None,
    ) -> None:
        self._told = told
        known = sorted(formats().values(), key=lambda one: len(one.recognise), reverse=True)
        self._known = [one for one in (*more, *known) if one.recognise]
        self._rules = tuple(parse_rules("", DEFAULT_RULES) if rules is None else rules)
        self._start = start_ns
        self._shift: int | None = None
        self._recognised: dict[tuple[str, ...], Format] = {}

    def record(
        self, row: Mapping[str, Any], position: Hashable | None = None
    ) -> tuple[RequestRecord, int] | None:
        """Make a record of a row; None if the row is of a known format and is no request.

        Args:
            row: The row.
            position: Where it stands in its file. Two equal rows without any id are then two
                requests, and a row that is read twice is still one.

        Returns:
            The record, and how many of its negative times were set to 0.

        Raises:
            RecordError: If it can be none. The message never quotes a text of the row.
        """
        form = self._told or (None if "arrived_ns" in row else self._recognise(row))
        if form is None:
            record = self._own(row)
        else:
            row = _unfold(row, form)
            if any(_any(row, key) != text for key, text in form.equals.items()):
                return None
            record = self._translate(row, form)
        return record, self.finish(record, position)

    def finish(self, record: RequestRecord, position: Hashable | None) -> int:
        """Fill what follows from the rest, and move the record if a start was given.

        Returns:
            How many of its negative times were set to 0.
        """
        clamped = complete(record)
        if self._start is not None:
            if self._shift is None:
                self._shift = self._start - record.arrived_ns
            record.arrived_ns += self._shift
            if record.ended_ns is not None:
                record.ended_ns += self._shift
        if position is not None and not (record.span_id or record.trace_id or record.request_id):
            record.span_id = _identity(record, position)
        return clamped

    def _own(self, row: Mapping[str, Any]) -> RequestRecord:
        """Make a record of a row with the record's column names."""
        record = from_mapping(row)
        record.outcome = record.outcome or of_status(record.status)
        record.tenant = record.tenant or tenant_of(
            self._rules, lambda _: None, record.request_id, record.adapter
        )
        return record

    def _recognise(self, row: Mapping[str, Any]) -> Format | None:
        keys = tuple(row)
        if found := self._recognised.get(keys):
            return found
        for form in self._known:
            if all(_has(row, key) for key in form.recognise):
                if len(self._recognised) < _MOST_SHAPES:
                    self._recognised[keys] = form
                return form
        return None

    def _translate(self, row: Mapping[str, Any], form: Format) -> RequestRecord:
        values: dict[str, Any] = {}
        for column, field in form.fields.items():
            value = (
                _time(row, field, form.clock) if column in _TIMES else _value(row, column, field)
            )
            if value is not None:
                values[column] = value
        _arrival(values)
        record = from_mapping(
            {"source": form.name, "role": form.role, "engine": form.engine, **values},
            source=form.name,
        )
        if form.clock is Clock.STEADY:
            record.inferred = "arrived_ns"
        record.outcome = _outcome(row, form, record)
        record.tenant = record.tenant or tenant_of(
            self._rules,
            lambda rule: _place(row, form, rule),
            record.request_id,
            record.adapter,
        )
        return record


def _identity(record: RequestRecord, position: Hashable) -> str:
    """Tell a row that has no id from all others of its file."""
    told = f"{position} {record.source} {record.arrived_ns} {record.total_seconds} {record.tenant}"
    return hashlib.blake2b(told.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _unfold(row: Mapping[str, Any], form: Format) -> Mapping[str, Any]:
    """Read the JSON that lies in a text of the row."""
    found = dict(row)
    for key in form.embedded:
        text = row.get(key)
        if isinstance(text, str) and len(text) <= _MAX_EMBEDDED:
            try:
                found[key] = json.loads(text)
            except (ValueError, RecursionError):
                found[key] = None
    return found


def _arrival(values: dict[str, Any]) -> None:
    """A row that tells its end and how long it took tells its arrival."""
    if "arrived_ns" not in values and {"ended_ns", "total_seconds"} <= values.keys():
        values["arrived_ns"] = values["ended_ns"] - round(values["total_seconds"] * 1e9)


def _at(row: Mapping[str, Any], path: str) -> object:
    if path in row:
        return row[path]
    found: Any = row
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def _has(row: Mapping[str, Any], alternatives: str) -> bool:
    return any(_at(row, path) is not None for path in alternatives.split("|"))


def _any(row: Mapping[str, Any], alternatives: str) -> object:
    return _first(row, alternatives.split("|"))


def _first(row: Mapping[str, Any], paths: Iterable[str]) -> object:
    for path in paths:
        value = _at(row, path)
        if value is not None and not (isinstance(value, str) and value.strip() in _ABSENT):
            return value
    return None


def _number(value: object) -> float | None:
    """Access logs write numbers as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _value(row: Mapping[str, Any], column: str, field: Field) -> str | int | float | None:
    if field.where and not _at(row, field.where):
        return None
    value = _first(row, field.paths)
    if field.unlike and value == _at(row, field.unlike):
        return None
    kind = COLUMNS[column]
    if kind is str:
        return _text(value, field)
    number = _number(value)
    if number is not None and field.minus:
        less = _number(_first(row, field.minus))
        number = None if less is None else number - less
    if number is None:
        return None
    number *= field.scale
    if kind is float:
        return number
    return int(number) if number.is_integer() and abs(number) < 2**53 else None


def _text(value: object, field: Field) -> str | None:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return None
    if field.pattern is None:
        return value
    hit = field.pattern.fullmatch(value)
    return hit[1] if hit else None


def _time(row: Mapping[str, Any], field: Field, clock: Clock) -> int | None:
    """A time of the row in UTC nanoseconds."""
    value = _first(row, field.paths)
    if isinstance(value, int) and not isinstance(value, bool):
        # Exactly: a float holds no nanoseconds of our days.
        since = value * round(field.scale * 1e9)
    elif (number := _number(value)) is not None:
        if not abs(number) < 1e18:
            return None
        since = round(number * field.scale * 1e9)
    elif isinstance(value, str):
        return instant(value)
    else:
        return None
    if clock is Clock.FILE:
        return ORIGIN_NS + since
    if clock is Clock.STEADY:
        return _of_steady(since)
    return since


def instant(text: str) -> int | None:
    """Read an ISO 8601 date and time, UTC where it names no zone; None if it is none."""
    head, point, rest = text.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(head + rest[len(digits) :])
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    fraction = int(digits[:9].ljust(9, "0")) if point and digits else 0
    return int(moment.timestamp()) * 10**9 + fraction


def _of_steady(since: int) -> int:
    """The wall clock at a time of this machine's monotonic clock.

    Raises:
        RecordError: If it lies ahead: it is of another machine, or of an earlier boot.
    """
    ahead = since - time.monotonic_ns()
    if ahead > 0 or since < 0:
        raise RecordError(
            "no_arrival",
            "its times are those of another machine's monotonic clock, or of before a restart; "
            "follow such a file on the machine that writes it",
        )
    return time.time_ns() + ahead


def _outcome(row: Mapping[str, Any], form: Format, record: RequestRecord) -> str | None:
    for rule in form.outcomes:
        value = _at(row, rule.path)
        if value is not None and rule.pattern.fullmatch(str(value)):
            return of_timeout(record) if rule.outcome == TIMEOUT else rule.outcome
    by_status = of_status(record.status)
    if by_status == "ok" and form.completion and _at(row, form.completion) == "":
        return "aborted"
    return by_status or ("ok" if form.completes else None)


def _place(row: Mapping[str, Any], form: Format, rule: TenantRule) -> str | None:
    field = form.places.get(rule.text)
    if field is None and (any_of := form.places.get(f"{rule.kind}:*")):
        field = Field(tuple(f"{path}.{rule.key}" for path in any_of.paths))
    return None if field is None else _text(_first(row, field.paths), field)
