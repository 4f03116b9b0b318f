"""Spans of each producer: gateways, clients, and engines other than vLLM."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.records.record import RequestRecord
from tests.otlp import LATENCY, NOW_NS, attributes, message, parent_id, span, span_id, trace_id
from tests.spanreading import gateway, read, read_one


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
        ({"error__type": 429}, "rejected"),
        ({"http__status_code": "429"}, "rejected"),
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
    assert (record.prefill_seconds, record.request_id) == (None, "17")
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
