"""Spans like those of vLLM, ready made, and a process that sends them."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event

import grpc
import urllib3
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

SPANS = 512
"""Spans in a message: the batch size of OpenTelemetry's exporters."""

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_NUMBERS = {
    "gen_ai.latency.time_to_first_token": 0.41,
    "gen_ai.latency.e2e": 1.92,
    "gen_ai.latency.time_in_queue": 0.11,
    "gen_ai.latency.time_in_model_prefill": 0.21,
    "gen_ai.latency.time_in_model_decode": 1.5,
    "gen_ai.latency.time_in_model_inference": 1.71,
    "gen_ai.request.temperature": 0.7,
    "gen_ai.request.top_p": 1.0,
}
_COUNTS = {
    "gen_ai.usage.prompt_tokens": 517,
    "gen_ai.usage.completion_tokens": 64,
    "gen_ai.request.max_tokens": 256,
    "gen_ai.request.n": 1,
}


def _attributes(number: int) -> Iterator[KeyValue]:
    for key, value in _NUMBERS.items():
        yield KeyValue(key=key, value=AnyValue(double_value=value * (1 + number % 97 / 97)))
    for key, count in _COUNTS.items():
        yield KeyValue(key=key, value=AnyValue(int_value=count + number % 89))
    yield KeyValue(
        key="gen_ai.request.id", value=AnyValue(string_value=f"chatcmpl-bench-{number:012d}")
    )


def message(first: int, count: int = SPANS, tenants: int = 20) -> bytes:
    """One message with new spans, all 13 attributes of vLLM's.

    Args:
        first: Number of its first span; ids follow from numbers.
        count: Spans in it.
        tenants: Tenants that the spans are of, in turn.
    """
    now = time.time_ns()
    spans = []
    for number in range(first, first + count):
        attributes = list(_attributes(number))
        if tenants:
            tenant = AnyValue(string_value=f"tenant-{number % tenants}")
            attributes.append(KeyValue(key="tenant.id", value=tenant))
        spans.append(
            Span(
                name="llm_request",
                trace_id=(number + 1).to_bytes(16, "big"),
                span_id=(number + 1).to_bytes(8, "big"),
                parent_span_id=(number + 2).to_bytes(8, "big"),
                kind=Span.SPAN_KIND_SERVER,
                start_time_unix_nano=now - 2_000_000_000 + number,
                end_time_unix_nano=now + number,
                attributes=attributes,
            )
        )
    resource = Resource(
        attributes=[KeyValue(key="service.name", value=AnyValue(string_value="vllm"))]
    )
    spans_of = ResourceSpans(resource=resource, scope_spans=[ScopeSpans(spans=spans)])
    return ExportTraceServiceRequest(resource_spans=[spans_of]).SerializeToString()


def post(url: str, bodies: list[bytes]) -> None:
    """Send messages over HTTP, one after the other.

    Raises:
        RuntimeError: If one is not taken.
    """
    pool = urllib3.PoolManager(maxsize=1)
    for body in bodies:
        answer = pool.request("POST", url, body, headers={"Content-Type": "application/x-protobuf"})
        if answer.status != 200:
            raise RuntimeError(f"{url} answers {answer.status}")


def call(address: str, bodies: list[bytes]) -> None:
    """Send messages over gRPC, one after the other."""
    with grpc.insecure_channel(address) as channel:
        export = channel.unary_unary(_EXPORT)
        for body in bodies:
            export(body)


def _steady(url: str, per_second: int, ready: Event, end: Event) -> None:
    pool = urllib3.PoolManager(maxsize=1)
    due = time.monotonic()
    for number in itertools.count(10**9, per_second):
        body = message(number, per_second)
        pool.request("POST", url, body, headers={"Content-Type": "application/x-protobuf"})
        ready.set()
        due += 1.0
        if end.wait(max(0.0, due - time.monotonic())):
            return


class Steady:
    """A process that sends a message a second, as vLLM does, until the block ends."""

    def __init__(self, url: str, per_second: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, self._end = context.Event(), context.Event()
        self._process = context.Process(
            target=_steady, args=(url, per_second, self._ready, self._end)
        )

    def __enter__(self) -> None:
        self._process.start()
        self._ready.wait(30)

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._process.join(10)
