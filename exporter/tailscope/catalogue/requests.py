"""Request metrics: made from the request records, with one bucket layout for every engine.

One layout means that histograms of several engines may be summed; engines' own may not.
"""

from __future__ import annotations

from tailscope.catalogue.model import PREFIX, Kind, Metric, Unit

REQUEST = ("engine", "server", "model")

STAGES = ("frontend", "queue", "prefill", "decode")
"""Stages of a request, in the order in which it meets them, and in which one looks for trouble."""

SECONDS_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0,
    4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 480.0,
)  # fmt: skip
TOKEN_SECONDS_BUCKETS = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2,
    0.3, 0.5, 0.75, 1.0, 2.5, 5.0,
)  # fmt: skip
TOKENS_BUCKETS = tuple(float(2**k) for k in range(21))

METRICS: tuple[Metric, ...] = (
    Metric(
        f"{PREFIX}request_seconds",
        Kind.HISTOGRAM,
        "Time from arrival to the end of a request.",
        (*REQUEST, "tenant"),
        Unit.SECONDS,
        buckets=SECONDS_BUCKETS,
    ),
    Metric(
        f"{PREFIX}request_time_to_first_token_seconds",
        Kind.HISTOGRAM,
        "Time from arrival to the first token of a request.",
        (*REQUEST, "tenant"),
        Unit.SECONDS,
        buckets=SECONDS_BUCKETS,
    ),
    Metric(
        f"{PREFIX}request_time_per_output_token_seconds",
        Kind.HISTOGRAM,
        "Decode time of a request divided by its output tokens after the first.",
        REQUEST,
        Unit.SECONDS,
        buckets=TOKEN_SECONDS_BUCKETS,
    ),
    Metric(
        f"{PREFIX}request_stage_seconds",
        Kind.HISTOGRAM,
        "Time of a request in one stage: frontend, queue, prefill or decode.",
        (*REQUEST, "stage"),
        Unit.SECONDS,
        buckets=SECONDS_BUCKETS,
    ),
    Metric(
        f"{PREFIX}request_input_tokens",
        Kind.HISTOGRAM,
        "Prompt tokens of a request.",
        REQUEST,
        Unit.TOKENS,
        buckets=TOKENS_BUCKETS,
    ),
    Metric(
        f"{PREFIX}request_output_tokens",
        Kind.HISTOGRAM,
        "Generated tokens of a request.",
        REQUEST,
        Unit.TOKENS,
        buckets=TOKENS_BUCKETS,
    ),
    Metric(
        f"{PREFIX}requests_total",
        Kind.COUNTER,
        "Requests that ended, by tenant and outcome.",
        (*REQUEST, "tenant", "outcome"),
    ),
    Metric(
        f"{PREFIX}request_retries_total",
        Kind.COUNTER,
        "Attempts after the first of the same call, by tenant.",
        (*REQUEST, "tenant"),
    ),
    Metric(
        f"{PREFIX}tenant_input_tokens_total",
        Kind.COUNTER,
        "Prompt tokens by tenant, and whether they came from the prefix cache: yes, no or unknown.",
        (*REQUEST, "tenant", "cached"),
        Unit.TOKENS,
    ),
    Metric(
        f"{PREFIX}tenant_output_tokens_total",
        Kind.COUNTER,
        "Generated tokens by tenant.",
        (*REQUEST, "tenant"),
        Unit.TOKENS,
    ),
    Metric(
        f"{PREFIX}tenant_slot_seconds_total",
        Kind.COUNTER,
        "Time that a tenant's requests held a place in the batch: a load, not a blame.",
        (*REQUEST, "tenant"),
        Unit.SECONDS,
    ),
    Metric(
        f"{PREFIX}tenant_overflow_requests_total",
        Kind.COUNTER,
        "Requests of tenants that have no series of their own: they count as tenant `other`.",
    ),
)
