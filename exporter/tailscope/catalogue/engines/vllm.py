"""vLLM, 0.6 to 0.33: metric families, and the ``llm_request`` span.

Names, types and meanings were read in vLLM 0.32 and in recordings of it; older names come from
its own change log. vLLM's ``/metrics`` vanishes with ``--disable-log-stats``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from tailscope.catalogue.model import PREFIX, Engine, Ignored, Kind, SpanMapping, Upstream


def _to(
    metric: str,
    *families: str,
    labels: Mapping[str, str] | None = None,
    only: Mapping[str, tuple[str, ...]] | None = None,
    product_of: tuple[str, ...] = (),
) -> Upstream:
    return Upstream(
        f"{PREFIX}engine_{metric}",
        families,
        labels=MappingProxyType(dict(labels or {})),
        only=MappingProxyType(dict(only or {})),
        product_of=product_of,
    )


def _ignore(pattern: str, reason: str) -> Ignored:
    return Ignored(re.compile(pattern), reason)


UPSTREAM = (
    _to("requests_running", "num_requests_running"),
    _to("requests_waiting", "num_requests_waiting"),
    _to(
        "requests_waiting_by_reason", "num_requests_waiting_by_reason", labels={"reason": "reason"}
    ),
    # gpu_cache_usage_perc: until 0.10.
    _to("kv_cache_usage_ratio", "kv_cache_usage_perc", "gpu_cache_usage_perc"),
    _to(
        "kv_cache_capacity_tokens",
        "cache_config_info",
        product_of=("num_gpu_blocks", "block_size"),
    ),
    _to(
        "sleeping",
        "engine_sleep_state",
        only={"sleep_state": ("weights_offloaded", "discard_all")},
    ),
    _to("prompt_tokens_total", "prompt_tokens"),
    _to("prompt_tokens_by_source_total", "prompt_tokens_by_source", labels={"source": "origin"}),
    _to("generation_tokens_total", "generation_tokens"),
    _to("prefix_cache_query_tokens_total", "prefix_cache_queries", "gpu_prefix_cache_queries"),
    _to("prefix_cache_hit_tokens_total", "prefix_cache_hits", "gpu_prefix_cache_hits"),
    _to("external_cache_query_tokens_total", "external_prefix_cache_queries"),
    _to("external_cache_hit_tokens_total", "external_prefix_cache_hits"),
    _to(
        "cached_prompt_tokens_total",
        "prompt_tokens_cached_by_source",
        labels={"source": "tier"},
    ),
    _to("preemptions_total", "num_preemptions"),
    _to("requests_finished_total", "request_success", labels={"finished_reason": "reason"}),
    _to("admission_rejections_total", "admission_rejections", labels={"reason": "reason"}),
    _to("speculative_draft_tokens_total", "spec_decode_num_draft_tokens"),
    _to("speculative_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
    _to("step_tokens", "iteration_tokens"),
    _to("time_to_first_token_seconds", "time_to_first_token_seconds"),
    # time_per_output_token_seconds was the gap between outputs all along; renamed in 0.11.
    _to(
        "inter_token_latency_seconds",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
    ),
    _to("time_per_output_token_seconds", "request_time_per_output_token_seconds"),
    _to("request_seconds", "e2e_request_latency_seconds"),
    _to("queue_seconds", "request_queue_time_seconds", "time_in_queue_requests"),
    _to("prefill_seconds", "request_prefill_time_seconds"),
    _to("decode_seconds", "request_decode_time_seconds"),
    _to("inference_seconds", "request_inference_time_seconds"),
    _to("request_input_tokens", "request_prompt_tokens"),
    _to("request_output_tokens", "request_generation_tokens"),
    _to("request_max_tokens", "request_params_max_tokens"),
    _to("request_computed_input_tokens", "request_prefill_kv_computed_tokens"),
    _to("request_preemptions", "request_num_preemptions"),
)

_PREFIX = r"(ray_)?vllm[:_]"

IGNORED = (
    _ignore(r"(python|process)_.*", "the Python process, not the engine"),
    _ignore(r"http_.*", "counts aborted requests as 2xx and knows no stages"),
    _ignore(_PREFIX + r"mm_cache_.*", "multimodal preprocessing cache: no stage of a request"),
    _ignore(
        _PREFIX + r"estimated_(flops|read_bytes|write_bytes)_per_gpu.*",
        "a model of the work, not a measurement; the GPU source measures",
    ),
    _ignore(_PREFIX + r"prompt_tokens_cached(_total)?", "sum of prompt_tokens_cached_by_source"),
    _ignore(_PREFIX + r"prompt_tokens_recomputed.*", "gone since 0.20"),
    _ignore(_PREFIX + r"request_max_num_generation_tokens", "output tokens again, per sub-request"),
    _ignore(_PREFIX + r"request_params_(n|best_of)", "sub-requests are records of their own"),
    _ignore(_PREFIX + r"kv_block_.*", "sampled life of cache blocks, off by default"),
    _ignore(_PREFIX + r"lora_requests_info", "its value is a time stamp, and it lies with ranks"),
    _ignore(_PREFIX + r"num_requests_(swapped|kv_fetch_by_stage).*", "no queue of the scheduler"),
    _ignore(
        _PREFIX + r"(cpu|gpu|cpu_prefix|gpu_prefix)_cache_(usage_perc|hit_rate)",
        "the CPU swap space and hit-rate gauges of the V0 engine; rates come from counters",
    ),
    _ignore(_PREFIX + r"avg_.*_toks_per_s", "an average over an unknown time"),
    _ignore(_PREFIX + r"(tokens_total|model_forward_time.*|model_execute_time.*)", "V0 engine"),
    _ignore(
        _PREFIX
        + r"spec_decode_(num_drafts|num_accepted_tokens_per_pos|num_emitted|draft_acc|eff).*",
        "detail of speculative decoding",
    ),
    _ignore(
        _PREFIX + r"(nixl|kv_offload|mooncake|lmcache|cudagraph|corrupted|ec_|kv_transfer).*",
        "a connector's own health",
    ),
)

SPANS = SpanMapping(
    name="llm_request",
    attributes=MappingProxyType(
        {
            "gen_ai.request.id": "request_id",
            "gen_ai.request.max_tokens": "max_tokens",
            "gen_ai.response.model": "model",
            "gen_ai.usage.prompt_tokens": "input_tokens",
            "gen_ai.usage.completion_tokens": "output_tokens",
            "gen_ai.latency.time_to_first_token": "ttft_seconds",
            "gen_ai.latency.e2e": "total_seconds",
            "gen_ai.latency.time_in_queue": "queue_seconds",
            "gen_ai.latency.time_in_model_prefill": "prefill_seconds",
            "gen_ai.latency.time_in_model_decode": "decode_seconds",
        }
    ),
    # The id is what the client sent as X-Request-Id, in a frame that names the endpoint.
    request_id=(re.compile(r"chatcmpl-(.+)"), re.compile(r"cmpl-(.+)-\d+")),
)

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    port=8000,
    path="/metrics",
    prefixes=("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"),
    recognise=("cache_config_info", "num_requests_running", "request_success"),
    model_label="model_name",
    rank_label="engine",
    upstream=UPSTREAM,
    ignored=IGNORED,
    kinds=MappingProxyType({"iteration_tokens_total": Kind.HISTOGRAM}),
    spans=SPANS,
)
