"""The bundled recording, and a clock that a test winds."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from tailscope.demo.recording import Recording, load
from tailscope.demo.schedule import Schedule
from tailscope.launch.clock import Clock

NOW_NS = 2_000_000_000_000_000_000
MACHINE_PATH = re.compile(rb"/(?:home|root|tmp|work|usr|opt|var|mnt|etc|srv|Users|data)/")
HISTORY_NS = 60_000_000_000
DEADLINE = 120.0


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load()


@pytest.fixture
def schedule(recording: Recording) -> Schedule:
    return Schedule.of(recording, live_ns=NOW_NS, history_ns=HISTORY_NS)


class SimulatedClock(Clock):
    """Time passes only while somebody waits, and ends at a given moment."""

    def __init__(self, end_ns: int, now_ns: int = NOW_NS) -> None:
        super().__init__()
        self._now_ns = now_ns
        self._end_ns = end_ns

    def now_ns(self) -> int:
        return self._now_ns

    def wait(self, seconds: float) -> bool:
        self._now_ns += max(round(seconds * 1e9), 1)
        if self._now_ns >= self._end_ns:
            self.stop()
        return super().wait(0)


class Collected:
    """A sender that keeps what it gets, and says when."""

    def __init__(self, clock: Clock) -> None:
        self.events: list[tuple[int, bytes]] = []
        self._clock = clock

    def send(self, event: bytes) -> None:
        self.events.append((self._clock.now_ns(), event))

    def close(self) -> None:
        pass


def spans(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        span
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def requests(bodies: Iterator[bytes] | list[bytes]) -> list[Span]:
    return [span for body in bodies for span in spans(body) if span.name == "llm_request"]


def attributes(span: Span) -> dict[str, str]:
    return {item.key: item.value.SerializeToString().hex() for item in span.attributes}


def request_id(span: Span) -> str:
    found = [a.value.string_value for a in span.attributes if a.key == "gen_ai.request.id"]
    assert len(found) == 1
    return found[0]


def series(text: str) -> dict[tuple[str, str], tuple[str, float]]:
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): (family.type, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def player_threads() -> list[threading.Thread]:
    return [item for item in threading.enumerate() if item.name.startswith("player ")]
