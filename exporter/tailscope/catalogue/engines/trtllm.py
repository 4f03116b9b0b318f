"""TensorRT-LLM's ``trtllm-serve``, 1.0 to 1.3: Prometheus text, two JSON lists, and spans.

Names were read in its metrics collector. The text is at ``/prometheus/metrics`` and needs
``return_perf_metrics``. ``/metrics`` (statistics of each iteration, ``enable_iter_perf_stats``) and
``/perf_metrics`` (times of each request) are lists that every read empties: nobody else may read
them. Until 1.1 the text had no prefix, and its labels said ``undefined``.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.catalogue.declare import PYTHON, derive, ignore, term, to
from tailscope.catalogue.requests import SECONDS_BUCKETS
from tailscope.catalogue.spans.genai import FINISH_REASON, LATENCIES, TOKENS
from tailscope.catalogue.spans.model import TIMEOUT, OutcomeMark, SpanKind
from tailscope.catalogue.upstream import (
    Document,
    Engine,
    Field,
    Lookup,
    Mark,
    Operation,
    Reduce,
    Term,
)

_ENGINE_TYPE = ("engine_type",)

UPSTREAM = (
    to("requests_running", "num_requests_running", "iteration_active_requests"),
    to("requests_waiting", "num_requests_waiting", "iteration_queued_requests"),
    to("kv_cache_usage_ratio", "kv_cache_utilization"),
    term("used_blocks", "kv_cache_used_blocks", "iteration_used_blocks"),
    term("max_blocks", "kv_cache_max_blocks", "iteration_max_blocks"),
    term("block_tokens", "kv_cache_tokens_per_block", "iteration_tokens_per_block"),
    to("prompt_tokens_total", "prompt_tokens"),
    to("generation_tokens_total", "generation_tokens"),
    to("prefix_cache_hit_tokens_total", "prompt_cached_tokens"),
    to("cached_prompt_tokens_total", "prompt_cache_hit_tokens", labels={"cache_tier": "tier"}),
    to(
        "requests_finished_total",
        "request_success",
        labels={"finish_reason": "reason", "finished_reason": "reason"},
    ),
    to("requests_finished_total", "iteration_completed_requests", fixed={"reason": ""}),
    to(
        "speculative_draft_tokens_total",
        "spec_decode_num_draft_tokens",
        "spec_decode_drafted_tokens",
    ),
    to(
        "speculative_accepted_tokens_total",
        "spec_decode_num_accepted_tokens",
        "spec_decode_accepted_tokens",
    ),
    to("time_to_first_token_seconds", "time_to_first_token_seconds", "perf_first_token_seconds"),
    to("time_per_output_token_seconds", "time_per_output_token_seconds"),
    to("request_seconds", "e2e_request_latency_seconds", "perf_request_seconds"),
    to("queue_seconds", "request_queue_time_seconds", "perf_queue_seconds"),
    to("prefill_seconds", "request_prefill_time_seconds", "perf_prefill_seconds"),
    to("decode_seconds", "request_decode_time_seconds", "perf_decode_seconds"),
    to("inference_seconds", "request_inference_time_seconds", "perf_inference_seconds"),
)

_TRTLLM = r"(trtllm[:_])?"

IGNORED = (
    PYTHON,
    ignore(r"http_.*", "the web server; knows no stages"),
    ignore(
        _TRTLLM + r"kv_cache_(hit_rate|iter_reuse_rate|host_utilization)",
        "of the last iterations only; counters say it better",
    ),
    ignore(
        _TRTLLM + r"kv_cache_((iter_)?(full_|partial_)?(reused|missed)_blocks|gen_alloc_blocks"
        r"|free_blocks|onboard_bytes|offload_bytes|intra_device_copy_bytes|disk_.*).*",
        "blocks and moves of the cache; tokens say it better",
    ),
    ignore(_TRTLLM + r"prompt_cached_tokens_per_request", "prompt_cached_tokens has the sum"),
    ignore(_TRTLLM + r"(.*_)?perplexity", "quality, not speed"),
    ignore(
        _TRTLLM + r"(num_requests_completed|request_error).*",
        "request_success has the reasons",
    ),
    # Of Dynamo's worker, under the same prefix.
    ignore(_TRTLLM + r"(num_aborted_requests|request_type_.*).*", "may be in request_success"),
    ignore(_TRTLLM + r"kv_transfer_.*", "the transfer between prefill and decode servers"),
    ignore(
        _TRTLLM + r"(max_num_active_requests|max_batch_size_.*|max_num_tokens_.*)",
        "limits that it was started with",
    ),
    ignore(_TRTLLM + r"(gpu|cpu|pinned)_memory_usage_bytes", "the GPU source measures"),
    ignore(
        _TRTLLM + r"(num_(context|generation|paused|scheduled)_requests|scheduled_batch_size"
        r"|total_context_tokens|avg_decoded_tokens_per_iter|iteration_latency_seconds"
        r"|prefill_batch_.*)",
        "of the last iteration only",
    ),
    ignore(
        _TRTLLM + r"spec_decode_(acceptance_length|draft_overhead)", "of the last iteration only"
    ),
    ignore(_TRTLLM + r"(model|parallel|speculative|kv_cache)_config_info", "how it was started"),
    ignore(_TRTLLM + r"(iteration|perf)_.*", "the JSON, where the text has it too"),
)

_TIMES = ("perf_metrics", "timing_metrics")


def _time(family: str, end: str, start: str) -> Field:
    return Field(
        f"perf_{family}_seconds",
        (*_TIMES, end),
        minus=(*_TIMES, start),
        reduce=Reduce.BUCKETS,
        bounds=SECONDS_BUCKETS,
    )


DOCUMENTS = (
    Document(
        "/metrics",
        marks=("iter", "iterLatencyMS"),
        fields=(
            Field("iteration_active_requests", ("numActiveRequests",)),
            Field("iteration_queued_requests", ("numQueuedRequests",)),
            Field("iteration_used_blocks", ("kvCacheStats", "usedNumBlocks")),
            Field("iteration_max_blocks", ("kvCacheStats", "maxNumBlocks")),
            Field("iteration_tokens_per_block", ("kvCacheStats", "tokensPerBlock")),
            Field("iteration_completed_requests", ("numCompletedRequests",), reduce=Reduce.SUM),
        ),
        drained=True,
    ),
    Document(
        "/perf_metrics",
        marks=("request_id", "perf_metrics"),
        fields=(
            _time("first_token", "first_token_time", "arrival_time"),
            _time("request", "last_token_time", "arrival_time"),
            _time("queue", "first_scheduled_time", "arrival_time"),
            _time("prefill", "first_token_time", "first_scheduled_time"),
            _time("decode", "last_token_time", "first_token_time"),
            _time("inference", "last_token_time", "first_scheduled_time"),
        ),
        drained=True,
    ),
)

SPANS = SpanKind(
    # Its module was made after vLLM's, and its spans have the same name: what tells them apart is
    # what only one of them writes. Its request id is a count of its own, which only its file of
    # ``perf_metrics`` has as well.
    source="trtllm",
    role="engine",
    name="llm_request",
    engine="trtllm",
    marks=(
        tuple(LATENCIES),
        ("gen_ai.response.finish_reasons", "gen_ai.latency.kv_cache_transfer_time"),
    ),
    lacks=("gen_ai.latency.time_in_model_prefill", "gen_ai.latency.time_in_model_inference"),
    attributes=MappingProxyType(
        {
            "gen_ai.request.id": "request_id",
            "gen_ai.response.finish_reasons": "finish_reason",
            **TOKENS,
            **LATENCIES,
        }
    ),
    patterns=MappingProxyType({"finish_reason": FINISH_REASON}),
    outcomes=(
        OutcomeMark(
            "gen_ai.response.finish_reasons", re.compile(".*([Aa]bort|[Cc]ancel).*"), "aborted"
        ),
        OutcomeMark(
            "gen_ai.response.finish_reasons",
            re.compile(".*([Tt]imeout|[Tt]imed_?[Oo]ut).*"),
            TIMEOUT,
        ),
    ),
)

ENGINE = Engine(
    name="trtllm",
    title="TensorRT-LLM",
    ports=(8000,),
    paths=("/prometheus/metrics",),
    prefixes=("trtllm_", "trtllm:", ""),
    recognise=(
        Mark("kv_cache_utilization"),
        Mark("num_requests_running", _ENGINE_TYPE),
        Mark("request_success", _ENGINE_TYPE),
        Mark("e2e_request_latency_seconds", _ENGINE_TYPE),
        Mark("time_to_first_token_seconds", _ENGINE_TYPE),
    ),
    upstream=UPSTREAM,
    ignored=IGNORED,
    terms=(Term("used_blocks"), Term("max_blocks"), Term("block_tokens")),
    derived=(
        derive("kv_cache_usage_ratio", Operation.RATIO, "used_blocks", "max_blocks"),
        derive("kv_cache_capacity_tokens", Operation.PRODUCT, "max_blocks", "block_tokens"),
        derive("prefix_cache_query_tokens_total", Operation.SUM, "prompt_tokens_total"),
    ),
    model_labels=("model_name",),
    model_at=(Lookup("/v1/models", ("data", 0, "id")),),
    documents=DOCUMENTS,
    switch_on="set return_perf_metrics and enable_iter_perf_stats in its extra LLM API options",
    spans=SPANS,
)
