"""SGLang's ``--export-metrics-to-file``: ``sglang-request-metrics-YYYYMMDD_HH.log``.

Seen in SGLang 0.5.23 (``srt/observability``). ``request_parameters`` may hold the prompt: only what
is named here is looked at. Times need ``--enable-metrics``.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.records.formats.model import Field, Format, OutcomeRule

FORMAT = Format(
    name="sglang",
    title="SGLang --export-metrics-to-file",
    role="engine",
    engine="sglang",
    recognise=("request_parameters", "id", "prompt_tokens"),
    embedded=("request_parameters",),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(("request_received_ts",)),
            "ended_ns": Field(("request_finished_ts", "response_sent_to_client_ts")),
            "request_id": Field(("id",)),
            "trace_id": Field(
                ("request_parameters.external_trace_header.traceparent",),
                pattern=re.compile(r"\w\w-(\w{32})-\w{16}-\w\w"),
            ),
            "parent_span_id": Field(
                ("request_parameters.external_trace_header.traceparent",),
                pattern=re.compile(r"\w\w-\w{32}-(\w{16})-\w\w"),
            ),
            "queue_seconds": Field(("queue_time",)),
            # Both are of one clock, the scheduler's.
            "prefill_seconds": Field(("prefill_finished_time",), minus=("forward_entry_time",)),
            "ttft_seconds": Field(("first_token_latency",)),
            "total_seconds": Field(("e2e_latency",)),
            "input_tokens": Field(("prompt_tokens",)),
            "cached_tokens": Field(("cached_tokens",)),
            "output_tokens": Field(("completion_tokens",)),
            "max_tokens": Field(("request_parameters.sampling_params.max_new_tokens",)),
            "finish_reason": Field(("finish_reason.type",)),
            "priority": Field(("request_parameters.priority",)),
            "adapter": Field(("request_parameters.lora_path",)),
        }
    ),
    outcomes=(OutcomeRule("finish_reason.type", re.compile("abort"), "aborted"),),
    completes=True,
    places=MappingProxyType(
        {
            "label:tenant": Field(("request_parameters.custom_labels.tenant",)),
            "label:*": Field(("request_parameters.custom_labels",)),
        }
    ),
)
