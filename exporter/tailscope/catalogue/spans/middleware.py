"""Spans of ``tailscope.middleware``, which names its attributes after the record's columns."""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.catalogue.spans.model import OutcomeMark, SpanKind

KIND = SpanKind(
    source="middleware",
    role="gateway",
    marks=(("tailscope.middleware",),),
    attributes=MappingProxyType(
        {
            "tailscope.time_to_first_chunk": "ttft_seconds",
            "http.response.status_code": "status",
            "http.request.header.x-request-id": "request_id",
            "tailscope.session": "session",
            "tailscope.attempt": "attempt",
        }
    ),
    # Whatever header it was told to take.
    places=MappingProxyType({"header:*": ("tailscope.tenant",)}),
    outcomes=tuple(
        OutcomeMark("tailscope.outcome", re.compile(outcome), outcome)
        for outcome in ("ok", "error", "rejected", "aborted", "queue_timeout", "generation_timeout")
    ),
)
