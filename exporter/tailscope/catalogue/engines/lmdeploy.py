"""LMDeploy's API server: most of vLLM's families under its own prefix, not all with its meaning.

Read in LMDeploy 0.18. Two gauges are cumulative numbers, a histogram is named ``_total``, and what
vLLM observes once a step or a request is here observed at each output of each request.
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.catalogue.declare import PYTHON, derive, ignore, term, to
from tailscope.catalogue.model import Kind
from tailscope.catalogue.upstream import Engine, Lookup, Mark, Operation, Term

UPSTREAM = (
    to("requests_running", "num_requests_running"),
    term("engine_waiting", "num_requests_waiting"),
    # Those that wait in the server for a way into the engine.
    term("server_waiting", "num_api_requests_waiting"),
    to("kv_cache_usage_ratio", "gpu_cache_usage_perc"),
    to("prompt_tokens_total", "prompt_tokens"),
    to("generation_tokens_total", "generation_tokens"),
    to("prefix_cache_query_tokens_total", "prompt_tokens"),
    to("prefix_cache_hit_tokens_total", "cached_tokens"),
    to("requests_finished_total", "request_success", labels={"finished_reason": "reason"}),
    to("speculative_draft_tokens_total", "spec_decode_num_draft_tokens"),
    to("speculative_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
    to("time_to_first_token_seconds", "time_to_first_token_seconds"),
    to("inter_token_latency_seconds", "iter_token_latency"),
    # The same gaps, each by its number of tokens.
    to("time_per_output_token_seconds", "time_per_output_token_seconds"),
    to("request_seconds", "e2e_request_latency_seconds"),
    to("queue_seconds", "request_queue_time_seconds"),
    to("prefill_seconds", "request_prefill_time_seconds"),
    to("decode_seconds", "request_decode_time_seconds"),
    to("inference_seconds", "request_inference_time_seconds"),
    to("request_input_tokens", "request_prompt_tokens"),
    to("request_output_tokens", "request_generation_tokens"),
)

_PREFIX = r"lmdeploy[:_]"

IGNORED = (
    PYTHON,
    ignore(r"http_.*", "knows no stages"),
    ignore(_PREFIX + r"backend_config.*", "settings, and no size of the cache in tokens"),
    ignore(
        _PREFIX + r"iteration_tokens.*",
        "a histogram, and of one output of one request, not of a batch step",
    ),
    ignore(
        _PREFIX + r"num_(requests_(succeeded|failed)|api_requests_routed)",
        "counts that are declared gauges; request_success has the reasons",
    ),
    ignore(_PREFIX + r"prefix_cache_hit_rate", "a rate over an unknown time; counters say it"),
    ignore(_PREFIX + r"request_(cached_tokens|cache_hit_ratio)", "counters say it in sum"),
    ignore(
        _PREFIX
        + r"spec_decode_(num_drafts|num_accepted_tokens_per_pos|mean_|per_position_|draft_).*",
        "detail of speculative decoding",
    ),
)

ENGINE = Engine(
    name="lmdeploy",
    title="LMDeploy",
    ports=(23333,),
    prefixes=("lmdeploy:", "lmdeploy_"),
    recognise=(Mark("num_requests_running"), Mark("request_success"), Mark("prompt_tokens")),
    upstream=UPSTREAM,
    ignored=IGNORED,
    terms=(Term("engine_waiting"), Term("server_waiting")),
    derived=(
        derive("requests_waiting", Operation.SUM, "engine_waiting", optional=("server_waiting",)),
    ),
    model_labels=("model_name",),
    model_at=(Lookup("/v1/models", ("data", 0, "id")),),
    rank_label="engine",
    kinds=MappingProxyType({"iteration_tokens_total": Kind.HISTOGRAM}),
    switch_on="leave --disable-metrics out; older releases want --enable-metrics",
)
