"""When two rows of engines are two views of one request, and what one gives the other.

An engine may tell of a request in a span and in a line of a file that it writes.
"""

from __future__ import annotations

import dataclasses

from tailscope.records.record import COLUMNS, RequestRecord

TOLERANCE_NS = 2 * 10**9
"""Two views of one request began no farther apart; where an id is used again, it was later."""

KEPT = ("source", "role", "arrived_ns", "ended_ns", "span_id", "inferred")
"""What a row never takes from another view: what it is, and what was inferred of it."""

GIVEN = tuple(name for name in COLUMNS if name not in KEPT)
"""What it takes where it does not know it."""

_ALIKE = ("trace_id", "engine")


def observer(record: RequestRecord) -> tuple[str, bool]:
    """Who told it: no two rows of one observer are views of the same request."""
    return record.source, record.span_id is None


def same_request(one: RequestRecord, other: RequestRecord) -> bool:
    """Whether two rows of different observers, one without a span, are of one request.

    They have the same request id, or the same trace where one has no request id.
    """
    ids = one.request_id, other.request_id
    same = ids[0] == ids[1] if None not in ids else None not in (one.trace_id, other.trace_id)
    if not same or None not in (one.span_id, other.span_id):
        return False
    # A span may name its server by the id of a process, and a file by its address.
    names = _ALIKE if one.trace_id and other.trace_id else (*_ALIKE, "server")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    near = abs(one.arrived_ns - other.arrived_ns) <= TOLERANCE_NS
    return near and all(None in pair or pair[0] == pair[1] for pair in pairs)


def merged(one: RequestRecord, other: RequestRecord) -> RequestRecord:
    """Return the one with the span, with what the other one knows; not well, if one says so."""
    own, twin = (other, one) if one.span_id is None else (one, other)
    found = {name: getattr(twin, name) for name in GIVEN if getattr(own, name) is None}
    if own.outcome == "ok" and twin.outcome not in (None, "ok"):
        found["outcome"] = twin.outcome
    return dataclasses.replace(own, **found)
