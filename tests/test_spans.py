"""Spans to records: what is read, what is passed over, and what is refused."""

from __future__ import annotations

import base64
import copy
import json
from collections import Counter
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from tailscope.catalogue.engines import engines
from tailscope.exporter.anyvalue import read_float, read_int, read_text
from tailscope.exporter.otlp import MAX_SPAN, BadMessage, TooLarge, read_protobuf
from tailscope.exporter.otlpjson import MAX_JSON, read_json
from tailscope.exporter.spankinds import TenantPlaces
from tailscope.exporter.spans import Batch, SpanReader
from tailscope.records.reader import join_records
from tailscope.records.record import MAX_TEXT, RequestRecord
from tailscope.records.tenancy import DEFAULT_RULES, TENANT_ATTRIBUTES, of_attributes, parse_rules
from tests.otlp import (
    LATENCY,
    NOW_NS,
    attributes,
    clients,
    in_json,
    message,
    parent_id,
    recorded,
    span,
    span_id,
    trace_id,
    value,
)

READER = SpanReader(engines())


def read(request: ExportTraceServiceRequest) -> Batch:
    return READER.read(read_protobuf(request.SerializeToString()))


def read_one(one: Span, resource: dict[str, Any] | None = None) -> RequestRecord:
    (record,) = read(message([one], resource)).records
    return record


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


# Gateway spans


def gateway(number: int, **more: Any) -> Span:
    given = {"gen_ai__operation__name": "chat", "tenant__id": "acme", **more}
    return span(number, name="litellm_request", **given)


def test_a_gateways_span_becomes_a_record() -> None:
    record = read_one(
        gateway(
            7,
            gen_ai__request__model="alias",
            gen_ai__response__model="llama-3-8b",
            gen_ai__usage__input_tokens=12,
            gen_ai__usage__cache_read__input_tokens=4,
            gen_ai__usage__output_tokens=3,
            gen_ai__response__finish_reasons=["stop", "length"],
            gen_ai__server__time_to_first_token=0.25,
            http__response__status_code=200,
            http__request__header__x_request_id="no",
            **{"http__request__header__x-request-id": "r-7"},
        ),
        {"service.instance.id": "gateway-1"},
    )
    assert record == RequestRecord(
        source="otlp",
        role="gateway",
        arrived_ns=NOW_NS + 7,
        ended_ns=NOW_NS + 7 + 1_500_000_000,
        span_id=span_id(7),
        parent_span_id=parent_id(7),
        trace_id=trace_id(7),
        request_id="r-7",
        tenant="acme",
        model="llama-3-8b",
        ttft_seconds=0.25,
        total_seconds=1.5,
        input_tokens=12,
        cached_tokens=4,
        output_tokens=3,
        finish_reason="stop",
        status=200,
        outcome="ok",
    )


def test_the_newest_name_of_an_attribute_wins_whatever_the_order() -> None:
    names = {
        "gen_ai__usage__prompt_tokens": 1,
        "gen_ai__usage__input_tokens": 2,
    }
    for order in (names, dict(reversed(names.items()))):
        assert read_one(gateway(1, **order)).input_tokens == 2


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({}, "ok"),
        ({"http__response__status_code": 200}, "ok"),
        ({"http__response__status_code": 429}, "rejected"),
        ({"http__response__status_code": 503}, "rejected"),
        ({"http__response__status_code": 499}, "aborted"),
        ({"http__response__status_code": 504}, "queue_timeout"),
        ({"http__response__status_code": 404}, "error"),
        ({"http__status_code": 500}, "error"),
        ({"error__type": "KeyError"}, "error"),
        ({"error__type": "429"}, "rejected"),
        ({"error__type": "RateLimitError"}, "rejected"),
        ({"error__type": "asyncio.CancelledError"}, "aborted"),
        ({"error__type": "timeout"}, "queue_timeout"),
        (
            {"error__type": "ReadTimeout", "gen_ai__response__time_to_first_chunk": 0.5},
            "generation_timeout",
        ),
    ],
)
def test_the_outcome_of_a_gateways_span(more: dict[str, Any], outcome: str) -> None:
    assert read_one(gateway(1, **more)).outcome == outcome


@pytest.mark.parametrize(
    "attribute", [{"tenant": "a"}, {"gen_ai.system": "openai"}, {"http.route": "/"}, {}]
)
def test_a_span_that_is_no_request_is_passed_over(attribute: dict[str, Any]) -> None:
    one = span(1, name="GET /")
    one.attributes.extend(attributes(attribute))
    batch = read(message([one]))
    assert not batch.records
    assert not batch.rejected


@pytest.mark.parametrize("operation", ["invoke_agent", "execute_tool"])
def test_an_operation_that_holds_requests_is_none(operation: str) -> None:
    batch = read(message([gateway(1, gen_ai__operation__name=operation)]))
    assert not batch.records


def test_a_litellm_span_of_the_second_integration() -> None:
    one = span(
        3,
        name="chat llama",
        gen_ai__operation__name="chat",
        gen_ai__request__model="llama",
        gen_ai__response__id="chatcmpl-r3",
        gen_ai__response__finish_reasons='["length"]',
        gen_ai__response__time_to_first_chunk=0.25,
        litellm__call_id="x",
        litellm__team__id="t-1",
        litellm__team__alias="acme",
    )
    record = read_one(one)
    assert (record.source, record.role, record.tenant) == ("litellm", "gateway", "acme")
    assert (record.request_id, record.finish_reason, record.outcome) == ("r3", "length", "ok")
    assert record.ttft_seconds == 0.25


def test_a_litellm_span_of_the_first_integration() -> None:
    more = {"gen_ai.request.model": "llama", "metadata.user_api_key_alias": "key-of-acme"}
    one = span(3, name="litellm_request")
    one.attributes.extend(attributes({**more, "gen_ai.usage.prompt_tokens": 7}))
    assert read_one(one).tenant == "key-of-acme"
    assert read_one(one).input_tokens == 7
    del one.attributes[1]
    assert not read(message([one])).records, "nobody's, and it may be no LiteLLM"


def sglang(**more: Any) -> Span:
    given: dict[str, Any] = {
        "rid": "0123456789abcdef",
        "module": "sglang::request",
        "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.completion_tokens": 11,
        "gen_ai.usage.cached_tokens": 64,
        "gen_ai.request.id": "0123456789abcdef",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": '["stop"]',
        f"{LATENCY}time_to_first_token": 0.5,
        f"{LATENCY}e2e": 1.5,
        f"{LATENCY}time_in_model_prefill": 0.375,
        f"{LATENCY}time_in_model_decode": 1.0,
    }
    one = span(5, name="unified Req 01234567")
    one.attributes.extend(attributes({**given, **more}))
    return one


def test_an_sglang_span_becomes_a_record() -> None:
    record = read_one(sglang(), {"service.instance.id": "pod-1"})
    assert record == RequestRecord(
        source="sglang",
        role="engine",
        engine="sglang",
        arrived_ns=NOW_NS + 5,
        ended_ns=NOW_NS + 5 + 1_500_000_000,
        span_id=span_id(5),
        parent_span_id=parent_id(5),
        trace_id=trace_id(5),
        request_id="0123456789abcdef",
        model="m",
        server="pod-1",
        ttft_seconds=0.5,
        total_seconds=1.5,
        decode_seconds=1.0,
        input_tokens=100,
        cached_tokens=64,
        output_tokens=11,
        finish_reason="stop",
        outcome="ok",
    ), "its prefill holds the queue, which it does not tell: neither is known"
    record = read_one(sglang(**{f"{LATENCY}time_in_queue": 0.0625}))
    assert (record.queue_seconds, record.prefill_seconds) == (0.0625, 0.375)
    assert read_one(sglang(**{"gen_ai.response.finish_reasons": '["abort"]'})).outcome == "aborted"


def test_a_tensorrt_span_has_vllms_name_and_becomes_a_record_of_its_own() -> None:
    one = span(
        6,
        gen_ai__latency__time_in_queue=0.25,
        gen_ai__response__finish_reasons='["length"]',
        gen_ai__request__id=17,
    )
    kept = [a for a in one.attributes if "time_in_model" not in a.key]
    del one.attributes[:]
    one.attributes.extend(kept)
    record = read_one(one)
    assert (record.source, record.engine, record.role) == ("trtllm", "trtllm", "engine")
    assert (record.ttft_seconds, record.queue_seconds, record.total_seconds) == (0.5, 0.25, 1.5)
    assert (record.prefill_seconds, record.request_id) == (None, None)
    assert (record.finish_reason, record.outcome) == ("length", "ok")
    assert (record.input_tokens, record.output_tokens) == (100, 11)


def test_a_span_of_the_text_generation_router_becomes_a_record() -> None:
    one = span(
        7,
        name="generate_stream",
        total_time="1.5s",
        validation_time="250.5µs",
        queue_time="12ms",
        inference_time="1.48774945s",
        time_per_token="20ns",
    )
    record = read_one(one)
    assert (record.source, record.engine, record.role) == ("tgi", "tgi", "engine")
    assert record.total_seconds == 1.5
    assert record.frontend_seconds == pytest.approx(0.0002505)
    assert record.queue_seconds == pytest.approx(0.012)
    assert (record.ttft_seconds, record.prefill_seconds) == (None, None)


@pytest.mark.parametrize(
    ("names", "source"),
    [
        ({"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3}, "vllm"),
        ({"llm.token_count.prompt": 7, "llm.token_count.completion": 3}, "vllm"),
        ({"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 3}, "vllm"),
    ],
)
def test_tokens_of_an_engine_under_old_and_new_names(names: dict[str, Any], source: str) -> None:
    one = span(8, name="chat")
    one.name = "llm_request"
    latencies = {f"{LATENCY}e2e": 1.5, f"{LATENCY}time_in_model_prefill": 0.5}
    one.attributes.extend(attributes({**latencies, **names}))
    for _ in range(2):  # the careful way, then the quick one
        record = read_one(one)
        assert (record.source, record.input_tokens, record.output_tokens) == (source, 7, 3)


def test_a_programs_own_span_of_vllms_name_is_not_vllms() -> None:
    own = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 11, "tenant": "acme"}
    one = span(9, name="chat")
    one.name = "llm_request"
    one.attributes.extend(attributes(own))
    record = read_one(one)
    assert (record.source, record.role, record.tenant) == ("otlp", "gateway", "acme")


# Values


@pytest.mark.parametrize(
    ("item", "as_float", "as_int", "as_text"),
    [
        (1.5, 1.5, None, None),
        (0.0, 0.0, 0, None),
        (-2.0, -2.0, -2, None),
        (float("nan"), None, None, None),
        (float("inf"), None, None, None),
        (1e300, 1e300, None, None),
        (2.0**63, 2.0**63, None, None),
        (0, 0.0, 0, None),
        (1, 1.0, 1, None),
        (127, 127.0, 127, None),
        (128, 128.0, 128, None),
        (16383, 16383.0, 16383, None),
        (16384, 16384.0, 16384, None),
        (-1, -1.0, -1, None),
        (2**63 - 1, float(2**63 - 1), 2**63 - 1, None),
        (True, None, None, None),
        ("x", None, None, "x"),
        ("", None, None, None),
        ("x" * 125, None, None, "x" * 125),
        ("x" * 126, None, None, "x" * 126),
        ("x" * MAX_TEXT, None, None, "x" * MAX_TEXT),
        ("x" * (MAX_TEXT + 1), None, None, None),
        ("東京", None, None, "東京"),
        ("7", None, None, "7"),
        (b"x", None, None, None),
        (["a", "b"], None, None, "a"),
        ([], None, None, None),
        ([1], None, None, None),
        ([["a"]], None, None, None),
    ],
)
def test_values(item: Any, as_float: float | None, as_int: int | None, as_text: str | None) -> None:
    raw = value(item).SerializeToString()
    assert (read_float(raw), read_int(raw), read_text(raw)) == (as_float, as_int, as_text)


def test_values_in_an_unusual_encoding() -> None:
    seven = value(7).SerializeToString()
    assert read_int(b"\x18\x87\x00") == 7, "more bytes than needed"
    assert read_int(value(6).SerializeToString() + seven) == 7, "the last one wins"
    assert read_int(seven + b"\x98\x06\x01") == 7, "a field of a later version"
    assert (read_int(b""), read_float(b""), read_text(b"")) == (None, None, None)
    assert AnyValue.FromString(b"\x18\x87\x00").int_value == 7


@pytest.mark.parametrize("raw", [b"\x0a\x03\xff\xfe\xfd", b"\x0a\x7fx", b"\x21\0", b"\xff" * 11])
def test_a_value_that_is_none_at_all(raw: bytes) -> None:
    for reader in (read_float, read_int, read_text):
        with pytest.raises(BadMessage):
            reader(raw)


# The walk


def test_a_resource_may_come_after_its_spans_and_in_pieces() -> None:
    whole = message([span(1)], {"tenant": "a"}).resource_spans[0]
    more = ResourceSpans()
    more.resource.attributes.extend(attributes({"service.instance.id": "i"}))
    scopes = ResourceSpans(scope_spans=whole.scope_spans).SerializeToString()
    resource = ResourceSpans(resource=whole.resource).SerializeToString()
    body = scopes + resource + more.SerializeToString()
    group = b"\x0a" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body
    (record,) = READER.read(read_protobuf(group)).records
    assert (record.tenant, record.server) == ("a", "i")


def test_fields_of_a_later_version_are_passed_over() -> None:
    unknown = b"\x78\x01" + b"\x7d1234" + b"\x7912345678" + b"\x7a\x03abc"
    body = unknown + message([span(1)]).SerializeToString() + unknown
    assert len(READER.read(read_protobuf(body)).records) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b",
        b"\x0c",
        b"\x0e\x01",
        b"\x79123",
        b"\xff" * 20,
        b"\x08" + b"\xff" * 20,
        b"\x0a\x02\x12\x05",
        b"no protobuf at all",
        b"<html>",
        b'{"resourceSpans": []}',
    ],
)
def test_what_is_no_message(body: bytes) -> None:
    with pytest.raises(BadMessage, match="no ExportTraceServiceRequest") as caught:
        READER.read(read_protobuf(body))
    assert caught.value.__cause__ is None


def test_a_message_that_is_cut_anywhere_is_none_or_a_shorter_one() -> None:
    body = message([span(1), span(2)], {"tenant": "a"}).SerializeToString()
    for length in range(1, len(body)):
        with pytest.raises(BadMessage):
            READER.read(read_protobuf(body[:length]))
    assert not READER.read(read_protobuf(b"")).records


def test_a_span_that_is_too_large_costs_nobody_else() -> None:
    large = span(2, x="y" * MAX_SPAN)
    batch = read(message([span(1), large, span(3)]))
    assert batch.rejected == {"too_large": 1}
    assert len(batch.records) == 2


def test_a_resource_that_is_too_large() -> None:
    with pytest.raises(TooLarge):
        read(message([span(1)], {"x": "y" * MAX_SPAN}))


@pytest.mark.parametrize("empty", [b"\x0a\x00", b"\x12\x00", b"\x78\x01"])
def test_too_many_parts(empty: bytes) -> None:
    with pytest.raises(TooLarge, match="more than 50000"):
        READER.read(read_protobuf(empty * 60_000))
    scope = ScopeSpans().SerializeToString() + b"\x12\x00" * 60_000
    group = ResourceSpans().SerializeToString() + _field(2, scope)
    with pytest.raises(TooLarge, match="more than 50000"):
        READER.read(read_protobuf(_field(1, group)))


def _field(number: int, content: bytes) -> bytes:
    """A field with a length."""
    head = bytearray([number << 3 | 2])
    length = len(content)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(head) + bytes([length]) + content


# JSON


def read_dict(loaded: Any) -> Batch:
    return READER.read(read_json(json.dumps(loaded).encode()))


def test_json_says_the_same_as_protobuf() -> None:
    request = message([span(1), span(2, tenant="x"), gateway(3)], {"service.instance.id": "pod"})
    assert read_dict(in_json(request)) == read(request)


def test_recorded_messages_say_the_same_in_json() -> None:
    for body in recorded("run11")[10:20]:
        request = ExportTraceServiceRequest.FromString(body)
        assert read_dict(in_json(request)) == READER.read(read_protobuf(body))


def test_json_in_the_other_spellings() -> None:
    loaded = in_json(message([span(10)]))
    snake = {
        "resource_spans": [
            {
                "resource": loaded["resourceSpans"][0]["resource"],
                "scope_spans": [
                    {
                        "spans": [
                            {
                                "trace_id": trace_id(10).upper(),
                                "span_id": span_id(10).upper(),
                                "parent_span_id": parent_id(10).upper(),
                                "name": "llm_request",
                                "kind": "SPAN_KIND_SERVER",
                                "start_time_unix_nano": NOW_NS + 10,
                                "end_time_unix_nano": NOW_NS + 10 + 1_500_000_000,
                                "attributes": loaded["resourceSpans"][0]["scopeSpans"][0]["spans"][
                                    0
                                ]["attributes"],
                                "aFieldOfLater": [1, {"x": None}],
                            }
                        ]
                    }
                ],
            }
        ]
    }
    assert read_dict(snake) == read(message([span(10)]))


def test_json_with_nothing_in_it() -> None:
    nothings: list[dict[str, Any]] = [
        {},
        {"resourceSpans": []},
        {"resourceSpans": None},
        {"resourceSpans": [{}]},
        {"resourceSpans": [{"scopeSpans": [{}]}]},
        {"other": 1},
    ]
    for loaded in nothings:
        assert read_dict(loaded) == Batch()


def span_json(**changed: Any) -> dict[str, Any]:
    loaded = in_json(message([span(1)]))
    loaded["resourceSpans"][0]["scopeSpans"][0]["spans"][0].update(changed)
    return loaded


@pytest.mark.parametrize(
    "loaded",
    [
        [],
        3,
        "x",
        None,
        {"resourceSpans": {}},
        {"resourceSpans": [1]},
        {"resourceSpans": [{"resource": 1}]},
        {"resourceSpans": [{"resource": {"attributes": 1}}]},
        {"resourceSpans": [{"scopeSpans": "x"}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [[]]}]}]},
        span_json(traceId="xyz"),
        span_json(spanId=base64.b64encode(bytes(8)).decode()),
        span_json(spanId=7),
        span_json(startTimeUnixNano="soon"),
        span_json(startTimeUnixNano=-1),
        span_json(startTimeUnixNano=1e400),
        span_json(name=["llm_request"]),
        span_json(name="\ud800"),
        span_json(attributes=[{"key": "x", "value": {"intValue": "y"}}]),
        span_json(attributes=[{"key": "x", "value": 3}]),
        span_json(attributes={"x": "y"}),
        span_json(status=7),
    ],
)
def test_json_that_is_no_message(loaded: Any) -> None:
    with pytest.raises(BadMessage):
        read_dict(copy.deepcopy(loaded))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"resourceSpans": [{"resource": ' + b'{"attributes": [' * 1000,
        b"9" * 10_000,
    ],
)
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(BadMessage):
        READER.read(read_json(body))


def test_json_that_is_deep() -> None:
    inner: dict[str, Any] = {"stringValue": "x"}
    for _ in range(200):
        inner = {"arrayValue": {"values": [inner]}}
    loaded = span_json(attributes=[{"key": "x", "value": inner}])
    with pytest.raises(BadMessage):
        read_dict(loaded)


def test_json_may_have_4_mib() -> None:
    with pytest.raises(TooLarge, match="bytes of JSON"):
        READER.read(read_json(b" " * (MAX_JSON + 1)))


def test_events_and_links_are_not_looked_at() -> None:
    loaded = span_json(events=["no event", {"name": 3}], links=7)
    assert read_dict(loaded) == read(message([span(1)]))
