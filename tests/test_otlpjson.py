"""Messages in JSON."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailscope.exporter.otlp import BadMessage, TooLarge, read_protobuf
from tailscope.exporter.otlpjson import MAX_JSON, read_json
from tailscope.exporter.spans import Batch
from tests.otlp import NOW_NS, in_json, message, parent_id, recorded, span, span_id, trace_id
from tests.spanreading import READER, gateway, read


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
