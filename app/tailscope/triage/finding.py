"""The finding: everything that is said about a window, as values, neither text nor drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tailscope.triage.epoch import Epoch
from tailscope.triage.hardware import Gpu
from tailscope.triage.loads import TenantLoad
from tailscope.triage.quantiles import Quantiles
from tailscope.triage.slow import SlowRule
from tailscope.triage.survival import Cut


@dataclass(frozen=True, slots=True)
class Window:
    """What was looked at.

    Attributes:
        start_ns: First arrival that counts, or the first one there was; None if there was none.
        end_ns: End of the window, or the last arrival.
        requests: Requests in it, refused and failed ones included.
        servers: Servers that they ran on, where known.
        models: Models, where known.
    """

    start_ns: int | None
    end_ns: int | None
    requests: int
    servers: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in seconds; what nobody measured is None or not there.

    Attributes:
        total: From arrival to the end, as the engine saw it where it did.
        ttft: From arrival to the first token.
        client: Total as the gateway or client saw it.
        stages: By stage, in their order.
        cut: Where a client's timeout cuts the tail; None where none shows.
    """

    total: Quantiles | None
    ttft: Quantiles | None
    client: Quantiles | None
    stages: Mapping[str, Quantiles]
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """One slow request.

    Attributes:
        key: Its name in links.
        arrived_ns: Arrival, UTC nanoseconds.
        request_id: The id that the client sent, if any.
        tenant: Whose it was.
        model: Served model, if known.
        server: Engine instance, if known.
        input_tokens: Prompt tokens, if known.
        output_tokens: Generated tokens, if known.
        total_seconds: Total time, if known.
        ttft_seconds: Time to first token, if known.
        excess_seconds: Time above what it would take alone, if known.
        stages: Seconds by stage, where known.
        stage: Stage with the most excess; None if no stage has any.
        outcome: How it ended, if known.
    """

    key: str
    arrived_ns: int
    request_id: str | None
    tenant: str
    model: str | None
    server: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_seconds: float | None
    ttft_seconds: float | None
    excess_seconds: float | None
    stages: Mapping[str, float]
    stage: str | None
    outcome: str | None

    @property
    def name(self) -> str:
        """What a person calls it: the client's id, or the span."""
        return self.request_id or self.key.partition("-")[2] or self.key


@dataclass(frozen=True, slots=True)
class Slow:
    """The slow requests together.

    Attributes:
        rule: What slow means.
        threshold: What that came to, in seconds; None if there were too few requests.
        requests: How many are slow.
        seconds: Their total time.
        excess_seconds: Their time above what they would take alone.
        by_stage: That excess by stage, for the stages that are known.
        inferred: How many of them have inferred stage times.
        slowest: The worst of them, worst first.
    """

    rule: SlowRule
    threshold: float | None
    requests: int
    seconds: float
    excess_seconds: float
    by_stage: Mapping[str, float]
    inferred: int
    slowest: tuple[SlowRequest, ...]

    @property
    def stage(self) -> str | None:
        """Stage that holds the most slow seconds; None if none holds any."""
        held = {name: seconds for name, seconds in self.by_stage.items() if seconds > 0}
        return max(held, key=lambda name: held[name]) if held else None

    @property
    def stage_share(self) -> float | None:
        """That stage's part of the slow seconds of all stages, 0-1."""
        stage = self.stage
        return self.by_stage[stage] / sum(self.by_stage.values()) if stage else None


@dataclass(frozen=True, slots=True)
class Quality:
    """How far the data carry.

    Attributes:
        requests: Requests in the window.
        failed: Refused or failed ones: counted, not in the percentiles.
        cut_short: Aborted or timed out: in the percentiles as lower bounds.
        without_tenant: Requests without a tenant.
        without_stages: Measured requests without any stage time.
        without_server: Requests without a server: they share one imagined server.
        joined: How many requests met a row of the other side, by way.
        inferred: Columns that were inferred, not told, and for how many requests.
        outcomes: Requests by outcome; ``unknown`` where there is none.
        rejected: Lines of an input file that were no record, by reason.
    """

    requests: int
    failed: int
    cut_short: int
    without_tenant: int
    without_stages: int
    without_server: int
    joined: Mapping[str, int]
    inferred: Mapping[str, int]
    outcomes: Mapping[str, int]
    rejected: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Sight:
    """What shows at first sight, before any cost is known; see ``Finding``."""

    window: Window
    latency: Latency
    quality: Quality


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question.

    Attributes:
        window: What was looked at.
        latency: Percentiles.
        slow: The slow requests.
        tenants: Load by tenant, the largest first.
        quality: How far the data carry.
        gpus: What the GPUs went through meanwhile; empty where no sample of any is known.
        origin_ns: Time 0 of the epochs, UTC nanoseconds.
        epochs: Engines that came back as other ones: costs are fitted apart.
    """

    window: Window
    latency: Latency
    slow: Slow
    tenants: tuple[TenantLoad, ...]
    quality: Quality
    gpus: tuple[Gpu, ...] = ()
    origin_ns: int = 0
    epochs: tuple[Epoch, ...] = ()
