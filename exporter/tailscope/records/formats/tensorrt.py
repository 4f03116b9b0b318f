"""TensorRT-LLM's ``perf_metrics_output_dir``: ``perf_metrics-*.jsonl``, one file a process.

Its times are those of the machine's monotonic clock, and it counts no tokens.
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.records.formats.model import Clock, Field, Format

_TIMES = "perf_metrics.timing_metrics"
_ARRIVAL = (f"{_TIMES}.server_arrival_time", f"{_TIMES}.arrival_time")

FORMAT = Format(
    name="tensorrt",
    title="TensorRT-LLM perf_metrics-*.jsonl",
    role="engine",
    engine="trtllm",
    recognise=("request_id", f"{_TIMES}.arrival_time"),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(_ARRIVAL),
            "request_id": Field(("request_id",)),
            "queue_seconds": Field(
                (f"{_TIMES}.first_scheduled_time",), minus=(f"{_TIMES}.arrival_time",)
            ),
            "prefill_seconds": Field(
                (f"{_TIMES}.first_token_time",), minus=(f"{_TIMES}.first_scheduled_time",)
            ),
            "decode_seconds": Field(
                (f"{_TIMES}.last_token_time",), minus=(f"{_TIMES}.first_token_time",)
            ),
            "ttft_seconds": Field(
                (f"{_TIMES}.server_first_token_time", f"{_TIMES}.first_token_time"), minus=_ARRIVAL
            ),
            "total_seconds": Field((f"{_TIMES}.last_token_time",), minus=_ARRIVAL),
        }
    ),
    completes=True,
    clock=Clock.STEADY,
)
