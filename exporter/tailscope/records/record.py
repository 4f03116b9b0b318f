"""The request record: one row per request that an engine or a gateway saw.

Times are UTC nanoseconds, durations seconds; what is unknown is ``None``, never 0. A field that is
not here is dropped where it is parsed: no prompt, completion, header or key can reach the store.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_type_hints

ROLES = ("engine", "gateway")
OUTCOMES = ("ok", "error", "rejected", "aborted", "queue_timeout", "generation_timeout")

UNKNOWN_TENANT = "unknown"
"""Name under which requests without a tenant are counted."""

MAX_TEXT = 256
"""Longest text of a column, in characters: identifiers are shorter, prompts are longer."""

EARLIEST_NS = 10**17
"""Arrivals before this (1973) are no nanoseconds, or of a clock that is not set."""

_MAX_INT = 2**63 - 1
MAX_MEASURED = 1e8
"""Durations and counts beyond this are none: it is 3 years, and no context window is as long."""
_IDS = ("span_id", "parent_span_id", "trace_id")
_COUNTS = ("input_tokens", "cached_tokens", "output_tokens", "max_tokens", "attempt")
_DURATIONS = (
    "frontend_seconds",
    "queue_seconds",
    "prefill_seconds",
    "decode_seconds",
    "ttft_seconds",
    "total_seconds",
)


class RecordError(ValueError):
    """A row cannot become a request record.

    Attributes:
        reason: Short, bounded word for a metric label.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class RequestRecord:
    """One request as one observer saw it.

    Attributes:
        source: Who wrote it: an engine, a gateway, ``file``.
        role: ``engine`` (knows the stages) or ``gateway`` (knows tenant, attempts, client view).
        arrived_ns: Wall clock at arrival, UTC nanoseconds.
        ended_ns: Wall clock at the end, UTC nanoseconds.
        span_id: Its own span, 16 hexadecimal digits; the row's identity where it is known. A line
            of a file that has no id at all has one of its place there.
        parent_span_id: The span that called it: the gateway's, for an engine row.
        trace_id: 32 hexadecimal digits.
        request_id: The id that the client sent.
        tenant: Whose request it was.
        model: Served model.
        server: Engine instance, ``host:port``.
        engine: Name of the engine in the catalogue.
        frontend_seconds: ttft - queue - prefill: time before the engine's queue.
        queue_seconds: Time in the engine's queue.
        prefill_seconds: From the first step to the first token.
        decode_seconds: From the first token to the last.
        ttft_seconds: From arrival to the first token.
        total_seconds: From arrival to the end.
        input_tokens: Prompt tokens, cached ones included.
        cached_tokens: Prompt tokens that came from the prefix cache.
        output_tokens: Generated tokens.
        max_tokens: Limit that the request asked for.
        outcome: One of ``OUTCOMES``.
        status: HTTP status.
        finish_reason: The engine's own word.
        session: Key that the attempts of one logical call share.
        attempt: 1 for the first attempt.
        priority: Priority that the request asked for.
        adapter: LoRA adapter.
        inferred: Names of the columns that were inferred, not told, separated by commas.
    """

    source: str
    role: str
    arrived_ns: int
    ended_ns: int | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    tenant: str | None = None
    model: str | None = None
    server: str | None = None
    engine: str | None = None
    frontend_seconds: float | None = None
    queue_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    ttft_seconds: float | None = None
    total_seconds: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    max_tokens: int | None = None
    outcome: str | None = None
    status: int | None = None
    finish_reason: str | None = None
    session: str | None = None
    attempt: int | None = None
    priority: int | None = None
    adapter: str | None = None
    inferred: str | None = None


def _columns() -> dict[str, type]:
    hints = get_type_hints(RequestRecord)
    found: dict[str, type] = {}
    for field in dataclasses.fields(RequestRecord):
        hint = hints[field.name]
        found[field.name] = next(
            kind for kind in (str, float, int) if kind in (hint, *getattr(hint, "__args__", ()))
        )
    return found


COLUMNS: dict[str, type] = _columns()
"""Column name to ``str``, ``int`` or ``float``, in the order of the record."""


MEASURED = (*_DURATIONS, *_COUNTS)
"""Columns whose values lie between 0 and ``MAX_MEASURED``."""

_measured = attrgetter(*MEASURED)


def complete(record: RequestRecord) -> int:
    """Fill what follows from the rest, and take out what cannot be.

    ``frontend_seconds`` is ttft - queue - prefill where all three are known. Engines take stage
    times from two clocks, so that small negative values are real: they become 0. Negative counts,
    durations of years and counts of that size are no measurements: they become null.

    Returns:
        How many negative times were set to 0.
    """
    ttft, queue, prefill = record.ttft_seconds, record.queue_seconds, record.prefill_seconds
    if (
        record.frontend_seconds is None
        and ttft is not None
        and queue is not None
        and prefill is not None
    ):
        record.frontend_seconds = ttft - queue - prefill
    if record.total_seconds is None and record.ended_ns is not None:
        record.total_seconds = (record.ended_ns - record.arrived_ns) / 1e9
    clamped = 0
    for value in _measured(record):
        if value is not None and not 0 <= value <= MAX_MEASURED:
            clamped = _mend(record)
            break
    if record.ended_ns is None and record.total_seconds is not None:
        ended = record.arrived_ns + int(record.total_seconds * 1e9)
        record.ended_ns = ended if ended <= _MAX_INT else None
    return clamped


def _mend(record: RequestRecord) -> int:
    clamped = 0
    for name in _DURATIONS:
        value = getattr(record, name)
        if value is not None and not 0 <= value <= MAX_MEASURED:
            setattr(record, name, 0.0 if value < 0 else None)
            clamped += value < 0
    for name in _COUNTS:
        value = getattr(record, name)
        if value is not None and not 0 <= value <= MAX_MEASURED:
            setattr(record, name, None)
    return clamped


def printable(text: str) -> str:
    """Replace control characters and what is no UTF-8: texts end up on terminals and pages."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def _text(name: str, value: object) -> str | None:
    if not isinstance(value, str):
        raise RecordError("type", f"{name} is {type(value).__name__}; it must be a string")
    if len(value) > MAX_TEXT:
        raise RecordError(
            "text_too_long",
            f"{name} has {len(value)} characters; at most {MAX_TEXT} are kept, so that no prompt "
            "can be stored by mistake",
        )
    return printable(value) or None


def _identifier(name: str, value: object) -> str | None:
    """Write an id as OpenTelemetry does, so that those of two observers meet."""
    text = _text(name, value)
    return text.lower() if text and text.strip("0") else None


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError("type", f"{name} is {type(value).__name__}; it must be a whole number")
    if isinstance(value, float) and not value.is_integer():
        raise RecordError("type", f"{name} is {value}; it must be a whole number")
    if abs(value) > _MAX_INT:
        raise RecordError("range", f"{name} must fit into 64 bits")
    return int(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError("type", f"{name} is {type(value).__name__}; it must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RecordError("range", f"{name} is {number}; it must be a finite number")
    return number


def from_mapping(row: Mapping[str, Any], *, source: str = "file") -> RequestRecord:
    """Make a record from a row with the record's column names; other keys are dropped.

    Args:
        row: For example a line of a JSONL file.
        source: Value of ``source`` where the row has none.

    Raises:
        RecordError: If a value has the wrong type or range, or ``arrived_ns`` is missing. The
            message names the column and never quotes a text.
    """
    values: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        value = row.get(name)
        if value is None:
            continue
        if name in _IDS:
            values[name] = _identifier(name, value)
        elif kind is str:
            values[name] = _text(name, value)
        elif kind is int:
            values[name] = _integer(name, value)
        else:
            values[name] = _number(name, value)
    if values.get("arrived_ns") is None:
        raise RecordError("no_arrival", "arrived_ns is missing; it is needed, in UTC nanoseconds")
    if values["arrived_ns"] < EARLIEST_NS:
        raise RecordError(
            "range", f"arrived_ns is {values['arrived_ns']}; it must be UTC in nanoseconds"
        )
    values["source"] = values.get("source") or source
    values["role"] = values.get("role") or "gateway"
    if values["role"] not in ROLES:
        raise RecordError("role", f"role must be one of {', '.join(ROLES)}")
    if values.get("outcome") is not None and values["outcome"] not in OUTCOMES:
        raise RecordError("outcome", f"outcome must be one of {', '.join(OUTCOMES)}")
    return RequestRecord(**values)
