"""NVIDIA Dynamo's frontend: what all workers together do, as seen at the HTTP door.

Recorded from Dynamo 1.6.1; older names are from its own name list and its release notes. The
frontend counts a request as in flight from the first byte, and as queued until its first token,
so that "waiting" here has the prefill in it.
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.catalogue.declare import derive, ignore, term, to
from tailscope.catalogue.model import Kind
from tailscope.catalogue.upstream import Engine, Mark, Operation, Part, Term

UPSTREAM = (
    # inflight_requests_total was its name until 0.5, and a gauge already.
    term("in_flight", "inflight_requests"),
    to("requests_waiting", "queued_requests"),
    to("prompt_tokens_total", "input_sequence_tokens", part=Part.SUM),
    to("generation_tokens_total", "output_tokens"),
    to("generation_tokens_total", "output_sequence_tokens", part=Part.SUM),
    to("prefix_cache_query_tokens_total", "input_sequence_tokens", part=Part.SUM),
    to("prefix_cache_hit_tokens_total", "cached_tokens", part=Part.SUM),
    to(
        "requests_finished_total",
        "requests",
        only={"status": ("success",)},
        fixed={"reason": "success"},
    ),
    to(
        "requests_finished_total",
        "requests",
        only={"status": ("error",)},
        labels={"error_type": "reason"},
    ),
    to("time_to_first_token_seconds", "time_to_first_token_seconds"),
    to("inter_token_latency_seconds", "inter_token_latency_seconds"),
    to("request_seconds", "request_duration_seconds"),
    to("request_input_tokens", "input_sequence_tokens"),
    to("request_output_tokens", "output_sequence_tokens"),
)

_FRONTEND = r"(dynamo_frontend|nv_llm_http_service)_"

IGNORED = (
    ignore(r"dynamo_component_.*", "what the router and the runtime say of themselves"),
    ignore(
        r"dynamo_(router|request_plane|tokio|transport|event_plane|kvindexer|runtime|rejection)_.*",
        "the runtime's own health",
    ),
    ignore(_FRONTEND + r"active_requests", "the same as those in flight"),
    ignore(_FRONTEND + r"requests_started.*", "those that end are counted"),
    ignore(_FRONTEND + r"failures.*", "requests_total has the errors, by model"),
    ignore(_FRONTEND + r"disconnected_clients", "a count that is declared a gauge"),
    ignore(
        _FRONTEND + r"(audio|images|videos|image_tokens|video|mm)_?.*", "attachments of requests"
    ),
    ignore(
        _FRONTEND
        + r"(tokenize|detokenize|template|event_loop|stage|tokenizer|kv_transfer|kv_hit_rate).*",
        "steps of the frontend itself",
    ),
    ignore(_FRONTEND + r"worker_(last|active)_.*", "last values by worker, without end of workers"),
    ignore(_FRONTEND + r"worker_.*", "by worker; a worker's own page says it"),
    ignore(
        _FRONTEND
        + r"model_(workers|total_kv_blocks|max_|context|kv_cache_block|migration_limit|ready).*",
        "settings of one worker; how many there are it does not say",
    ),
    ignore(_FRONTEND + r"model_(migration|cancellation|rejection).*", "detail of routing"),
    ignore(_FRONTEND + r"(router_queue_.*|lora_.*|request_(success|error)_count)", "not needed"),
)

ENGINE = Engine(
    name="dynamo",
    title="NVIDIA Dynamo frontend",
    ports=(8000,),
    # The second is that of releases before 0.4.
    prefixes=("dynamo_frontend_", "nv_llm_http_service_"),
    recognise=(
        Mark("inflight_requests"),
        Mark("requests"),
        Mark("time_to_first_token_seconds"),
        # All that there is before the first request, but for what the workers have too.
        Mark("disconnected_clients"),
    ),
    layer=2,
    upstream=UPSTREAM,
    ignored=IGNORED,
    terms=(Term("in_flight"),),
    derived=(derive("requests_running", Operation.DIFFERENCE, "in_flight", "requests_waiting"),),
    model_labels=("model",),
    kinds=MappingProxyType({"inflight_requests_total": Kind.GAUGE}),
    switch_on="nothing to do: its HTTP port has them at /metrics",
)
