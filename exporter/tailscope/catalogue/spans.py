"""Which span and resource attributes make request records, for producers that are no engine.

Names are those of the OpenTelemetry GenAI conventions, newest first where they were renamed.
"""

from __future__ import annotations

from types import MappingProxyType

TENANT_ATTRIBUTES = ("tailscope.tenant", "tenant.id", "tenant", "enduser.id")
"""Span attributes, then resource attributes, that name the tenant; the first that is there wins."""

GATEWAY_MARKS = ("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.system")
"""A span with a tenant and one of these is a gateway's or a client's view of a request."""

GATEWAY_ATTRIBUTES = MappingProxyType(
    {
        "gen_ai.response.model": "model",
        "gen_ai.request.model": "model",
        "gen_ai.request.max_tokens": "max_tokens",
        "gen_ai.usage.input_tokens": "input_tokens",
        "gen_ai.usage.prompt_tokens": "input_tokens",
        "gen_ai.usage.output_tokens": "output_tokens",
        "gen_ai.usage.completion_tokens": "output_tokens",
        "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
        "gen_ai.server.time_to_first_token": "ttft_seconds",
        "gen_ai.response.finish_reasons": "finish_reason",
        "http.response.status_code": "status",
        "http.status_code": "status",
        "http.request.header.x-request-id": "request_id",
    }
)
"""Span attribute to column of the request record."""

SERVER_ATTRIBUTES = ("server.address", "service.instance.id")
"""Resource attributes that name the engine's instance, where no engine is scraped."""
