"""Triton Inference Server with the TensorRT-LLM backend: the batch manager's statistics.

Read in the backend's metrics reporter and the pages that its documentation prints. One family
holds many things, told apart by a label. Triton's own request counters are 0 for models that
answer in parts, as these do, and count a request once for each model of an ensemble.
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.catalogue.declare import derive, ignore, term, to
from tailscope.catalogue.model import Kind
from tailscope.catalogue.upstream import Engine, Mark, Operation, Part, Term

_REQUESTS = "trt_llm_request_metrics"
_BLOCKS = "trt_llm_kv_cache_block_metrics"


def _type(value: str) -> dict[str, tuple[str, ...]]:
    return {"request_type": (value,)}


def _blocks(value: str) -> dict[str, tuple[str, ...]]:
    return {"kv_cache_block_type": (value,)}


UPSTREAM = (
    to("requests_running", _REQUESTS, only=_type("scheduled")),
    to("requests_running", _REQUESTS, only=_type("active")),
    # Since 2025.
    to("requests_waiting", _REQUESTS, only=_type("waiting")),
    to("kv_cache_usage_ratio", _BLOCKS, only=_blocks("fraction")),
    term("used_blocks", _BLOCKS, only=_blocks("used")),
    term("max_blocks", _BLOCKS, only=_blocks("max")),
    term("block_tokens", _BLOCKS, only=_blocks("tokens_per")),
    to(
        "steps_total",
        "trt_llm_general_metrics",
        only={"general_type": ("iteration_counter",)},
    ),
    to("request_input_tokens", "llm_input_token_len"),
    to("request_output_tokens", "llm_output_token_len"),
    to("prompt_tokens_total", "llm_input_token_len", part=Part.SUM),
    to("generation_tokens_total", "llm_output_token_len", part=Part.SUM),
    # With --metrics-config histogram_latencies=true and summary_latencies=true: of the first
    # part of the answer, which is the first token where answers are streamed.
    to("time_to_first_token_seconds", "inference_first_response_histogram_ms", scale=1e-3),
    to("request_seconds", "inference_request_summary_us", scale=1e-6),
)

IGNORED = (
    ignore(
        r"nv_inference_queue_.*",
        "Triton's own queue, which hands on at once: the backend queues by itself",
    ),
    ignore(
        r"nv_inference_(request_(success|failure|duration_us)|pending_request_count|count"
        r"|exec_count|compute_.*)",
        "0 for models that answer in parts, and once for each model of an ensemble",
    ),
    ignore(r"nv_(gpu|cpu|energy|pinned_memory|cache|model|response_cache)_.*", "not of the engine"),
    ignore(r"nv_trt_llm_runtime_memory_metrics", "memory of the process; the GPU source has it"),
    ignore(r"nv_trt_llm_(inflight_batcher|v1)_metrics", "one step's tokens, as a gauge"),
    ignore(r"nv_trt_llm_disaggregated_serving_metrics", "the transfer's own health"),
)

ENGINE = Engine(
    name="triton",
    title="Triton with TensorRT-LLM",
    ports=(8002,),
    prefixes=("nv_",),
    recognise=(Mark(_REQUESTS), Mark(_BLOCKS)),
    upstream=UPSTREAM,
    ignored=IGNORED,
    terms=(Term("used_blocks"), Term("max_blocks"), Term("block_tokens")),
    derived=(
        derive("kv_cache_usage_ratio", Operation.RATIO, "used_blocks", "max_blocks"),
        derive("kv_cache_capacity_tokens", Operation.PRODUCT, "max_blocks", "block_tokens"),
    ),
    model_labels=("model",),
    kinds=MappingProxyType({"trt_llm_general_metrics": Kind.COUNTER}),
    switch_on="leave --allow-metrics=false out; --metrics-config histogram_latencies=true adds "
    "the time to the first response",
)
