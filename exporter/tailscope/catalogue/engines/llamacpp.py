"""llama.cpp's server: no label at all, few families, and ``/slots`` beside them.

Names, types and behaviour are of recordings of builds 11549; what older builds had comes from the
project's own history. What was measured on a real server:

- ``prompt_tokens_total`` leaves cached tokens out;
- the two throughput gauges tell of the time since anybody's last scrape: a second scraper reads 0;
- ``n_tokens_max`` is declared a counter and is a high-water mark;
- ``tokens_predicted_total`` moves when a request ends, also when it is cancelled;
- in ``/slots``, ``n_prompt_tokens`` is the length of the whole sequence: it grows with each token
  that is generated, so that adding ``n_decoded`` would count those twice; a slot that has become
  idle keeps its last one;
- slots that share one cache (``kv_unified``, the default without ``--parallel``) each name the
  whole of it as their context, and nothing tells.
"""

from __future__ import annotations

from tailscope.catalogue.declare import derive, ignore, term, to
from tailscope.catalogue.model import Kind
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

UPSTREAM = (
    to("requests_running", "requests_processing"),
    to("requests_waiting", "requests_deferred"),
    # Until May 2025.
    to("kv_cache_usage_ratio", "kv_cache_usage_ratio"),
    term("slots_context", "slots_context"),
    term("slots_tokens", "slots_tokens"),
    term("computed_tokens", "prompt_tokens"),
    term("cached_tokens", "prompt_tokens_cached"),
    to("prompt_tokens_by_source_total", "prompt_tokens", fixed={"origin": "local_compute"}),
    to(
        "prompt_tokens_by_source_total",
        "prompt_tokens_cached",
        fixed={"origin": "local_cache_hit"},
    ),
    to("prefix_cache_hit_tokens_total", "prompt_tokens_cached"),
    to("generation_tokens_total", "tokens_predicted"),
    to("prefill_spent_seconds_total", "prompt_seconds"),
    to("decode_spent_seconds_total", "tokens_predicted_seconds"),
    to("steps_total", "n_decode"),
    to("speculative_draft_tokens_total", "spec_decode_num_draft_tokens"),
    to("speculative_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
)

_PREFIX = r"llamacpp[:_]"

IGNORED = (
    ignore(
        _PREFIX + r"(prompt|predicted)_tokens_seconds",
        "of the time since anybody's last scrape; rates come from the counters",
    ),
    ignore(_PREFIX + r"n_(tokens|past)_max", "a high-water mark, whatever its type says"),
    ignore(_PREFIX + r"n_busy_slots_per_decode", "a mean over the server's whole life"),
    ignore(_PREFIX + r"spec_decode_num_drafts.*", "detail of speculative decoding"),
    ignore(_PREFIX + r"kv_cache_tokens", "the ratio beside it says it; both gone since May 2025"),
)

ENGINE = Engine(
    name="llamacpp",
    title="llama.cpp",
    ports=(8080,),
    prefixes=("llamacpp:", "llamacpp_"),
    recognise=(Mark("requests_processing"), Mark("prompt_tokens"), Mark("tokens_predicted")),
    upstream=UPSTREAM,
    ignored=IGNORED,
    terms=(
        Term("slots_context"),
        Term("slots_tokens"),
        Term("computed_tokens", Kind.COUNTER),
        Term("cached_tokens", Kind.COUNTER),
    ),
    derived=(
        derive("prompt_tokens_total", Operation.SUM, "computed_tokens", "cached_tokens"),
        derive(
            "prefix_cache_query_tokens_total", Operation.SUM, "computed_tokens", "cached_tokens"
        ),
        derive("slot_context_usage_ratio", Operation.RATIO, "slots_tokens", "slots_context"),
    ),
    model_at=(
        Lookup("/v1/models", ("data", 0, "id"), last_part=True),
        Lookup("/props", ("model_path",), last_part=True),
    ),
    documents=(
        Document(
            "/slots",
            marks=("id", "n_ctx", "is_processing"),
            fields=(
                Field("slots_context", ("n_ctx",), reduce=Reduce.SUM),
                Field(
                    "slots_tokens",
                    ("n_prompt_tokens",),
                    reduce=Reduce.SUM,
                    when=("is_processing",),
                ),
            ),
        ),
    ),
    switch_on="start llama-server with --metrics",
)
