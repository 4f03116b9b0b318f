"""Rows as other people's files have them, and the record that each becomes."""

from __future__ import annotations

import copy
import json
from typing import Any

from tailscope.records.record import RequestRecord
from tailscope.records.translation import ORIGIN_NS, Translator

NOW = 1_796_000_000
NOW_NS = NOW * 10**9
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"

SGLANG: dict[str, Any] = {
    "request_parameters": json.dumps(
        {
            "text": "a prompt",
            "rid": "r1",
            "priority": 2,
            "lora_path": "adapter-a",
            "custom_labels": {"tenant": "acme", "tier": "gold"},
            "sampling_params": {"max_new_tokens": 32},
            "external_trace_header": {"traceparent": TRACEPARENT},
        }
    ),
    "id": "r1",
    "prompt_tokens": 100,
    "completion_tokens": 11,
    "cached_tokens": 64,
    "finish_reason": {"type": "length", "length": 32},
    "e2e_latency": 1.5,
    "queue_time": 0.25,
    "forward_entry_time": 5000.5,
    "prefill_finished_time": 5000.75,
    "request_received_ts": NOW + 0.5,
    "request_finished_ts": NOW + 2.0,
    "first_token_latency": 0.625,
    "dp_rank": 0,
}
DYNAMO: dict[str, Any] = {
    "schema": "dynamo.request.trace.v1",
    "event_type": "request_end",
    "event_time_unix_ms": NOW * 1000 + 2000,
    "request": {
        "request_id": "d1",
        "x_request_id": "client-1",
        "model": "m",
        "input_tokens": 100,
        "output_tokens": 11,
        "cached_tokens": 64,
        "request_received_ms": NOW * 1000 + 500,
        "prefill_wait_time_ms": 250.0,
        "prefill_time_ms": 125.0,
        "ttft_ms": 500.0,
        "total_time_ms": 1500.0,
    },
}
LITELLM: dict[str, Any] = {
    "id": "chatcmpl-r1",
    "trace_id": "5f3c0a52-0d0c-4a4e-9d0e-0d7c6a1f0b11",
    "call_type": "acompletion",
    "stream": True,
    "status": "success",
    "startTime": NOW + 0.5,
    "endTime": NOW + 2.0,
    "completionStartTime": NOW + 1.0,
    "model": "openai/m",
    "model_group": "m",
    "prompt_tokens": 100,
    "completion_tokens": 11,
    "model_parameters": {"max_tokens": 32},
    "messages": [{"content": "a prompt"}],
    "metadata": {
        "user_api_key_hash": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
        "user_api_key_alias": "key-of-acme",
        "user_api_key_team_alias": "acme",
        "user_api_key_team_id": "t-1",
        "user_api_key_end_user_id": "jane",
    },
}
ENVOY: dict[str, Any] = {
    "start_time": "2026-11-30T00:53:20.500Z",
    "duration": 1500,
    "response_code": 200,
    "response_flags": "-",
    "x_request_id": "client-1",
    "traceparent": TRACEPARENT,
    "authority": "secret.example",
    "tenant": "acme",
}
NGINX: dict[str, Any] = {
    "msec": f"{NOW + 2}.000",
    "request_time": "1.500",
    "status": "200",
    "http_x_request_id": "client-1",
    "http_traceparent": TRACEPARENT,
    "http_x_tenant_id": "acme",
    "upstream_header_time": "0.001",
    "request_uri": "/v1/completions?key=secret",
}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sglang": (
        SGLANG,
        {
            "role": "engine",
            "engine": "sglang",
            "arrived_ns": NOW_NS + 500_000_000,
            "ended_ns": NOW_NS + 2 * 10**9,
            "trace_id": TRACE,
            "parent_span_id": SPAN,
            "request_id": "r1",
            "tenant": "acme",
            "queue_seconds": 0.25,
            "prefill_seconds": 0.25,
            "ttft_seconds": 0.625,
            "frontend_seconds": 0.125,
            "total_seconds": 1.5,
            "input_tokens": 100,
            "cached_tokens": 64,
            "output_tokens": 11,
            "max_tokens": 32,
            "outcome": "ok",
            "finish_reason": "length",
            "priority": 2,
            "adapter": "adapter-a",
        },
    ),
    "dynamo": (
        DYNAMO,
        {
            "role": "engine",
            "engine": "dynamo",
            "arrived_ns": NOW_NS + 500_000_000,
            "ended_ns": NOW_NS + 2 * 10**9,
            "request_id": "client-1",
            "model": "m",
            "queue_seconds": 0.25,
            "prefill_seconds": 0.125,
            "ttft_seconds": 0.5,
            "decode_seconds": 1.0,
            "frontend_seconds": 0.125,
            "total_seconds": 1.5,
            "input_tokens": 100,
            "cached_tokens": 64,
            "output_tokens": 11,
            "outcome": "ok",
        },
    ),
    "litellm": (
        LITELLM,
        {
            "role": "gateway",
            "arrived_ns": NOW_NS + 500_000_000,
            "request_id": "r1",
            "ended_ns": NOW_NS + 2 * 10**9,
            "tenant": "acme",
            "model": "m",
            "ttft_seconds": 0.5,
            "total_seconds": 1.5,
            "input_tokens": 100,
            "output_tokens": 11,
            "max_tokens": 32,
            "outcome": "ok",
            "session": "5f3c0a52-0d0c-4a4e-9d0e-0d7c6a1f0b11",
        },
    ),
    "envoy": (
        ENVOY,
        {
            "role": "gateway",
            "arrived_ns": NOW_NS + 500_000_000,
            "request_id": "client-1",
            "ended_ns": NOW_NS + 2 * 10**9,
            "tenant": "acme",
            "trace_id": TRACE,
            "parent_span_id": SPAN,
            "total_seconds": 1.5,
            "status": 200,
            "outcome": "ok",
        },
    ),
    "nginx": (
        NGINX,
        {
            "role": "gateway",
            "arrived_ns": NOW_NS + 500_000_000,
            "request_id": "client-1",
            "ended_ns": NOW_NS + 2 * 10**9,
            "tenant": "acme",
            "trace_id": TRACE,
            "parent_span_id": SPAN,
            "total_seconds": 1.5,
            "status": 200,
            "outcome": "ok",
        },
    ),
    "azure": (
        {
            "TIMESTAMP": "2023-11-16 18:17:03.9799600",
            "ContextTokens": "4808",
            "GeneratedTokens": "10",
        },
        {
            "role": "gateway",
            "arrived_ns": 1_700_158_623_979_960_000,
            "input_tokens": 4808,
            "output_tokens": 10,
        },
    ),
    "mooncake": (
        {"timestamp": 1500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]},
        {
            "role": "gateway",
            "arrived_ns": ORIGIN_NS + 1_500_000_000,
            "input_tokens": 6758,
            "output_tokens": 500,
        },
    ),
    "bailian": (
        {
            "chat_id": 7,
            "parent_chat_id": 3,
            "timestamp": 1.5,
            "input_length": 10,
            "output_length": 5,
            "type": "text",
            "turn": 2,
            "hash_ids": [1],
        },
        {
            "role": "gateway",
            "arrived_ns": ORIGIN_NS + 1_500_000_000,
            "request_id": "7",
            "input_tokens": 10,
            "output_tokens": 5,
        },
    ),
    "burstgpt": (
        {
            "Timestamp": "45",
            "Model": "ChatGPT",
            "Request tokens": "472",
            "Response tokens": "18",
            "Total tokens": "490",
            "Log Type": "Conversation log",
        },
        {
            "role": "gateway",
            "arrived_ns": ORIGIN_NS + 45 * 10**9,
            "model": "ChatGPT",
            "input_tokens": 472,
            "output_tokens": 18,
        },
    ),
}


def one(row: dict[str, Any], **settings: Any) -> RequestRecord:
    found = Translator(**settings).record(row)
    assert found is not None
    return found[0]


def with_(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A copy with other values; ``__`` stands for a level."""
    changed = copy.deepcopy(row)
    for path, value in more.items():
        *levels, last = path.split("__")
        place = changed
        for level in levels:
            place = place.setdefault(level, {})
        place[last] = value
    return changed
