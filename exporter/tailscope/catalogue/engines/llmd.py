"""The llm-d router, and the endpoint picker of the Gateway API inference extension before it.

Names are from their sources and the router's own metrics page. There are five generations of
prefixes; for a time the newest stood beside the oldest with the same numbers. ``fairness_id`` is
a tenant, without end until 2026, and becomes no label here.
"""

from __future__ import annotations

from tailscope.catalogue.declare import at_gateway, ignore
from tailscope.catalogue.upstream import Engine, Mark, Part

_EPP = ("llm_d_epp_", "llm_d_router_epp_", "llm_d_inference_scheduler_")
_REQUESTS = (*_EPP, "inference_objective_", "inference_model_")
_EXTENSION = (*_EPP, "inference_extension_")
_POOL = (*_EPP, "inference_pool_")


def _names(prefixes: tuple[str, ...], *families: str) -> tuple[str, ...]:
    """Return the families under each prefix, newest names first."""
    return tuple(prefix + family for prefix in prefixes for family in families)


_INPUT = _names(_REQUESTS, "request_input_tokens", "input_tokens")
_OUTPUT = _names(_REQUESTS, "request_output_tokens", "output_tokens")
_CACHED = _names(_REQUESTS, "request_cached_tokens", "prompt_cached_tokens")

UPSTREAM = (
    at_gateway("requests_in_flight", *_names(_REQUESTS, "request_running", "running_requests")),
    at_gateway("requests_waiting", *_names(_EXTENSION, "flow_control_queue_size")),
    at_gateway("endpoints_ready", *_names(_POOL, "ready_endpoints", "ready_pods")),
    # Newer ones give it by stage, and the largest as "effective".
    at_gateway(
        "saturation",
        *_names(_EXTENSION, "flow_control_pool_saturation"),
        only={"stage": ("effective", "")},
    ),
    at_gateway("requests_total", *_names(_REQUESTS, "request")),
    at_gateway(
        "request_errors_total",
        *_names(_REQUESTS, "request_error"),
        labels={"error_code": "reason"},
    ),
    at_gateway(
        "queue_outcomes_total",
        *_names(_EXTENSION, "flow_control_requests"),
        labels={"outcome": "outcome"},
    ),
    at_gateway("input_tokens_total", *_INPUT, part=Part.SUM),
    at_gateway("cached_input_tokens_total", *_CACHED, part=Part.SUM),
    at_gateway("output_tokens_total", *_OUTPUT, part=Part.SUM),
    at_gateway("request_seconds", *_names(_REQUESTS, "request_duration_seconds")),
    # Of an answer in one piece, the first token is the last.
    at_gateway(
        "time_to_first_token_seconds",
        *_names(_REQUESTS, "request_ttft_seconds"),
        only={"streaming": ("true", "")},
    ),
    at_gateway(
        "time_per_output_token_seconds",
        *_names(_REQUESTS, "request_streaming_tpot_seconds", "request_tpot_seconds"),
    ),
    at_gateway("inter_token_latency_seconds", *_names(_REQUESTS, "request_streaming_itl_seconds")),
    # One that is turned away waits for nothing.
    at_gateway(
        "queue_seconds",
        *_names(_EXTENSION, "flow_control_request_queue_duration_seconds"),
        only={"outcome": ("Dispatched",)},
    ),
    at_gateway("overhead_seconds", *_names(_EXTENSION, "scheduler_e2e_duration_seconds")),
    at_gateway("request_input_tokens", *_INPUT),
    at_gateway("request_output_tokens", *_OUTPUT),
)

_ANY = r"(llm_d_(epp|router_epp|inference_scheduler)|inference_(objective|model|pool|extension))_"

IGNORED = (
    ignore(
        r"(python|process|go|promhttp|controller_runtime|workqueue|rest_client|certwatcher"
        r"|leader_election|grpc|moriio|kvcache|hidden_metrics|registered_metrics)_.*",
        "the process, not the requests",
    ),
    ignore(
        _ANY + r"(normalized_time_per_output_token|request_ntpot)_seconds",
        "the whole time by the number of tokens: queue and prefill are in it",
    ),
    ignore(
        _ANY + r"(average|std_dev|per_pod|per_endpoint)_.*",
        "what it read from the engines; each is read itself",
    ),
    ignore(_ANY + r"(request|response)_size(s|_bytes)", "bytes, not tokens"),
    ignore(
        _ANY + r"flow_control_(?!queue_size|pool_saturation|requests|request_queue_duration).*",
        "detail of the queue",
    ),
    ignore(
        _ANY + r"(.*predict.*|.*slo_violation.*|inference_request_metric)", "predictions of its own"
    ),
    ignore(
        _ANY + r"(scheduler_attempts|scheduler_plugin|plugin|prefix|info|build|model_rewrite"
        r"|datalayer|config|disagg|pd|request_processing|response_processing|extproc"
        r"|inflight|encoder|program_aware|kv_cache|tool).*",
        "steps of the router itself",
    ),
)

ENGINE = Engine(
    name="llmd",
    title="llm-d router",
    ports=(9090,),
    prefixes=("",),
    recognise=(
        *(Mark(name) for name in _names(_REQUESTS, "request", "request_duration_seconds")),
        *(Mark(name) for name in _names(_REQUESTS, "request_running", "running_requests")),
        *(Mark(name) for name in _names(_POOL, "ready_endpoints", "ready_pods")),
    ),
    layer=2,
    upstream=UPSTREAM,
    ignored=IGNORED,
    model_labels=("model_name",),
    switch_on="nothing to do, but its metrics port wants a token: give one, or start it with "
    "--metrics-endpoint-auth=false",
)
