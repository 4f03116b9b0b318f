"""SGLang, 0.3 to 0.5.23: metric families, and the spans of requests.

Names, types and labels were read in the PyPI wheel of 0.5.23; older ones in its repository. The
scheduler's families carry tensor, pipeline and expert ranks that all count the same requests, and
with priority scheduling the total stands under ``priority=""`` beside each priority.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.catalogue.declare import PYTHON, RAY, derive, ignore, term, to
from tailscope.catalogue.spans.genai import FINISH_REASON, LATENCIES, TOKENS
from tailscope.catalogue.spans.model import OutcomeMark, SpanKind
from tailscope.catalogue.upstream import Engine, Lookup, Mark, Operation, Term

_PRIORITY = ("priority",)

UPSTREAM = (
    to("requests_running", "num_running_reqs", total_under=_PRIORITY),
    # A request whose grammar is being compiled waits too, before the queue.
    term("queued", "num_queue_reqs", total_under=_PRIORITY),
    term("compiling", "num_grammar_queue_reqs", total_under=_PRIORITY),
    to(
        "requests_waiting_by_reason",
        "num_queue_reqs",
        fixed={"reason": "capacity"},
        total_under=_PRIORITY,
    ),
    to(
        "requests_waiting_by_reason",
        "num_grammar_queue_reqs",
        fixed={"reason": "grammar"},
        total_under=_PRIORITY,
    ),
    # With prefill and decode apart, queues of their own.
    to(
        "requests_waiting_by_reason",
        "num_prefill_bootstrap_queue_reqs",
        "num_prefill_prealloc_queue_reqs",
        fixed={"reason": "prefill_bootstrap"},
        total_under=_PRIORITY,
    ),
    # infight: until 0.4.10.
    to(
        "requests_waiting_by_reason",
        "num_prefill_inflight_queue_reqs",
        "num_prefill_infight_queue_reqs",
        fixed={"reason": "prefill_inflight"},
        total_under=_PRIORITY,
    ),
    to(
        "requests_waiting_by_reason",
        "num_decode_prealloc_queue_reqs",
        fixed={"reason": "decode_prealloc"},
        total_under=_PRIORITY,
    ),
    to(
        "requests_waiting_by_reason",
        "num_decode_transfer_queue_reqs",
        fixed={"reason": "decode_transfer"},
        total_under=_PRIORITY,
    ),
    term(
        "bootstrapping",
        "num_prefill_bootstrap_queue_reqs",
        "num_prefill_prealloc_queue_reqs",
        total_under=_PRIORITY,
    ),
    term("preallocating", "num_decode_prealloc_queue_reqs", total_under=_PRIORITY),
    term("transferring", "num_decode_transfer_queue_reqs", total_under=_PRIORITY),
    to("kv_cache_usage_ratio", "token_usage", total_under=_PRIORITY),
    to("kv_cache_capacity_tokens", "max_total_num_tokens", total_under=_PRIORITY),
    # Until 0.5.9 in the labels of one family, then as two gauges.
    to("kv_cache_capacity_tokens", "cache_config_info", product_of=("page_size", "num_pages")),
    term("pages", "num_pages", total_under=_PRIORITY),
    term("page_tokens", "page_size", total_under=_PRIORITY),
    to("prompt_tokens_total", "prompt_tokens"),
    to("generation_tokens_total", "generation_tokens"),
    to(
        "prompt_tokens_by_source_total",
        "realtime_tokens",
        only={"mode": ("prefill_compute",)},
        fixed={"origin": "local_compute"},
    ),
    to(
        "prompt_tokens_by_source_total",
        "realtime_tokens",
        only={"mode": ("prefill_cache",)},
        fixed={"origin": "local_cache_hit"},
    ),
    to("prefix_cache_hit_tokens_total", "cached_tokens"),
    to("cached_prompt_tokens_total", "cached_tokens", labels={"cache_source": "tier"}),
    # total_retracted_reqs, for a time: declared a gauge.
    to("preemptions_total", "num_retracted_requests", "total_retracted_reqs"),
    to("requests_finished_total", "num_requests", fixed={"reason": "finished"}),
    to("requests_finished_total", "num_aborted_requests", fixed={"reason": "abort"}),
    to("time_to_first_token_seconds", "time_to_first_token_seconds"),
    to("inter_token_latency_seconds", "inter_token_latency_seconds"),
    to(
        "time_per_output_token_seconds",
        "request_time_per_output_token_seconds",
        "time_per_output_token_seconds",
    ),
    to("request_seconds", "e2e_request_latency_seconds"),
    to("queue_seconds", "queue_time_seconds"),
    to(
        "prefill_seconds",
        "per_stage_req_latency_seconds",
        only={"stage": ("prefill_forward",)},
    ),
    to("request_input_tokens", "prompt_tokens_histogram"),
    to("request_output_tokens", "generation_tokens_histogram"),
    to("request_computed_input_tokens", "uncached_prompt_tokens_histogram"),
    to("request_preemptions", "num_retractions"),
)

_SGLANG = r"(ray_)?sglang[:_]"

IGNORED = (
    PYTHON,
    RAY,
    ignore(_SGLANG + r"(scheduler_)?process_cpu_seconds.*", "the Python process, not the engine"),
    ignore(_SGLANG + r"http_.*", "the web server; knows no stages"),
    ignore(r"http_.*", "the web server; knows no stages"),
    ignore(
        _SGLANG + r"(cache_hit_rate|gen_throughput|utilization|fwd_occupancy|new_token_ratio)",
        "of the last batch only; counters say it better",
    ),
    ignore(_SGLANG + r"diffusion_.*", "pictures and films, not text"),
    ignore(_SGLANG + r"avg_request_queue_latency", "an average over an unknown time"),
    ignore(
        _SGLANG + r"(full|swa|mamba|pending_prealloc|prealloc_full|prealloc_swa)_(token_)?usage",
        "parts of token_usage",
    ),
    ignore(
        _SGLANG
        + r"((kv|swa|mamba)_(used|available|evictable)_tokens|num_used_tokens|decode_sum_seq_lens"
        r"|max_total_num_tokens_swa|context_len)",
        "token_usage and the capacity say it",
    ),
    ignore(
        _SGLANG + r"(startup|engine_startup|engine_load|weight|graph|kv_cache)_.*(time|gb|max|"
        r"seconds).*",
        "the start of the engine",
    ),
    ignore(_SGLANG + r"num_retracted_(reqs|input_tokens|output_tokens).*", "detail of retractions"),
    ignore(_SGLANG + r"(evict|load_back|hicache|prefetch|backup|storage_).*", "the cache's tiers"),
    ignore(_SGLANG + r"(num_)?grammar_(?!queue_reqs).*", "structured output"),
    ignore(_SGLANG + r"num_so_requests.*", "structured output"),
    ignore(_SGLANG + r"(routing_keys?|num_unique_running_routing_keys).*", "routing hints"),
    ignore(
        _SGLANG + r"(lora|encoder|eplb|spec|streaming_session|num_streaming)_.*",
        "a feature's own health",
    ),
    ignore(_SGLANG + r"(dp_attention|dp_cooperation|prefill_delayer)_.*", "ranks among themselves"),
    ignore(_SGLANG + r"(is_cuda_graph|cuda_graph_passes).*", "how a step was run"),
    ignore(
        _SGLANG + r"(forward_execution|gpu_execution|scheduler_idle|scheduler_stage)_seconds.*",
        "time of the scheduler, not of a request",
    ),
    ignore(_SGLANG + r"(estimated_.*_per_gpu).*", "a model of the work, not a measurement"),
    ignore(
        _SGLANG + r"(kv_transfer|num_bootstrap_failed|num_transfer_failed|num_prefill_retries|"
        r"num_decode_host_receive|num_decode_deferred|decode_deferred).*",
        "the transfer between prefill and decode servers",
    ),
    ignore(_SGLANG + r"prefill_effective_tokens.*", "realtime_tokens, but for recomputed ones"),
    ignore(_SGLANG + r"num_(paused_reqs|running_reqs_offline_batch)", "a part of other gauges"),
    ignore(_SGLANG + r"max_running_requests_under_SLO", "an estimate of the engine"),
    ignore(_SGLANG + r"(func_latency|get_loads_duration)_seconds.*", "functions of the program"),
)

SPANS = SpanKind(
    # The root span of a request (``--enable-trace``). Its name holds the request's id, so it is
    # known by its attributes. Below it each thread of a process that worked for the request has a
    # span, and below that each stage; the scheduler's, of which every rank sends its own, know the
    # queue and the prefill. Seen in SGLang 0.5.23 (``srt/observability``).
    source="sglang",
    role="engine",
    engine="sglang",
    marks=(("gen_ai.latency.e2e", "gen_ai.latency.time_to_first_token"),),
    attributes=MappingProxyType(
        {
            "gen_ai.request.id": "request_id",
            "rid": "request_id",
            "gen_ai.response.model": "model",
            "gen_ai.response.finish_reasons": "finish_reason",
            **TOKENS,
            **LATENCIES,
        }
    ),
    patterns=MappingProxyType({"finish_reason": FINISH_REASON}),
    outcomes=(OutcomeMark("gen_ai.response.finish_reasons", re.compile(".*abort.*"), "aborted"),),
    # Its prefill counts from the dispatch and holds the queue, unless the queue is told as well.
    needs=MappingProxyType({"prefill_seconds": "queue_seconds"}),
    stages=MappingProxyType(
        {"prefill_waiting": "queue_seconds", "prefill_forward": "prefill_seconds"}
    ),
    between="thread_label",
)

ENGINE = Engine(
    name="sglang",
    title="SGLang",
    ports=(30000,),
    prefixes=("sglang:", "sglang_", "ray_sglang:", "ray_sglang_"),
    recognise=(
        Mark("num_running_reqs"),
        Mark("token_usage"),
        Mark("prompt_tokens"),
        Mark("time_to_first_token_seconds"),
    ),
    upstream=UPSTREAM,
    ignored=IGNORED,
    terms=(
        Term("queued"),
        Term("compiling"),
        Term("bootstrapping"),
        Term("preallocating"),
        Term("transferring"),
        Term("pages"),
        Term("page_tokens"),
    ),
    derived=(
        # With prefill and decode apart, requests wait before the queue, for a partner or for room.
        # Those whose prefill is done and whose cache is being sent wait for no place there.
        derive(
            "requests_waiting",
            Operation.SUM,
            "queued",
            optional=("compiling", "bootstrapping", "preallocating", "transferring"),
        ),
        derive("kv_cache_capacity_tokens", Operation.PRODUCT, "pages", "page_tokens"),
        # Both are counted when a request ends, so that their ratio is true.
        derive("prefix_cache_query_tokens_total", Operation.SUM, "prompt_tokens_total"),
    ),
    model_labels=("model_name", "name"),
    model_at=(Lookup("/v1/models", ("data", 0, "id")),),
    rank_label="dp_rank",
    copies=("tp_rank", "pp_rank", "moe_ep_rank"),
    writers=("pid",),
    replicas=("ReplicaId", "WorkerId", "replica"),
    switch_on="start it with --enable-metrics",
    spans=SPANS,
)
