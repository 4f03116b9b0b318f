"""Engine metrics: what every inference engine is made to say, whatever its own names are.

Latency histograms here keep the engine's own bounds; ``requests`` has ours, from the records.
"""

from __future__ import annotations

from tailscope.catalogue.model import PREFIX, Across, Kind, Metric, Unit

ENGINE = ("engine", "server", "model", "rank")

_QUEUE_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
_USAGE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)


def _gauge(
    name: str,
    help: str,
    unit: Unit = Unit.NONE,
    labels: tuple[str, ...] = (),
    across: Across = Across.SUM,
    stored: bool = False,
    weighted_by: str = "",
) -> Metric:
    return Metric(
        f"{PREFIX}engine_{name}",
        Kind.GAUGE,
        help,
        ENGINE + labels,
        unit,
        across,
        stored=stored,
        weighted_by=weighted_by and f"{PREFIX}engine_{weighted_by}",
    )


def _counter(
    name: str,
    help: str,
    unit: Unit = Unit.NONE,
    labels: tuple[str, ...] = (),
    stored: bool = False,
    integral_of: str = "",
    across: Across = Across.SUM,
) -> Metric:
    return Metric(
        f"{PREFIX}engine_{name}",
        Kind.COUNTER,
        help,
        ENGINE + labels,
        unit,
        across,
        integral_of=integral_of and f"{PREFIX}engine_{integral_of}",
        stored=stored,
    )


def _histogram(name: str, help: str, unit: Unit = Unit.NONE) -> Metric:
    return Metric(f"{PREFIX}engine_{name}", Kind.HISTOGRAM, help, ENGINE, unit)


def _distribution(
    gauge: str, help: str, buckets: tuple[float, ...], unit: Unit = Unit.NONE
) -> Metric:
    return Metric(
        f"{PREFIX}engine_{gauge}_sampled",
        Kind.HISTOGRAM,
        help,
        ENGINE,
        unit,
        buckets=buckets,
        distribution_of=f"{PREFIX}engine_{gauge}",
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        f"{PREFIX}engine_up",
        Kind.GAUGE,
        "Whether the engine's metrics could be read within the last three intervals (1) or not "
        "(0).",
        ("engine", "server"),
        across=Across.SUM,
    ),
    # Load now
    _gauge("requests_running", "Requests that hold a place in the running batch.", stored=True),
    _gauge("requests_waiting", "Requests that wait for a place in the batch.", stored=True),
    _gauge(
        "requests_waiting_by_reason",
        "Requests that wait, by the engine's reason: capacity, or deferred by a constraint.",
        labels=("reason",),
    ),
    _gauge(
        "kv_cache_usage_ratio",
        "Share of the key-value cache blocks that are in use.",
        Unit.RATIO,
        across=Across.MEAN,
        stored=True,
        weighted_by="kv_cache_capacity_tokens",
    ),
    _gauge(
        "kv_cache_capacity_tokens",
        "Tokens that fit into the key-value cache.",
        Unit.TOKENS,
        stored=True,
    ),
    _gauge(
        "slot_context_usage_ratio",
        "Share of the context of all slots that running requests fill; slots that share one "
        "cache make it too low.",
        Unit.RATIO,
        across=Across.MEAN,
    ),
    _gauge(
        "sleeping",
        "Whether the engine sleeps and serves nothing (1) or is awake (0).",
        across=Across.MAX,
    ),
    # Load between two scrapes
    _counter(
        "running_request_seconds_total",
        "Time integral of the running requests: its rate is their true mean.",
        Unit.SECONDS,
        integral_of="requests_running",
    ),
    _counter(
        "waiting_request_seconds_total",
        "Time integral of the waiting requests: its rate is their true mean.",
        Unit.SECONDS,
        integral_of="requests_waiting",
    ),
    _counter(
        "kv_cache_usage_seconds_total",
        "Time integral of the key-value cache usage: its rate is the true mean ratio.",
        Unit.SECONDS,
        integral_of="kv_cache_usage_ratio",
        across=Across.MEAN,
    ),
    _distribution(
        "requests_running", "Samples of the running requests, one an interval.", _QUEUE_BUCKETS
    ),
    _distribution(
        "requests_waiting", "Samples of the waiting requests, one an interval.", _QUEUE_BUCKETS
    ),
    _distribution(
        "kv_cache_usage_ratio",
        "Samples of the key-value cache usage, one an interval.",
        _USAGE_BUCKETS,
        Unit.RATIO,
    ),
    # Work done
    _counter(
        "prompt_tokens_total",
        "Prompt tokens of the requests, those found in the prefix cache included.",
        Unit.TOKENS,
        stored=True,
    ),
    _counter(
        "prompt_tokens_by_source_total",
        "Prompt tokens by where their keys and values came from.",
        Unit.TOKENS,
        labels=("origin",),
    ),
    _counter(
        "generation_tokens_total",
        "Tokens that were generated, those of aborted requests included.",
        Unit.TOKENS,
        stored=True,
    ),
    _counter(
        "prefix_cache_query_tokens_total",
        "Prompt tokens that were looked up in the prefix cache.",
        Unit.TOKENS,
        stored=True,
    ),
    _counter(
        "prefix_cache_hit_tokens_total",
        "Prompt tokens that were found in the prefix cache.",
        Unit.TOKENS,
        stored=True,
    ),
    _counter(
        "external_cache_query_tokens_total",
        "Prompt tokens that were looked up in a cache outside the engine.",
        Unit.TOKENS,
    ),
    _counter(
        "external_cache_hit_tokens_total",
        "Prompt tokens that were found in a cache outside the engine.",
        Unit.TOKENS,
    ),
    _counter(
        "cached_prompt_tokens_total",
        "Prompt tokens that were found in a cache, by the tier that held them.",
        Unit.TOKENS,
        labels=("tier",),
    ),
    _counter(
        "preemptions_total",
        "Running requests that lost their place because the key-value cache was full.",
        stored=True,
    ),
    _counter(
        "requests_finished_total",
        "Requests that the engine ended, by its own reason.",
        labels=("reason",),
        stored=True,
    ),
    _counter(
        "admission_rejections_total",
        "Requests that the engine refused at the door, by the limit that they met.",
        labels=("reason",),
    ),
    _counter(
        "speculative_draft_tokens_total",
        "Tokens that speculative decoding proposed.",
        Unit.TOKENS,
    ),
    _counter(
        "speculative_accepted_tokens_total",
        "Tokens of speculative decoding that were accepted.",
        Unit.TOKENS,
    ),
    _counter("steps_total", "Batch steps of the engine."),
    _counter(
        "prefill_spent_seconds_total",
        "Time that requests spent in prefill, added up over the requests.",
        Unit.SECONDS,
    ),
    _counter(
        "decode_spent_seconds_total",
        "Time that requests spent in decode, added up over the requests.",
        Unit.SECONDS,
    ),
    _histogram("step_tokens", "Tokens in one batch step, prompt and generated.", Unit.TOKENS),
    # Latency in the engine's own words
    _histogram(
        "time_to_first_token_seconds",
        "Time from arrival to the first token, by the engine.",
        Unit.SECONDS,
    ),
    _histogram(
        "inter_token_latency_seconds",
        "Time between two outputs of a request, by the engine.",
        Unit.SECONDS,
    ),
    _histogram(
        "time_per_output_token_seconds",
        "Mean time per output token of a request, by the engine.",
        Unit.SECONDS,
    ),
    _histogram("request_seconds", "Time from arrival to the end, by the engine.", Unit.SECONDS),
    _histogram("queue_seconds", "Time in the engine's queue, by the engine.", Unit.SECONDS),
    _histogram(
        "prefill_seconds",
        "Time from the first step of a request to its first token, by the engine.",
        Unit.SECONDS,
    ),
    _histogram(
        "decode_seconds",
        "Time from the first token of a request to its last, by the engine.",
        Unit.SECONDS,
    ),
    _histogram(
        "inference_seconds",
        "Time in prefill and decode together, by the engine.",
        Unit.SECONDS,
    ),
    # Sizes in the engine's own words
    _histogram("request_input_tokens", "Prompt tokens of a request.", Unit.TOKENS),
    _histogram("request_output_tokens", "Generated tokens of a request.", Unit.TOKENS),
    _histogram("request_max_tokens", "The max_tokens that a request asked for.", Unit.TOKENS),
    _histogram(
        "request_computed_input_tokens",
        "Prompt tokens of a request that had to be computed: those not in a cache.",
        Unit.TOKENS,
    ),
    _histogram("request_preemptions", "How often a request was preempted."),
)
