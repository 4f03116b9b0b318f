"""Spans of gateways and clients by the OpenTelemetry GenAI conventions, old and new names.

https://github.com/open-telemetry/semantic-conventions-genai (status Development). Names stand
newest first where they were renamed; those of OpenInference and OpenLLMetry come last.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.catalogue.spans.model import TIMEOUT, OutcomeMark, SpanKind

MARKS = ("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.system", "gen_ai.provider.name")

TOKENS = MappingProxyType(
    {
        "gen_ai.request.max_tokens": "max_tokens",
        "gen_ai.usage.input_tokens": "input_tokens",
        "gen_ai.usage.prompt_tokens": "input_tokens",
        "llm.token_count.prompt": "input_tokens",
        "llm.usage.prompt_tokens": "input_tokens",
        "gen_ai.usage.output_tokens": "output_tokens",
        "gen_ai.usage.completion_tokens": "output_tokens",
        "llm.token_count.completion": "output_tokens",
        "llm.usage.completion_tokens": "output_tokens",
        "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
        "gen_ai.usage.cache_read_input_tokens": "cached_tokens",
        "gen_ai.usage.cached_tokens": "cached_tokens",
        "llm.token_count.prompt_details.cache_read": "cached_tokens",
    }
)
"""Numbers of tokens; engines write them under the same names."""

LATENCIES = MappingProxyType(
    {
        "gen_ai.latency.time_to_first_token": "ttft_seconds",
        "gen_ai.latency.e2e": "total_seconds",
        "gen_ai.latency.time_in_queue": "queue_seconds",
        "gen_ai.latency.time_in_model_prefill": "prefill_seconds",
        "gen_ai.latency.time_in_model_decode": "decode_seconds",
    }
)
"""Times that engines write; none of the conventions has them."""

ATTRIBUTES = MappingProxyType(
    {
        "gen_ai.response.model": "model",
        "gen_ai.request.model": "model",
        "llm.model_name": "model",
        **TOKENS,
        "gen_ai.response.time_to_first_chunk": "ttft_seconds",
        "gen_ai.server.time_to_first_token": "ttft_seconds",
        "gen_ai.response.finish_reasons": "finish_reason",
        "http.response.status_code": "status",
        "http.status_code": "status",
        "http.request.header.x-request-id": "request_id",
        "http.request.header.x_request_id": "request_id",
        "http.request.resend_count": "attempt",
    }
)

FINISH_REASON = (re.compile(r'\["?([^"\],]*).*'), re.compile(r"(.+)"))
"""Some write the list as JSON in a text."""

NO_REQUEST = MappingProxyType(
    {
        "gen_ai.operation.name": (
            *("create_agent", "invoke_agent", "invoke_workflow", "plan", "execute_tool"),
            *("retrieval", "create_memory", "search_memory", "update_memory", "delete_memory"),
        ),
    }
)
"""Operations that hold requests, or have none."""

OUTCOMES = (
    OutcomeMark("error.type", re.compile(r"408|504|.*[Tt]ime(d_)?[Oo]ut.*"), TIMEOUT),
    OutcomeMark(
        "error.type", re.compile(r"429|503|.*([Rr]ate_?[Ll]imit|[Oo]verload).*"), "rejected"
    ),
    OutcomeMark("error.type", re.compile(r"499|.*([Cc]ancel|[Dd]isconnect|[Aa]bort).*"), "aborted"),
)

KIND = SpanKind(
    source="otlp",
    role="gateway",
    marks=(("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.system", "llm.model_name"),),
    attributes=ATTRIBUTES,
    without=NO_REQUEST,
    patterns=MappingProxyType({"finish_reason": FINISH_REASON}),
    outcomes=OUTCOMES,
    # A program's own span of the same call would otherwise stand beside its gateway's.
    needs_tenant=True,
)
