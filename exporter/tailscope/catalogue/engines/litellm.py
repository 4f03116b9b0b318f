"""LiteLLM's proxy as a gateway.

Recorded from LiteLLM 1.110.2; 1.55 was read in its source. Users, keys, teams, addresses of clients
and the models that they ask for are labels there, without end: none of them becomes a label here,
all are added up. Who caused what load is told by request records, where tenants are bounded.
"""

from __future__ import annotations

from tailscope.catalogue.declare import PYTHON, at_gateway, ignore
from tailscope.catalogue.upstream import Engine, Mark

UPSTREAM = (
    at_gateway("requests_in_flight", "in_flight_requests"),
    # All that reaches the proxy, also what asks for its metrics without a key.
    at_gateway("requests_total", "proxy_total_requests_metric"),
    at_gateway("responses_total", "proxy_total_requests_metric", labels={"status_code": "code"}),
    at_gateway(
        "request_errors_total",
        "proxy_failed_requests_metric",
        labels={"exception_status": "reason"},
    ),
    # 1.55 had no _metric in these names.
    at_gateway("input_tokens_total", "input_tokens_metric", "input_tokens"),
    # input_cached_tokens_metric is the younger name; the other is there as well.
    at_gateway(
        "cached_input_tokens_total",
        "input_cached_tokens_metric",
        "provider_cache_read_input_tokens_metric",
    ),
    at_gateway("output_tokens_total", "output_tokens_metric", "output_tokens"),
    at_gateway("request_seconds", "request_total_latency_metric"),
    at_gateway("upstream_seconds", "llm_api_latency_metric"),
    at_gateway("time_to_first_token_seconds", "llm_api_time_to_first_token_metric"),
    at_gateway("time_per_output_token_seconds", "deployment_latency_per_output_token"),
    at_gateway("queue_seconds", "request_queue_time_seconds"),
    at_gateway("overhead_seconds", "overhead_latency_metric"),
)

IGNORED = (
    PYTHON,
    ignore(r"litellm_overhead_with_guardrails_latency_metric", "overhead_latency_metric again"),
    ignore(
        r"litellm_(requests_metric|llm_api_failed_requests_metric|total_tokens|.*_by_tag).*",
        "counted by the families that are mapped",
    ),
    ignore(
        r"litellm_(spend|zero_cost|remaining|provider_remaining|.*_(max_)?budget)_?.*"
        r"|litellm_.*_(rate_limit|budget)_.*|litellm_(api_key|team|user|org|customer|project)_.*",
        "money and limits",
    ),
    ignore(r"litellm_deployment_(?!latency_per_output_token).*", "each attempt, by model and key"),
    ignore(
        r"litellm_(cache|cached|provider_cache_creation|input_cache_creation)_.*",
        "its own cache, and what providers write to theirs",
    ),
    ignore(
        r"litellm_(input|output)_(audio|reasoning)_tokens.*|litellm_(video|images)_.*",
        "parts of the token counts",
    ),
    ignore(
        r"litellm_(guardrail|callback|mcp|managed|check_batch|total_users|active_users|teams"
        r"|accounting|not_a_premium|pod_lock|in_memory|redis|postgres|batch_write|self|router|proxy_pre_call"
        r"|reset_budget|auth|db|websocket|vector|prometheus).*",
        "the proxy's own services",
    ),
)

ENGINE = Engine(
    name="litellm",
    title="LiteLLM",
    ports=(4000,),
    prefixes=("litellm_",),
    recognise=(
        Mark("proxy_total_requests_metric"),
        Mark("in_flight_requests"),
        Mark("request_total_latency_metric"),
        Mark("deployment_state"),
    ),
    layer=2,
    upstream=UPSTREAM,
    ignored=IGNORED,
    # The name at the server: the same one as in the engine's own metrics.
    model_labels=("model", "litellm_model_name", "model_group"),
    nameless=("", "None"),
    switch_on='litellm_settings: callbacks: ["prometheus"]; a proxy with keys wants one for '
    "/metrics too, or require_auth_for_metrics_endpoint: false",
)
