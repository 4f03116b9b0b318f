"""NVIDIA Dynamo's request trace (``DYN_REQUEST_TRACE=1``, ``DYN_REQUEST_TRACE_SINKS=jsonl``).

Rows without session headers are compact: they have sizes and no times. Seen in Dynamo 1.6.1; an
older release wrote the same rows as ``dynamo.agent.trace.v1``, and some sinks wrap them in
``event``.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.records.formats.model import MILLISECONDS, Field, Format, OutcomeRule


def _at(*names: str, scale: float = 1.0, minus: tuple[str, ...] = ()) -> Field:
    both = tuple(f"{frame}request.{name}" for name in names for frame in ("", "event."))
    less = tuple(f"{frame}request.{name}" for name in minus for frame in ("", "event."))
    return Field(both, scale, less)


FORMAT = Format(
    name="dynamo",
    title="Dynamo request trace",
    role="engine",
    engine="dynamo",
    recognise=("event_type|event.event_type", "request.request_id|event.request.request_id"),
    equals=MappingProxyType({"event_type|event.event_type": "request_end"}),
    fields=MappingProxyType(
        {
            "arrived_ns": _at("request_received_ms", scale=MILLISECONDS),
            "ended_ns": Field(("event_time_unix_ms", "event.event_time_unix_ms"), MILLISECONDS),
            "request_id": _at("x_request_id", "request_id"),
            "model": _at("model"),
            "queue_seconds": _at("prefill_wait_time_ms", scale=MILLISECONDS),
            "prefill_seconds": _at("prefill_time_ms", scale=MILLISECONDS),
            "decode_seconds": _at("total_time_ms", scale=MILLISECONDS, minus=("ttft_ms",)),
            "ttft_seconds": _at("ttft_ms", scale=MILLISECONDS),
            "total_seconds": _at("total_time_ms", scale=MILLISECONDS),
            "input_tokens": _at("input_tokens", "replay.input_length"),
            "cached_tokens": _at("cached_tokens"),
            "output_tokens": _at("output_tokens"),
            "finish_reason": _at("finish_reason_metadata.finish_reason", "finish_reason"),
        }
    ),
    outcomes=tuple(
        OutcomeRule(f"{frame}request.{name}", re.compile(word), outcome)
        for frame in ("", "event.")
        for name in ("finish_reason_metadata.finish_reason", "finish_reason")
        for word, outcome in (("cancelled", "aborted"), ("abort", "aborted"), ("error", "error"))
    ),
    completes=True,
)
