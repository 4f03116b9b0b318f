"""Spans to records: what is read, what is passed over, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tailscope.catalogue.engines import engines
from tailscope.exporter.otlp import read_protobuf
from tailscope.exporter.spankinds import TenantPlaces
from tailscope.exporter.spans import SpanReader
from tailscope.records.reader import join_records
from tailscope.records.record import MAX_TEXT, RequestRecord
from tailscope.records.tenancy import DEFAULT_RULES, TENANT_ATTRIBUTES, of_attributes, parse_rules
from tests.otlp import (
    LATENCY,
    NOW_NS,
    attributes,
    clients,
    message,
    parent_id,
    recorded,
    span,
    span_id,
    trace_id,
)
from tests.spanreading import READER, gateway, read, read_one

# What vLLM sends


def recorded_records(run: str) -> list[RequestRecord]:
    records = []
    for body in recorded(run):
        batch = READER.read(read_protobuf(body))
        assert not batch.rejected
        records += batch.records
    return records


@pytest.mark.parametrize(
    ("run", "requests", "spans"), [("run1", 182, 27), ("run2", 67, 18), ("run11", 278, 9)]
)
def test_requests_are_read_and_the_start_up_is_passed_over(
    run: str, requests: int, spans: int
) -> None:
    names: Counter[str] = Counter()
    for body in recorded(run):
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            names.update(one.name for scope in group.scope_spans for one in scope.spans)
    assert names.pop("llm_request") == requests
    assert names.total() > 0, "the recording has start-up spans"
    assert len(recorded_records(run)) == requests


def test_a_recorded_request_has_all_that_vllm_tells() -> None:
    record = next(r for r in recorded_records("run11") if r.request_id == "tail-0001-acme")
    assert record == RequestRecord(
        source="vllm",
        role="engine",
        engine="vllm",
        arrived_ns=1795999052881909248,
        ended_ns=1795999053098300985,
        span_id="e0082cea8f880a90",
        parent_span_id="bedc25e6f3ebcf12",
        trace_id="f3d06f863fffc830137a977753e8eb43",
        request_id="tail-0001-acme",
        server=record.server,
        ttft_seconds=0.0626981258392334,
        total_seconds=0.2159743309020996,
        queue_seconds=4.0740000031291856e-05,
        prefill_seconds=0.05433302999995249,
        decode_seconds=0.15380825200008985,
        frontend_seconds=0.0626981258392334 - 4.0740000031291856e-05 - 0.05433302999995249,
        input_tokens=195,
        output_tokens=21,
        max_tokens=21,
        outcome="ok",
    )
    assert record.server is not None
    assert len(record.server) == 36, "service.instance.id, where no engine is known"


def test_every_recorded_request_meets_its_client() -> None:
    found = join_records([*recorded_records("run11"), *clients("run11")])
    assert len(found) == 278
    assert set(found["joined"]) == {"parent"}
    assert set(found["tenant"]) == {"acme", "globex", "initech", "umbrella"}


# (linear interpolation between the two nearest ranks)
@pytest.mark.parametrize(
    ("column", "p50", "p95", "p99"),
    [("ttft_seconds", 0.822, 3.47, 3.74), ("queue_seconds", 0.239, 3.18, 3.45)],
)
def test_exact_percentiles_of_the_recording(
    column: str, p50: float, p95: float, p99: float
) -> None:
    times = join_records(recorded_records("run11"))[column]
    assert times.notna().sum() == 278
    found = [times.quantile(q, interpolation="linear") for q in (0.5, 0.95, 0.99)]
    assert [round(found[0], 3), round(found[1], 2), round(found[2], 2)] == [p50, p95, p99]


def test_clients_of_a_rough_run_keep_what_the_engine_never_told() -> None:
    found = join_records([*recorded_records("run1"), *clients("run1")])
    engine = found[found["role"] == "engine"]
    assert len(engine) == 182
    assert engine["tenant"].notna().all()
    # A request without a traceparent, or with a malformed one, is met by its request id.
    assert engine["joined"].value_counts().to_dict() == {"parent": 180, "request": 2}
    # vLLM ends no span for what is aborted, refused or not sampled.
    lone = found[found["role"] == "gateway"]
    assert lone["outcome"].value_counts().to_dict() == {"aborted": 17, "error": 17, "ok": 1}
    assert set(lone.loc[lone["outcome"] == "ok", "request_id"]) == {"trace-0160-acme"}
    in_stream = lone[lone["request_id"] == "err-0158-acme"].iloc[0]
    assert (in_stream["outcome"], in_stream["status"]) == ("error", 200)


def test_a_sampled_run_has_fewer_spans() -> None:
    assert len(recorded_records("run12")) == 22


# Engine spans


def test_an_engine_span_becomes_a_record() -> None:
    record = read_one(span(5), {"service.instance.id": "pod-1"})
    assert record == RequestRecord(
        source="vllm",
        role="engine",
        engine="vllm",
        arrived_ns=NOW_NS + 5,
        ended_ns=NOW_NS + 5 + 1_500_000_000,
        span_id=span_id(5),
        parent_span_id=parent_id(5),
        trace_id=trace_id(5),
        request_id="r5",
        server="pod-1",
        ttft_seconds=0.5,
        total_seconds=1.5,
        queue_seconds=0.25,
        prefill_seconds=0.125,
        decode_seconds=1.0,
        frontend_seconds=0.125,
        input_tokens=100,
        output_tokens=11,
        outcome="ok",
    )


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("chatcmpl-abc", "abc"),
        ("cmpl-abc-0", "abc"),
        ("cmpl-a-b-12", "a-b"),
        ("1_chatcmpl-abc", "abc"),
        ("embd-abc-0", "abc"),
        ("abc", "abc"),
        ("", None),
    ],
)
def test_the_request_id_is_the_clients(sent: str, kept: str | None) -> None:
    assert read_one(span(1, gen_ai__request__id=sent)).request_id == kept


def test_negative_stage_times_become_0_and_are_counted() -> None:
    queue: dict[str, Any] = {f"{LATENCY}time_in_queue": 0.45}
    batch = read(message([span(1, **queue), span(2)]))
    assert [record.frontend_seconds for record in batch.records] == [0.0, 0.125]
    assert batch.clamped == 1


def test_a_span_that_failed_is_an_error() -> None:
    one = span(1)
    one.status.code = Status.STATUS_CODE_ERROR
    one.status.message = "s3cret"
    record = read_one(one)
    assert record.outcome == "error"
    assert "s3cret" not in repr(record)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"span_id": b""}, "no_span_id"),
        ({"span_id": bytes(8)}, "no_span_id"),
        ({"span_id": b"x" * 16}, "no_span_id"),
        ({"start_time_unix_nano": 0}, "no_arrival"),
        ({"start_time_unix_nano": 1_796_000_000}, "range"),
        ({"start_time_unix_nano": 2**64 - 1}, "range"),
        ({"end_time_unix_nano": 2**63}, "range"),
    ],
)
def test_a_request_that_can_make_no_record_is_counted(change: dict[str, Any], reason: str) -> None:
    one = span(1)
    for name, changed in change.items():
        setattr(one, name, changed)
    batch = read(message([span(2), one, span(3)]))
    assert batch.rejected == {reason: 1}
    assert [record.span_id for record in batch.records] == [span_id(2), span_id(3)]


def test_ids_that_are_no_ids_are_none() -> None:
    one = span(1)
    one.trace_id, one.parent_span_id = bytes(16), b""
    record = read_one(one)
    assert (record.trace_id, record.parent_span_id) == (None, None)
    one.trace_id, one.parent_span_id = b"abc", bytes(8)
    record = read_one(one)
    assert (record.trace_id, record.parent_span_id) == (None, None)


def test_a_request_that_has_not_ended() -> None:
    one = span(1)
    one.end_time_unix_nano = 0
    assert read_one(one).ended_ns == NOW_NS + 1 + 1_500_000_000, "arrival and total"
    del one.attributes[:]
    one.attributes.extend(attributes({"gen_ai.request.id": "r"}))
    record = read_one(one)
    assert (record.ended_ns, record.total_seconds) == (None, None)


@pytest.mark.parametrize("seconds", [1e300, 1e9, float("inf"), float("nan"), float("-inf")])
def test_a_time_that_cannot_be_is_none(seconds: float) -> None:
    total: dict[str, Any] = {f"{LATENCY}e2e": seconds}
    one = span(1, **total)
    one.end_time_unix_nano = 0
    record = read_one(one)
    assert (record.total_seconds, record.ended_ns) == (None, None)


# The tenant


def test_the_tenant_of_the_span_is_better_than_that_of_the_resource() -> None:
    resource = {"tenant.id": "whole-process"}
    assert read_one(span(1), resource).tenant == "whole-process"
    assert read_one(span(1, tenant="mine"), resource).tenant == "mine"
    assert read_one(span(1, tenant="b", tailscope__tenant="a")).tenant == "a"


def test_the_tenants_attribute_can_be_set() -> None:
    reader = SpanReader(engines(), of_attributes(["team"]))
    body = message([span(1, team="x", tenant="y")]).SerializeToString()
    assert reader.read(read_protobuf(body)).records[0].tenant == "x"


def test_a_text_that_is_no_identifier_is_no_tenant() -> None:
    assert read_one(span(1, tenant="x" * (MAX_TEXT + 1))).tenant is None
    assert read_one(span(1, tenant=True)).tenant is None
    assert read_one(span(1, tenant=7)).tenant == "7", "some name a tenant by its number"
    assert read_one(span(1, tenant="")).tenant is None
    assert read_one(span(1, tenant="a\x1b[31m\nb")).tenant == "a?[31m?b"


@pytest.mark.parametrize(
    ("rules", "tenant"),
    [
        (["tracestate:tenant", "span:team"], "by-state"),
        (["span:team", "tracestate:tenant"], "by-span"),
        (["header:X-Tenant"], "by-header"),
        (["request-id:^([a-z]+)-"], "byid"),
        (["request-id:^x([a-z]+)-", "resource:unit"], "by-resource"),
        (["litellm:team", "adapter"], None),
        ([], None),
    ],
)
def test_the_first_rule_that_hits_wins(rules: list[str], tenant: str | None) -> None:
    one = span(1, team="by-span", gen_ai__request__id="chatcmpl-byid-7", tenant="no")
    one.attributes.extend(attributes({"http.request.header.x-tenant": ["by-header"]}))
    one.trace_state = "a=b, tenant=by-state,c=d"
    reader = SpanReader(engines(), parse_rules("--tenant-rule", rules))
    body = message([one], {"unit": "by-resource"}).SerializeToString()
    assert reader.read(read_protobuf(body)).records[0].tenant == tenant


def test_a_header_as_pythons_instrumentation_writes_it() -> None:
    reader = SpanReader(engines(), parse_rules("--tenant-rule", ["header:X-Team-Id"]))
    of_gateway = gateway(1, **{"http.request.header.x_team_id": ["acme"]})
    marks: dict[str, Any] = {"tailscope.middleware": True, "tailscope.tenant": "globex"}
    of_middleware = span(2, name="request", **marks)
    body = message([of_gateway, of_middleware]).SerializeToString()
    records = reader.read(read_protobuf(body)).records
    assert [record.tenant for record in records] == ["acme", "globex"]


@pytest.mark.parametrize(
    ("rules", "plain"),
    [
        (DEFAULT_RULES, (TENANT_ATTRIBUTES, TENANT_ATTRIBUTES)),
        (("span:a", "label:x", "span:b", "resource:c"), (("a", "b"), ("c",))),
        (("litellm:team",), ((), ())),
        (("resource:a", "span:b"), None),
        (("span:a", "tracestate:b"), None),
        (("request-id:(.)", "span:a"), None),
    ],
)
def test_rules_that_ask_for_attributes_alone_say_so(
    rules: tuple[str, ...], plain: tuple[tuple[str, ...], tuple[str, ...]] | None
) -> None:
    assert TenantPlaces(parse_rules("", rules)).plain == plain
