"""SGLang's root span of a request (``--enable-trace --otlp-traces-endpoint``).

Its name holds the request's id, so it is known by its attributes; its child spans have none of
them. Its prefill time counts from the dispatch and holds the queue, unless the queue is told as
well. Seen in SGLang 0.5.23.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.catalogue.spans.genai import FINISH_REASON
from tailscope.catalogue.spans.model import OutcomeMark, SpanKind

KIND = SpanKind(
    source="sglang",
    role="engine",
    engine="sglang",
    marks=(("gen_ai.latency.e2e", "gen_ai.latency.time_to_first_token"),),
    attributes=MappingProxyType(
        {
            "gen_ai.request.id": "request_id",
            "rid": "request_id",
            "gen_ai.request.max_tokens": "max_tokens",
            "gen_ai.response.model": "model",
            "gen_ai.response.finish_reasons": "finish_reason",
            "gen_ai.usage.prompt_tokens": "input_tokens",
            "gen_ai.usage.input_tokens": "input_tokens",
            "gen_ai.usage.cached_tokens": "cached_tokens",
            "gen_ai.usage.completion_tokens": "output_tokens",
            "gen_ai.usage.output_tokens": "output_tokens",
            "gen_ai.latency.time_to_first_token": "ttft_seconds",
            "gen_ai.latency.e2e": "total_seconds",
            "gen_ai.latency.time_in_queue": "queue_seconds",
            "gen_ai.latency.time_in_model_prefill": "prefill_seconds",
            "gen_ai.latency.time_in_model_decode": "decode_seconds",
        }
    ),
    patterns=MappingProxyType({"finish_reason": FINISH_REASON}),
    outcomes=(OutcomeMark("gen_ai.response.finish_reasons", re.compile(".*abort.*"), "aborted"),),
    needs=MappingProxyType({"prefill_seconds": "queue_seconds"}),
)
