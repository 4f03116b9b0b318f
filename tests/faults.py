"""A fleet in which every machine has one fault for an hour, as OpenMetrics to load into Prometheus.

Each machine has an exporter, an engine, two GPUs and three tenants; its numbers vary a little, the
same for the same seed. A fault says what is unlike usual, and which alerts must fire: the one that
names the cause, and those of its consequences.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Value = float | Callable[[float], float]
"""A number, or one that changes: a function of how much of the fault has passed, 0 to 1."""

SEGMENT = 5
"""Minutes for which a rate is the same."""


@dataclass(frozen=True, slots=True)
class State:
    """What a machine does. Rates are a minute, times seconds, shares 0 to 1."""

    requests: Value = 120
    waiting: Value = 0.1
    running: Value = 20
    queue: Value = 0.05
    prefill: Value = 0.2
    tokens: Value = 200  # generated a request
    outputs: Value = 24_000  # generated in all, aborted requests included
    cache: Value = 0.5
    preempted: Value = 0  # a request
    hits: Value = 0.6
    long_gaps: Value = 0
    long_steps: Value = 0
    swing: Value = 0
    long_prompts: Value = 0
    late_first: Value = 0.002
    late: Value = 0.002
    very_late: Value = 0
    beyond: Value = 0
    retries: Value = 0.01
    aborted: Value = 0.005
    acme: Value = 0.34
    hot: Value = 0
    capped: Value = 0.05
    clock: Value = 0.97
    memory_busy: Value = 0.55
    sm_busy: Value = 0.7
    xid: str = ""
    gpu: float | None = 1
    exporter: bool = True
    source: float = 1
    stale_source: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong on one machine.

    Attributes:
        name: What it is called; the machine's name too.
        alerts: All that fire, without their common prefix, and no others.
        state: The machine while it lasts.
        usual: The machine before.
    """

    name: str
    alerts: frozenset[str]
    state: State
    usual: State = field(default_factory=State)


def _fault(name: str, alerts: str, usual: State | None = None, **unlike: Any) -> Fault:
    before = usual or State()
    return Fault(name, frozenset(alerts.split()), replace(before, **unlike), before)


_IDLE: Mapping[str, Any] = {
    "requests": 0, "waiting": 0, "running": 0, "cache": 0, "outputs": 0, "memory_busy": 0.01,
    "sm_busy": 0.01, "capped": 0,
}  # fmt: skip

FAULTS = (
    _fault("healthy", ""),
    _fault("idle night", "", **_IDLE),
    _fault(
        "queue saturated",
        "QueueSaturated QueueDominatesFirstToken HeadroomLow FirstTokenBudgetBurn",
        waiting=40,
        running=32,
        queue=12,
        late_first=0.9,
    ),
    _fault(
        "engine stalled",
        "EngineStalled HeadroomLow",
        **{**_IDLE, "waiting": 10, "running": 20, "cache": 0.5},
    ),
    _fault("interference", "PrefillInterference", long_gaps=0.05, long_steps=0.1),
    _fault("batch swings", "BatchSpread", swing=0.5),
    _fault("prompts of uneven length", "InputLengthSpread", long_prompts=0.1, prefill=0.7),
    _fault("cache full", "CachePressure HeadroomLow", cache=0.98, waiting=3, queue=0.15),
    _fault("cache preempts", "CachePreempting HeadroomLow", cache=0.97, preempted=0.05),
    _fault(
        "preemption storm",
        "PreemptionStorm CachePreempting CachePressure QueueSaturated QueueDominatesFirstToken "
        "HeadroomLow FirstTokenBudgetBurn",
        cache=0.99,
        preempted=0.4,
        waiting=6,
        queue=3,
        late_first=0.6,
    ),
    _fault("prefix cache collapses", "PrefixCacheCollapse", hits=0.05),
    _fault("noisy tenant", "NoisyTenant QueueDominatesFirstToken", acme=0.85, queue=0.8),
    _fault("large tenant that is no news", "", State(acme=0.8), queue=0.15),
    _fault("larger tenant that harms nobody", "", acme=0.85),
    _fault("GPU too hot", "GpuThermalThrottle", hot=0.4, clock=0.6),
    _fault("GPU short of power", "GpuPowerThrottle", capped=0.6, clock=0.7),
    _fault("GPU at its power cap at full clock", "", capped=0.6, clock=0.93),
    _fault("XID for the GPU", "XidFatal GpuLost", xid="restart_node", gpu=0),
    _fault("XID for the program", "XidApplication", xid="restart_app"),
    _fault("XID for the log", "XidUnclear", xid="check_log"),
    _fault("XID for nobody", "", xid="ignore"),
    _fault("GPU gone", "GpuLost", gpu=None),
    _fault("memory-bound", "GpuBandwidthBound", memory_busy=0.85, sm_busy=0.4),
    _fault("little headroom", "HeadroomLow", cache=0.86),
    _fault("headroom shrinks", "HeadroomShrinking", cache=lambda passed: 0.5 + 0.29 * passed),
    _fault("retry storm", "RetryStorm", retries=0.5),
    _fault("requests given up", "RequestsGivenUp", aborted=0.12),
    _fault("near the timeout", "LatencyNearTimeout TotalTimeBudgetBurn", late=0.35, very_late=0.3),
    _fault("beyond the buckets", "TailBeyondBuckets LatencyNearTimeout", late=0.05, beyond=0.05),
    _fault("timeouts contradict", "TimeoutLayers", timeout=300),
    _fault("exporter down", "ExporterDown", exporter=False),
    _fault("source down", "SourceDown", source=0),
    _fault("source stale", "SourceStale", stale_source=True),
    _fault("first tokens late", "FirstTokenBudgetBurn", late_first=0.4),
    _fault("requests late", "TotalTimeBudgetBurn", late=0.4),
)
"""Minutes tell: each lasts 80, after 75 as usual."""

SLOW_FAULTS = (
    _fault("healthy for days", ""),
    _fault("first tokens late for a day", "FirstTokenBudgetLeak", late_first=0.055),
    _fault("requests late for a day", "TotalTimeBudgetLeak", late=0.055),
)
"""Hours tell: each lasts 20, after 13 hours as usual; read every 10 minutes."""

ABSENT = _fault("nothing at all", "ExporterAbsent", exporter=False)
"""Alone in its fleet, and not even a target any more."""


@dataclass(frozen=True, slots=True)
class Course:
    """When things happen, in steps of the reading interval."""

    usual: int
    fault: int
    minutes: int = 1

    @property
    def end(self) -> int:
        """Minute in which all is over."""
        return (self.usual + self.fault) * self.minutes


QUICK = Course(usual=75, fault=80)
SLOW = Course(usual=78, fault=120, minutes=10)


Values = Sequence[float | None]
"""What a series has at each step; None is nothing."""


def openmetrics(
    faults: Iterable[Fault], course: Course, start: int, *, target: bool = True
) -> Iterator[str]:
    """Lines of OpenMetrics, without their end.

    Args:
        faults: What goes wrong, on a machine each.
        course: When.
        start: First moment, Unix seconds.
        target: Whether Prometheus has the exporters among its targets.
    """
    step = 60 * course.minutes
    for fault in faults:
        for name, values in _series(fault, course, start, target=target):
            for number, value in enumerate(values):
                if value is not None:
                    yield f"{name} {value!r} {start + number * step}"


def _series(
    fault: Fault, course: Course, start: int, *, target: bool
) -> Iterator[tuple[str, Values]]:
    # Nothing more comes from an exporter that is down.
    length = course.usual + (course.fault if fault.state.exporter else 0)
    for name, rate in _rates(fault).items():
        yield name, _counter(fault, course, rate)[:length]
    for name, (before, during) in _gauges(fault).items():
        yield name, ([before] * course.usual + [during] * course.fault)[:length]
    for name, values in _read_at(fault, course, start).items():
        yield name, values[:length]
    if target:
        answers = float(fault.state.exporter)
        own = f'job="tailscope",instance="{fault.name}"'
        yield f"up{{{own}}}", [1.0] * course.usual + [answers] * course.fault
    if fault.state.timeout is not None:
        name = 'layer:tailscope_timeout:seconds{layer="client",team="batch"}'
        yield name, [None] * course.usual + [fault.state.timeout] * course.fault


def _counter(
    fault: Fault, course: Course, rate: Callable[[State, float], float]
) -> list[float | None]:
    """Segments of a steady rate, each a little unlike the last, in all counters alike."""
    dice = random.Random(fault.name)
    total, found = 0.0, list[float | None]()
    for start in range(0, course.usual + course.fault, SEGMENT):
        passed = (start - course.usual) / course.fault
        state = fault.state if passed >= 0 else fault.usual
        step = rate(state, max(passed, 0.0)) * course.minutes
        step = round(step * dice.uniform(0.98, 1.02), 4)
        found += [round(total + step * number, 4) for number in range(SEGMENT)]
        total = round(total + step * SEGMENT, 4)
    return found


def _at(value: Value, passed: float) -> float:
    return value(passed) if callable(value) else float(value)


def _rates(fault: Fault) -> Mapping[str, Callable[[State, float], float]]:
    """Every counter, by series: how fast it grows."""
    own = f'job="tailscope",instance="{fault.name}"'
    request = f'{own},engine="vllm",server="gpu:8000",model="llama"'
    engine = f'{request},rank=""'
    found: dict[str, Callable[[State, float], float]] = {}

    def add(name: str, labels: str, rate: _Rate) -> None:
        def at(state: State, passed: float) -> float:
            return rate(lambda key: _at(getattr(state, key), passed))

        found[f"tailscope_{name}{{{labels}}}"] = at

    _engine(add, engine)
    _requests(add, request)
    for gpu in ("0", "1"):
        ids = f'{own},gpu="{gpu}",uuid="{gpu}",model_name="H200",gi="",profile=""'
        _gpu(add, ids)
    return found


_Rate = Callable[[Callable[[str], float]], float]
"""What a counter gains a minute, of what the machine does."""
_Add = Callable[[str, str, _Rate], None]


def _product(total: _Rate, share: _Rate) -> _Rate:
    return lambda state: total(state) * share(state)


def _engine(add: _Add, labels: str) -> None:
    def engine(name: str, rate: _Rate, more: str = "") -> None:
        add(f"engine_{name}", labels + more, rate)

    def buckets(name: str, total: _Rate, shares: Mapping[str, _Rate]) -> None:
        for le, within in {**shares, "+Inf": lambda _: 1.0}.items():
            engine(f"{name}_bucket", _product(total, within), f',le="{le}"')

    engine("waiting_request_seconds_total", lambda s: 60 * s("waiting"))
    engine("running_request_seconds_total", lambda s: 60 * s("running"))
    engine("queue_seconds_sum", lambda s: s("requests") * s("queue"))
    engine("queue_seconds_count", lambda s: s("requests"))
    first = "time_to_first_token_seconds"
    engine(f"{first}_sum", lambda s: s("requests") * (s("queue") + s("prefill")))
    engine(f"{first}_count", lambda s: s("requests"))
    engine("generation_tokens_total", lambda s: s("outputs"))
    engine("prompt_tokens_total", lambda s: s("requests") * 1000)
    engine("prefix_cache_query_tokens_total", lambda s: s("requests") * 1000)
    engine("prefix_cache_hit_tokens_total", lambda s: s("requests") * 1000 * s("hits"))
    engine("kv_cache_usage_seconds_total", lambda s: 60 * s("cache"))
    engine("preemptions_total", lambda s: s("requests") * s("preempted"))
    engine("requests_finished_total", lambda s: s("requests"), ',reason="stop"')
    gaps = "inter_token_latency_seconds"
    buckets(
        gaps,
        lambda s: s("outputs"),
        {"0.025": lambda s: 1 - s("long_gaps"), "0.1": lambda s: 1 - s("long_gaps")}
        | {"0.5": lambda _: 1.0},
    )
    engine(f"{gaps}_count", lambda s: s("outputs"))
    buckets(
        "step_tokens",
        lambda s: s("outputs") / 20,
        {"64": lambda s: 1 - s("long_steps"), "2048": lambda _: 1.0},
    )
    buckets(
        "requests_running_sampled",
        lambda _: 60.0,
        {"4": lambda s: s("swing"), "16": lambda s: s("swing")}
        | {"32": lambda s: 1 - s("swing") / 5, "128": lambda _: 1.0},
    )
    buckets(
        "request_input_tokens",
        lambda s: s("requests"),
        {"128": lambda s: 1 - s("long_prompts"), "2048": lambda s: 1 - s("long_prompts")}
        | {"16384": lambda _: 1.0},
    )


def _requests(add: _Add, labels: str) -> None:
    acme = f'{labels},tenant="acme"'
    first = "request_time_to_first_token_seconds"
    add(f"{first}_bucket", f'{acme},le="2"', lambda s: s("requests") * (1 - s("late_first")))
    add(f"{first}_bucket", f'{acme},le="+Inf"', lambda s: s("requests"))
    add(f"{first}_count", acme, lambda s: s("requests"))
    total = "request_seconds"
    add(f"{total}_bucket", f'{acme},le="30"', lambda s: s("requests") * (1 - s("late")))
    add(
        f"{total}_bucket",
        f'{acme},le="240"',
        lambda s: s("requests") * (1 - s("very_late") - s("beyond")),
    )
    add(f"{total}_bucket", f'{acme},le="480"', lambda s: s("requests") * (1 - s("beyond")))
    add(f"{total}_bucket", f'{acme},le="+Inf"', lambda s: s("requests"))
    add(f"{total}_count", acme, lambda s: s("requests"))
    stage = "request_stage_seconds"
    add(f"{stage}_sum", f'{labels},stage="queue"', lambda s: s("requests") * s("queue"))
    add(f"{stage}_count", f'{labels},stage="queue"', lambda s: s("requests"))
    add("requests_total", f'{acme},outcome="ok"', lambda s: s("requests") * (1 - s("aborted")))
    add("requests_total", f'{acme},outcome="aborted"', lambda s: s("requests") * s("aborted"))
    add("request_retries_total", acme, lambda s: s("requests") * s("retries"))
    slots = "tenant_slot_seconds_total"
    add(slots, acme, lambda s: 60 * s("running") * s("acme"))
    for other in ("bee", "cee"):
        add(slots, f'{labels},tenant="{other}"', lambda s: 30 * s("running") * (1 - s("acme")))


def _gpu(add: _Add, labels: str) -> None:
    add("gpu_throttled_seconds_total", f'{labels},reason="hw_thermal"', lambda s: 60 * s("hot"))
    add(
        "gpu_throttled_seconds_total", f'{labels},reason="sw_power_cap"', lambda s: 60 * s("capped")
    )
    add("gpu_dram_active_seconds_total", labels, lambda s: 60 * s("memory_busy"))
    add("gpu_sm_active_seconds_total", labels, lambda s: 60 * s("sm_busy"))


_EVENTS = {"restart_node": 79, "restart_app": 31, "check_log": 154, "ignore": 63}


def _gauges(fault: Fault) -> Mapping[str, tuple[float, float | None]]:
    """What is set and not counted, by series: its value before and during the fault."""
    own = f'job="tailscope",instance="{fault.name}"'
    found: dict[str, tuple[float, float | None]] = {
        f'tailscope_build_info{{{own},version="1",python="3"}}': (1, 1),
        f'tailscope_source_up{{{own},source="engine:gpu:8000"}}': (1, fault.state.source),
        f'tailscope_source_up{{{own},source="otlp:grpc"}}': (1, 1),
    }
    for gpu in ("0", "1"):
        short = f'{own},gpu="{gpu}",uuid="{gpu}",model_name="H200"'
        ids = f'{short},gi="",profile=""'
        first = gpu == "0"
        found[f"tailscope_gpu_up{{{short}}}"] = (1, fault.state.gpu if first else 1)
        before, during = (1.98e9 * _at(state.clock, 0) for state in (fault.usual, fault.state))
        found[f'tailscope_gpu_clock_hertz{{{ids},domain="sm"}}'] = (before, during)
        found[f'tailscope_gpu_clock_max_hertz{{{ids},domain="sm"}}'] = (1.98e9, 1.98e9)
        for action, code in _EVENTS.items():
            events = int(first and fault.state.xid == action)
            name = f'tailscope_gpu_xid_errors_total{{{ids},xid="{code}",action="{action}"}}'
            found[name] = (0, events)
    return found


def _read_at(fault: Fault, course: Course, start: int) -> Mapping[str, Values]:
    """When the sources were last read: now, but for one that stands still or only receives."""
    own = f'job="tailscope",instance="{fault.name}"'
    length, step = course.usual + course.fault, 60 * course.minutes
    last = course.usual if fault.state.stale_source else length
    name = "tailscope_source_last_success_timestamp_seconds"
    return {
        f'{name}{{{own},source="engine:gpu:8000"}}': [
            float(start + min(number, last) * step) for number in range(length)
        ],
        f'{name}{{{own},source="otlp:grpc"}}': [0.0] * length,
    }
