"""LiteLLM's standard logging payload, one JSON object a line, as its sinks write it.

Seen in LiteLLM 1.110. Its ``trace_id`` is no W3C trace: it holds the attempts of one call together.
The response's id is vLLM's own, so that the rows meet by it.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.records.formats.model import TIMEOUT, Field, Format, OutcomeRule

_ERROR, _CODE = "error_information.error_class", "error_information.error_code"

FORMAT = Format(
    name="litellm",
    title="LiteLLM standard logging payload",
    role="gateway",
    recognise=("call_type", "startTime", "model_group"),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(("startTime",)),
            "ended_ns": Field(("endTime",)),
            "request_id": Field(("id",), pattern=re.compile(r"(?:chatcmpl-|cmpl-)?(.+)")),
            "model": Field(("model_group", "model")),
            # Of an answer in one piece it is the end, and so it is where no token came.
            "ttft_seconds": Field(
                ("completionStartTime",), minus=("startTime",), where="stream", unlike="endTime"
            ),
            "total_seconds": Field(("endTime",), minus=("startTime",)),
            # Of a call that failed it writes 0 for what it does not know.
            "input_tokens": Field(("prompt_tokens",), where="prompt_tokens"),
            "output_tokens": Field(("completion_tokens",), where="completion_tokens"),
            "max_tokens": Field(("model_parameters.max_tokens",)),
            "status": Field((_CODE,)),
            "session": Field(("trace_id",)),
        }
    ),
    outcomes=(
        OutcomeRule(_ERROR, re.compile(".*Timeout.*"), TIMEOUT),
        OutcomeRule(_ERROR, re.compile("RateLimitError|ServiceUnavailableError"), "rejected"),
        OutcomeRule(_ERROR, re.compile(".*(Disconnect|Cancelled).*"), "aborted"),
        OutcomeRule(_CODE, re.compile("499"), "aborted"),
        OutcomeRule("status", re.compile("success"), "ok"),
    ),
    places=MappingProxyType(
        {
            "litellm:team": Field(
                ("metadata.user_api_key_team_alias", "metadata.user_api_key_team_id")
            ),
            "litellm:key": Field(("metadata.user_api_key_alias",)),
            "litellm:org": Field(("metadata.user_api_key_org_id",)),
            "litellm:user": Field(("metadata.user_api_key_user_id",)),
            "litellm:end-user": Field(("metadata.user_api_key_end_user_id", "end_user")),
        }
    ),
)
