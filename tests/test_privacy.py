"""No prompt, header or key is kept, shown or logged, wherever a sender puts it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import urllib3
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.catalogue.engines.vllm import SPANS
from tailscope.catalogue.spans import GATEWAY_ATTRIBUTES, SERVER_ATTRIBUTES, TENANT_ATTRIBUTES
from tailscope.exporter.otlpgrpc import SERVICE
from tailscope.records.reader import Reader
from tailscope.records.record import COLUMNS, MAX_TEXT
from tailscope.records.segments import batches
from tests.otlp import JSON, NOW_NS, PROTOBUF, attributes, in_json, message, span, span_id
from tests.process import Exporter, exporter, until

PROMPT = "Patient Doe, born 1970, asks: "
MAIL = "jane.doe@example.com"
KEY = "sk-proj-0123456789abcdef"
MARKERS = (PROMPT, MAIL, KEY)
SECRET = f"{PROMPT} {MAIL} {KEY}"
LONG = SECRET * 10  # where an identifier is expected, a text as long as a prompt is

UNREAD = (
    "gen_ai.prompt",
    "gen_ai.completion",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "llm.prompts",
    "input.value",
    "http.request.header.authorization",
    "http.request.header.x-api-key",
    "user.email",
    "enduser.pseudo.id",
    "url.full",
    "exception.message",
    "x",
)
READ = (*SPANS.attributes, *GATEWAY_ATTRIBUTES, *TENANT_ATTRIBUTES)


def secretive(number: int, name: str) -> Span:
    """A span with a secret in every place that can hold one."""
    one = span(number, name=name)
    del one.attributes[:]
    items: dict[str, Any] = dict.fromkeys(UNREAD, SECRET)
    items |= dict.fromkeys(READ, LONG)
    items["gen_ai.operation.name"] = items["gen_ai.system"] = SECRET
    items[SECRET] = 1
    one.attributes.extend(attributes(items))
    one.trace_state = f"vendor={KEY}"
    one.status.message = SECRET
    one.events.add(name=SECRET, attributes=attributes({"gen_ai.prompt": SECRET, SECRET: 1}))
    one.links.add(trace_state=KEY, attributes=attributes({"x": SECRET}))
    return one


def secretive_message(number: int) -> ExportTraceServiceRequest:
    request = message(
        [secretive(number, "llm_request"), secretive(number + 1, "chat")],
        {**dict.fromkeys(UNREAD, SECRET), **dict.fromkeys(SERVER_ATTRIBUTES, LONG)},
    )
    group = request.resource_spans[0]
    # A tenant, so that the gateway's span is a request.
    group.scope_spans[0].spans[1].attributes.extend(attributes({"tailscope.tenant": "acme"}))
    group.schema_url = group.scope_spans[0].schema_url = KEY
    group.scope_spans[0].scope.name = group.scope_spans[0].scope.version = SECRET
    group.scope_spans[0].scope.attributes.extend(attributes({"x": SECRET}))
    return request


def malformed() -> Iterator[tuple[bytes, str]]:
    """Bodies whose parsers would like to quote them."""
    whole = secretive_message(500).SerializeToString()
    yield whole[:-7], PROTOBUF
    yield whole.replace(PROMPT.encode(), b"\xff" * len(PROMPT)), PROTOBUF
    yield SECRET.encode(), PROTOBUF
    yield SECRET.encode(), JSON
    yield f'{{"resourceSpans": "{SECRET}"}}'.encode(), JSON
    yield f'{{"resourceSpans": [], "{SECRET}": }}'.encode(), JSON
    loaded = in_json(message([span(501, tenant="acme")]))
    one = loaded["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    for name, wrong in (
        ("traceId", SECRET),
        ("name", [SECRET]),
        ("startTimeUnixNano", SECRET),
        ("attributes", [{"key": "x", "value": {"intValue": SECRET}}]),
        ("attributes", [{"key": SECRET, "value": {"doubleValue": SECRET}}]),
        ("attributes", [{SECRET: SECRET, "key": 3}]),
        ("kind", SECRET),
        ("status", {"code": SECRET}),
        ("flags", SECRET),
    ):
        before = one.get(name)
        one[name] = wrong
        yield json.dumps(loaded).encode(), JSON
        one[name] = before


def lines() -> Iterator[str]:
    """Lines of a file of request records, good ones and bad ones."""
    good = {"arrived_ns": NOW_NS, "request_id": "kept", "tenant": "acme"}
    unread = {"prompt": SECRET, "messages": [{"content": SECRET}], "headers": {"a": KEY}}
    yield json.dumps({**good, **unread, SECRET: SECRET})
    for name, kind in COLUMNS.items():
        if name in ("source", "role"):
            continue
        yield json.dumps({**good, name: LONG if kind is str else SECRET})
        yield json.dumps({**good, name: [SECRET]})
        yield json.dumps({**good, name: {SECRET: SECRET}})
    yield json.dumps({**good, "role": SECRET[:MAX_TEXT]})
    yield json.dumps({**good, "outcome": SECRET[:MAX_TEXT]})
    yield json.dumps({**good, "source": LONG})
    yield SECRET
    yield f'{{"prompt": "{SECRET}", }}'
    yield json.dumps([SECRET])
    yield json.dumps(SECRET)


HEADERS = {
    "authorization": f"Bearer {KEY}",
    "x-api-key": KEY,
    "cookie": f"session={KEY}",
    "user-agent": MAIL,
    "x-prompt": SECRET,
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Exporter, Path, list[bytes]]]:
    """An exporter that was told every secret; what it answered."""
    folder = tmp_path_factory.mktemp("privacy")
    file, data = folder / "requests.jsonl", folder / "data"
    file.write_text("".join(f"{line}\n" for line in lines()))
    flags = ("--engine", "http://127.0.0.1:9", "--data", str(data), "--requests", str(file))
    http = urllib3.PoolManager(retries=False, timeout=20)
    answers: list[bytes] = []
    with exporter(folder / "log", *flags, "--log-level", "debug") as process:

        def post(content: bytes, kind: str, url: str = process.otlp_http, **more: str) -> int:
            headers = {**HEADERS, "content-type": kind, **more}
            answer = http.request("POST", url, body=content, headers=headers)
            answers.append(answer.data + repr(dict(answer.headers)).encode())
            return int(answer.status)

        request = secretive_message(1)
        loaded = in_json(secretive_message(11))
        loaded["resourceSpans"][0]["scopeSpans"][0]["spans"][0] |= {
            "events": [{"name": SECRET}],
            "traceState": KEY,
            "status": {"message": SECRET},
            SECRET: SECRET,
        }
        assert post(request.SerializeToString(), PROTOBUF) == 200
        assert post(json.dumps(loaded).encode(), JSON) == 200
        for content, kind in malformed():
            assert post(content, kind) in (200, 400), content[:80]
            assert post(content, kind, **{"content-encoding": "gzip"}) == 400
        assert post(b"", SECRET) == 415
        assert post(b"", PROTOBUF, **{"content-encoding": KEY}) == 400
        assert post(b"", PROTOBUF, f"{process.otlp_http}?key={KEY}&prompt={MAIL}") == 200
        assert post(b"", PROTOBUF, process.otlp_http.replace("traces", KEY)) == 404
        http.request("GET", f"{process.url}/metrics?key={KEY}", headers=HEADERS)
        with grpc.insecure_channel(process.otlp_grpc) as channel:
            for method in ("Export", KEY):
                call = channel.unary_unary(f"/{SERVICE}/{method}")
                for content in (secretive_message(21).SerializeToString(), SECRET.encode()):
                    try:
                        answers.append(call(content, metadata=(("x-api-key", KEY),), timeout=20))
                    except grpc.RpcError as error:
                        answers.append(f"{error.details()} {error.trailing_metadata()}".encode())
        source = "file:requests.jsonl"
        until(lambda: process.value("records_total", source=source))
        yield process, data, answers
    http.clear()


def found(text: str | bytes) -> list[str]:
    """The secrets in a text, however they are written."""
    data = text.encode() if isinstance(text, str) else text
    plain = re.sub(rb"\\u00([0-9a-f]{2})", lambda hit: bytes([int(hit[1], 16)]), data)
    return [marker for marker in MARKERS if marker.encode() in plain]


def test_the_secrets_were_sent_in_requests_that_are_kept(
    told: tuple[Exporter, Path, list[bytes]],
) -> None:
    rows = Reader(told[1]).requests().set_index("span_id", drop=False)
    for number in (1, 11, 21):
        engine, gateway = rows.loc[span_id(number)], rows.loc[span_id(number + 1)]
        assert (engine["role"], gateway["role"]) == ("engine", "gateway")
        assert (engine["tenant"], gateway["tenant"]) != (LONG, LONG)
    assert "kept" in set(rows["request_id"])


def test_no_byte_of_the_store_is_one(told: tuple[Exporter, Path, list[bytes]]) -> None:
    files = [path for path in told[1].rglob("*") if path.is_file()]
    assert len(files) >= 3
    for path in files:
        assert not found(path.read_bytes()), path
    # Segments are not compressed; that they are is seen here if it ever changes.
    rows = [
        row
        for path in told[1].glob("requests/*.journal")
        for batch in batches(path)
        for row in batch.to_pylist()
    ]
    assert len(rows) > 6
    assert not found(repr(rows))


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/ready"])
def test_no_page_shows_one(told: tuple[Exporter, Path, list[bytes]], path: str) -> None:
    for accept in ("*/*", "application/openmetrics-text"):
        assert not found(told[0].get(path, Accept=accept))


def test_no_answer_quotes_one(told: tuple[Exporter, Path, list[bytes]]) -> None:
    assert len(told[2]) > 20
    for answer in told[2]:
        assert not found(answer), answer


def test_the_log_has_none_even_at_its_most_talkative(
    told: tuple[Exporter, Path, list[bytes]],
) -> None:
    assert "metrics at http" in told[0].log
    assert not found(told[0].log), told[0].log
