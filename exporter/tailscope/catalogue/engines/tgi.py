"""Text Generation Inference, 1 to 3: metric families and spans of its router.

Names and types were read in its router and its documentation (in maintenance since 2025). The page
has no model label and, being Rust's, no ``_total``: ``tgi_request_count`` is a counter of its own
and no part of a histogram. Durations end at 145.6 s: what takes longer is above the last bound.
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.catalogue.declare import derive, ignore, term, to
from tailscope.catalogue.spans.model import SpanKind
from tailscope.catalogue.upstream import Engine, Lookup, Mark, Operation, Part, Term

UPSTREAM = (
    to("requests_running", "batch_current_size"),
    to("requests_waiting", "queue_size"),
    term("batch_max_tokens", "batch_current_max_tokens"),
    to("kv_cache_capacity_tokens", "batch_total_tokens"),
    # Observed when a request has been checked, before it waits.
    to("prompt_tokens_total", "request_input_length", part=Part.SUM),
    to("generation_tokens_total", "request_generated_tokens", part=Part.SUM),
    to("requests_finished_total", "request_success", fixed={"reason": "success"}),
    to("requests_finished_total", "request_failure", labels={"err": "reason"}),
    to("steps_total", "batch_inference_count"),
    to("request_seconds", "request_duration"),
    to("queue_seconds", "request_queue_duration"),
    to("inference_seconds", "request_inference_duration"),
    # Inference time by the number of tokens: prefill is in it.
    to("time_per_output_token_seconds", "request_mean_time_per_token_duration"),
    to("request_input_tokens", "request_input_length"),
    to("request_output_tokens", "request_generated_tokens"),
    to("request_max_tokens", "request_max_new_tokens"),
)

IGNORED = (
    ignore(r"tgi_request_count", "those that succeed and those that fail are counted each"),
    ignore(r"tgi_request_validation_duration", "tokenising: small, and no stage of the engine"),
    ignore(r"tgi_request_(total_tokens|skipped_tokens|truncated.*)", "not needed"),
    ignore(r"tgi_(tokenize|embed|prompt_load|prefix)_.*", "not text generation"),
    ignore(
        r"tgi_batch_(inference_(?!count)|forward_|decode_|filter_|concat_).*",
        "times and counts of whole batches, not of requests",
    ),
    ignore(r"tgi_batch_(concat|next_size|next_tokens|input_tokens|max_.*)", "size of one batch"),
)

SPANS = SpanKind(
    source="tgi",
    role="engine",
    engine="tgi",
    marks=(("total_time",), ("queue_time",), ("inference_time",)),
    attributes=MappingProxyType(
        {
            "total_time": "total_seconds",
            # Tokenising and checking, before its queue.
            "validation_time": "frontend_seconds",
            "queue_time": "queue_seconds",
        }
    ),
    durations=True,
)

ENGINE = Engine(
    name="tgi",
    title="Text Generation Inference",
    ports=(3000, 8080),
    prefixes=("tgi_",),
    recognise=(Mark("queue_size"), Mark("request_count"), Mark("batch_current_size")),
    upstream=UPSTREAM,
    ignored=IGNORED,
    terms=(Term("batch_max_tokens"),),
    derived=(
        derive(
            "kv_cache_usage_ratio",
            Operation.RATIO,
            "batch_max_tokens",
            "kv_cache_capacity_tokens",
        ),
    ),
    model_at=(Lookup("/info", ("model_id",)), Lookup("/v1/models", ("data", 0, "id"))),
    switch_on="nothing to do: its API port has them at /metrics",
    spans=SPANS,
)
