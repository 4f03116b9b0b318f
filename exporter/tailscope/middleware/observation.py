"""What is known of one request, and its trace context."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_NO_TRACE, _NO_SPAN = b"0" * 32, b"0" * 16
_SAMPLED = 1


class Context(NamedTuple):
    """A span of ours and where it hangs.

    Attributes:
        trace: 16 bytes.
        span: 8 bytes: ours.
        parent: 8 bytes, or none: the caller's span.
        header: Value of ``traceparent`` for the server.
    """

    trace: bytes
    span: bytes
    parent: bytes
    header: bytes


class Observation(NamedTuple):
    """One request that is over.

    Attributes:
        context: Its place in the trace.
        arrived_ns: Wall clock, UTC nanoseconds.
        total_ns: From the arrival to the end, by the monotonic clock.
        first_ns: To the first chunk of the body; None if none came.
        status: HTTP status; None if none was sent.
        outcome: What the status does not tell: ``aborted``, ``error``, ``rejected``; else None.
        tenant: By its header.
        request_id: The client's ``X-Request-Id``.
        session: Key that the attempts of one call share.
        attempt: 1 for the first.
    """

    context: Context
    arrived_ns: int
    total_ns: int
    first_ns: int | None
    status: int | None
    outcome: str | None
    tenant: str | None
    request_id: str | None
    session: str | None
    attempt: int | None


def continue_trace(traceparent: bytes | None) -> Context:
    """Hang a span of ours into the caller's trace, or begin one.

    The caller's sampling flag is passed on; a trace that begins here is sampled, for the engine
    would otherwise send no span.
    """
    span = secrets.token_bytes(8)
    hit = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if hit is None or hit[1] == _NO_TRACE or hit[2] == _NO_SPAN:
        trace = secrets.token_bytes(16)
        return Context(trace, span, b"", b"00-%s-%s-01" % (_hex(trace), _hex(span)))
    header = b"00-%s-%s-%s" % (hit[1], _hex(span), hit[3])
    return Context(bytes.fromhex(hit[1].decode()), span, bytes.fromhex(hit[2].decode()), header)


def _hex(data: bytes) -> bytes:
    return data.hex().encode()
