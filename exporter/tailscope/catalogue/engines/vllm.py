"""vLLM, 0.6 to 0.33: metric families, and the ``llm_request`` span.

Names, types and meanings were read in vLLM 0.32 and in recordings of it; older names come from
its own change log. vLLM's ``/metrics`` vanishes with ``--disable-log-stats``.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.catalogue.declare import PYTHON, RAY, ignore, to
from tailscope.catalogue.model import Kind
from tailscope.catalogue.spans.genai import LATENCIES, TOKENS
from tailscope.catalogue.spans.model import SpanKind
from tailscope.catalogue.upstream import Engine, Lookup, Mark

UPSTREAM = (
    to("requests_running", "num_requests_running"),
    to("requests_waiting", "num_requests_waiting"),
    to("requests_waiting_by_reason", "num_requests_waiting_by_reason", labels={"reason": "reason"}),
    # gpu_cache_usage_perc: until 0.10.
    to("kv_cache_usage_ratio", "kv_cache_usage_perc", "gpu_cache_usage_perc"),
    to(
        "kv_cache_capacity_tokens",
        "cache_config_info",
        product_of=("num_gpu_blocks", "block_size"),
    ),
    to(
        "sleeping",
        "engine_sleep_state",
        only={"sleep_state": ("weights_offloaded", "discard_all")},
    ),
    to("prompt_tokens_total", "prompt_tokens"),
    to("prompt_tokens_by_source_total", "prompt_tokens_by_source", labels={"source": "origin"}),
    to("generation_tokens_total", "generation_tokens"),
    to("prefix_cache_query_tokens_total", "prefix_cache_queries", "gpu_prefix_cache_queries"),
    to("prefix_cache_hit_tokens_total", "prefix_cache_hits", "gpu_prefix_cache_hits"),
    to("external_cache_query_tokens_total", "external_prefix_cache_queries"),
    to("external_cache_hit_tokens_total", "external_prefix_cache_hits"),
    to(
        "cached_prompt_tokens_total",
        "prompt_tokens_cached_by_source",
        labels={"source": "tier"},
    ),
    to("preemptions_total", "num_preemptions"),
    to("requests_finished_total", "request_success", labels={"finished_reason": "reason"}),
    to("admission_rejections_total", "admission_rejections", labels={"reason": "reason"}),
    to("speculative_draft_tokens_total", "spec_decode_num_draft_tokens"),
    to("speculative_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
    to("step_tokens", "iteration_tokens"),
    to("time_to_first_token_seconds", "time_to_first_token_seconds"),
    # time_per_output_token_seconds was the gap between outputs all along; renamed in 0.11.
    to(
        "inter_token_latency_seconds",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
    ),
    to("time_per_output_token_seconds", "request_time_per_output_token_seconds"),
    to("request_seconds", "e2e_request_latency_seconds"),
    to("queue_seconds", "request_queue_time_seconds", "time_in_queue_requests"),
    to("prefill_seconds", "request_prefill_time_seconds"),
    to("decode_seconds", "request_decode_time_seconds"),
    to("inference_seconds", "request_inference_time_seconds"),
    to("request_input_tokens", "request_prompt_tokens"),
    to("request_output_tokens", "request_generation_tokens"),
    to("request_max_tokens", "request_params_max_tokens"),
    to("request_computed_input_tokens", "request_prefill_kv_computed_tokens"),
    to("request_preemptions", "request_num_preemptions"),
)

_PREFIX = r"(ray_)?vllm[:_]"

IGNORED = (
    PYTHON,
    RAY,
    ignore(r"http_.*", "counts aborted requests as 2xx and knows no stages"),
    ignore(_PREFIX + r"mm_cache_.*", "multimodal preprocessing cache: no stage of a request"),
    ignore(
        _PREFIX + r"estimated_(flops|read_bytes|write_bytes)_per_gpu.*",
        "a model of the work, not a measurement; the GPU source measures",
    ),
    ignore(_PREFIX + r"prompt_tokens_cached(_total)?", "sum of prompt_tokens_cached_by_source"),
    ignore(_PREFIX + r"prompt_tokens_recomputed.*", "gone since 0.20"),
    ignore(_PREFIX + r"request_max_num_generation_tokens", "output tokens again, per sub-request"),
    ignore(_PREFIX + r"request_params_(n|best_of)", "sub-requests are records of their own"),
    ignore(_PREFIX + r"kv_block_.*", "sampled life of cache blocks, off by default"),
    ignore(_PREFIX + r"lora_requests_info", "its value is a time stamp, and it lies with ranks"),
    ignore(_PREFIX + r"num_requests_(swapped|kv_fetch_by_stage).*", "no queue of the scheduler"),
    ignore(
        _PREFIX + r"(cpu|gpu|cpu_prefix|gpu_prefix)_cache_(usage_perc|hit_rate)",
        "the CPU swap space and hit-rate gauges of the V0 engine; rates come from counters",
    ),
    ignore(_PREFIX + r"avg_.*_toks_per_s", "an average over an unknown time"),
    ignore(_PREFIX + r"time_per_prefill_token.*", "prefill by tokens, cached ones counted (0.10)"),
    ignore(_PREFIX + r"(tokens_total|model_forward_time.*|model_execute_time.*)", "V0 engine"),
    ignore(
        _PREFIX
        + r"spec_decode_(num_drafts|num_accepted_tokens_per_pos|num_emitted|draft_acc|eff).*",
        "detail of speculative decoding",
    ),
    ignore(
        _PREFIX + r"(nixl|kv_offload|mooncake|lmcache|eplb|cudagraph|corrupted|ec_|kv_transfer).*",
        "a connector's own health",
    ),
    ignore(r"lmcache[:_].*", "LMCache itself; external_prefix_cache has its hits"),
    ignore(r"nv_(?!trt_llm_|llm_).*", "Triton, where vLLM is one of its backends"),
)

SPANS = SpanKind(
    source="vllm",
    role="engine",
    name="llm_request",
    engine="vllm",
    # Programs call their own spans so, too.
    marks=((*LATENCIES, "gen_ai.request.id"),),
    attributes=MappingProxyType(
        {
            "gen_ai.request.id": "request_id",
            "gen_ai.response.model": "model",
            **TOKENS,
            **LATENCIES,
        }
    ),
    # The id is what the client sent as X-Request-Id, in a frame that names the endpoint; before it
    # stands, in some releases, the number of the sub-request.
    patterns=MappingProxyType(
        {
            "request_id": (
                re.compile(r"(?:\d+_)?chatcmpl-(.+)"),
                re.compile(r"(?:\d+_)?(?:cmpl|embd|pool|score|rerank|classify)-(.+)-\d+"),
            )
        }
    ),
)

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    ports=(8000,),
    prefixes=("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"),
    recognise=(
        Mark("cache_config_info"),
        Mark("num_requests_running"),
        Mark("request_success"),
        Mark("prompt_tokens"),
    ),
    upstream=UPSTREAM,
    ignored=IGNORED,
    # model: where Triton serves it.
    model_labels=("model_name", "model"),
    model_at=(Lookup("/v1/models", ("data", 0, "id")),),
    rank_label="engine",
    writers=("pid",),
    replicas=("ReplicaId", "WorkerId", "replica"),
    kinds=MappingProxyType({"iteration_tokens_total": Kind.HISTOGRAM}),
    switch_on="leave --disable-log-stats out; with Ray Serve set log_engine_metrics",
    spans=SPANS,
)
