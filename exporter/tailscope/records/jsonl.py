"""Request records as JSON lines: one object a line, with the record's column names."""

from __future__ import annotations

import json
from typing import Any

from tailscope.records.record import RecordError, RequestRecord, complete, from_mapping

MAX_LINE = 1 << 20
"""Longest line that is parsed, in bytes."""


def _no_constant(name: str) -> Any:
    raise RecordError("range", f"{name} is no JSON number")


def load_line(line: bytes) -> dict[str, Any]:
    """Read one line as a JSON object.

    Raises:
        RecordError: If it is none. The message never quotes the line.
    """
    if len(line) > MAX_LINE:
        raise RecordError("too_long", f"the line has {len(line)} bytes; at most {MAX_LINE}")
    try:
        row = json.loads(line, parse_constant=_no_constant)
    except RecordError:
        raise
    except (ValueError, RecursionError) as error:
        # The position is enough: the text of the error may quote the line.
        where = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise RecordError("json", f"the line is no JSON{where}") from None
    if not isinstance(row, dict):
        raise RecordError("json", f"the line is a JSON {type(row).__name__}, not an object")
    return row


def parse_line(line: bytes, *, source: str = "file") -> tuple[RequestRecord, int]:
    """Parse one line with the record's column names.

    Returns:
        The record, and how many of its negative times were set to 0.

    Raises:
        RecordError: If the line is no JSON object or no record. The message never quotes the line.
    """
    record = from_mapping(load_line(line), source=source)
    return record, complete(record)
