"""Gateway metrics: what stands in front of engines says of the requests that pass through it.

Under names of their own: a request that passes a gateway is counted by the gateway and by the
engine, and the sum of the two would be a lie. The labels are those of an engine's metrics.
"""

from __future__ import annotations

from tailscope.catalogue.inference import ENGINE
from tailscope.catalogue.model import PREFIX, Across, Kind, Metric, Unit


def _metric(
    kind: Kind,
    name: str,
    help: str,
    unit: Unit = Unit.NONE,
    labels: tuple[str, ...] = (),
    across: Across = Across.SUM,
) -> Metric:
    return Metric(f"{PREFIX}gateway_{name}", kind, help, ENGINE + labels, unit, across)


METRICS: tuple[Metric, ...] = (
    # Load now
    _metric(
        Kind.GAUGE,
        "requests_in_flight",
        "Requests that the gateway has taken and not yet answered in full.",
    ),
    _metric(Kind.GAUGE, "requests_waiting", "Requests that the gateway holds back in its queue."),
    _metric(Kind.GAUGE, "endpoints_ready", "Servers to which the gateway can send requests."),
    _metric(
        Kind.GAUGE,
        "saturation",
        "How full the gateway takes its servers to be: from 1 on it holds requests back.",
        across=Across.MAX,
    ),
    # Work done
    _metric(Kind.COUNTER, "requests_total", "Requests that reached the gateway."),
    _metric(
        Kind.COUNTER,
        "responses_total",
        "Requests that the gateway answered, by HTTP status.",
        labels=("code",),
    ),
    _metric(
        Kind.COUNTER,
        "request_errors_total",
        "Requests that the gateway could not serve, by its own reason.",
        labels=("reason",),
    ),
    _metric(
        Kind.COUNTER,
        "queue_outcomes_total",
        "Requests that left the gateway's queue, by what became of them.",
        labels=("outcome",),
    ),
    _metric(
        Kind.COUNTER,
        "input_tokens_total",
        "Prompt tokens of the requests, those found in a prefix cache included.",
        Unit.TOKENS,
    ),
    _metric(
        Kind.COUNTER,
        "cached_input_tokens_total",
        "Prompt tokens that a server found in its prefix cache.",
        Unit.TOKENS,
    ),
    _metric(Kind.COUNTER, "output_tokens_total", "Tokens that were generated.", Unit.TOKENS),
    # Latency in the gateway's own words
    _metric(
        Kind.HISTOGRAM,
        "request_seconds",
        "Time from arrival at the gateway to the end.",
        Unit.SECONDS,
    ),
    _metric(
        Kind.HISTOGRAM,
        "time_to_first_token_seconds",
        "Time to the first token, by the gateway; of streamed requests only, as a rule.",
        Unit.SECONDS,
    ),
    _metric(
        Kind.HISTOGRAM,
        "time_per_output_token_seconds",
        "Mean time per output token of a request, by the gateway.",
        Unit.SECONDS,
    ),
    _metric(
        Kind.HISTOGRAM,
        "inter_token_latency_seconds",
        "Time between two parts of a streamed answer, by the gateway.",
        Unit.SECONDS,
    ),
    _metric(
        Kind.HISTOGRAM,
        "queue_seconds",
        "Time in the gateway's own queue, before a server was tried.",
        Unit.SECONDS,
    ),
    _metric(
        Kind.HISTOGRAM,
        "upstream_seconds",
        "Time that the gateway waited for the server, up to the whole answer.",
        Unit.SECONDS,
    ),
    _metric(
        Kind.HISTOGRAM,
        "overhead_seconds",
        "Time that the gateway itself added to a request.",
        Unit.SECONDS,
    ),
    # Sizes
    _metric(Kind.HISTOGRAM, "request_input_tokens", "Prompt tokens of a request.", Unit.TOKENS),
    _metric(Kind.HISTOGRAM, "request_output_tokens", "Generated tokens of a request.", Unit.TOKENS),
)
