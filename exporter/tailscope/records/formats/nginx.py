"""nginx's access log with ``log_format ... escape=json``, keys named like nginx's variables.

A line is written at the end of a request: ``msec`` is that time. ``upstream_header_time`` is that
of the headers, which servers send before the first token, so it is not taken for the first token.
Where the client leaves a stream, the status stays 200: ``request_completion`` is then empty.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.records.formats.model import Field, Format

_TRACEPARENT = ("http_traceparent", "traceparent")

FORMAT = Format(
    name="nginx",
    title="nginx access log in JSON",
    role="gateway",
    recognise=("msec", "request_time", "status"),
    fields=MappingProxyType(
        {
            "ended_ns": Field(("msec",)),
            "total_seconds": Field(("request_time",)),
            "trace_id": Field(_TRACEPARENT, pattern=re.compile(r"\w\w-(\w{32})-\w{16}-\w\w")),
            "parent_span_id": Field(_TRACEPARENT, pattern=re.compile(r"\w\w-\w{32}-(\w{16})-\w\w")),
            "request_id": Field(("http_x_request_id", "request_id")),
            "status": Field(("status",)),
            "tenant": Field(("tenant", "http_x_tenant_id", "http_x_tenant")),
        }
    ),
    completion="request_completion",
)
