"""Envoy's access log in JSON, with the keys of Envoy's and Istio's documentation.

Its times to the first byte are those of the headers, which servers send before the first token.
Response flags: https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.records.formats.model import MILLISECONDS, TIMEOUT, Field, Format, OutcomeRule

_TRACEPARENT = ("traceparent", "http_traceparent")


def _flag(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(?:.*,)?(?:{'|'.join(names)})(?:,.*)?")


FORMAT = Format(
    name="envoy",
    title="Envoy access log in JSON",
    role="gateway",
    recognise=("start_time", "duration", "response_code", "response_flags"),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(("start_time",)),
            "total_seconds": Field(("duration",), MILLISECONDS),
            "trace_id": Field(_TRACEPARENT, pattern=re.compile(r"\w\w-(\w{32})-\w{16}-\w\w")),
            "parent_span_id": Field(_TRACEPARENT, pattern=re.compile(r"\w\w-\w{32}-(\w{16})-\w\w")),
            "request_id": Field(("x_request_id", "request_id")),
            "model": Field(("model", "response_model", "request_model")),
            "input_tokens": Field(("input_tokens", "llm_input_token")),
            "output_tokens": Field(("output_tokens", "llm_output_token")),
            "status": Field(("response_code",)),
            "attempt": Field(("attempt",)),
            "tenant": Field(("tenant", "x_tenant_id")),
        }
    ),
    outcomes=(
        OutcomeRule("response_flags", _flag("DC", "DownstreamConnectionTermination"), "aborted"),
        OutcomeRule("response_flags", _flag("UT", "SI", "DT"), TIMEOUT),
        OutcomeRule("response_flags", _flag("UO", "RL", "UH", "OM"), "rejected"),
        OutcomeRule("response_flags", _flag("UC", "UF", "LR", "UR"), "error"),
    ),
)
