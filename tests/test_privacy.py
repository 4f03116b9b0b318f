"""No prompt, key, address or header value reaches the store, a page or the log."""

from __future__ import annotations

import gzip
import json
import re
import socket
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import Any

import grpc
import pyarrow.parquet as pq
import pytest
import urllib3
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tailscope import cli
from tailscope.catalogue.engines import engines
from tailscope.catalogue.spans import KINDS, SERVER_ATTRIBUTES, SpanKind
from tailscope.exporter.otlp import MAX_MESSAGE
from tailscope.exporter.otlpgrpc import SERVICE
from tailscope.records.jsonl import MAX_LINE
from tailscope.records.reader import Reader
from tailscope.records.record import COLUMNS, MAX_TEXT
from tailscope.records.recordfile import MAX_NAMED
from tailscope.records.segments import batches, listing
from tailscope.records.tenancy import TENANT_ATTRIBUTES
from tests import fake_engine as fakes
from tests.fake_engine import Behaviour, Exchange, FakeEngine, answers, capture, fake_engine
from tests.foreignrows import ROWS, SGLANG
from tests.otlp import JSON, NOW_NS, PROTOBUF, attributes, body, message, span, span_id, value
from tests.process import PATIENCE, Exporter, exporter, run, send_all, until

KEY = "sk-canarykey-0123456789"
SECRET = f"Tell canaryprompt of Doe, canarymail@example.com, {KEY}"
LONG = SECRET * 5
"""What stands where an identifier is expected: a text as long as prompts are."""

MARK = re.compile(rb"canary(?:prompt|mail|key)", re.IGNORECASE)
CONTEXT = 100

TENANT, MODEL, REQUEST = "kept-tenant", "kept-model", "kept-request"
"""What has a column of its own, and is to be found again."""

UNREAD = (
    *("gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "gen_ai.output.messages"),
    *("gen_ai.system_instructions", "gen_ai.tool.definitions", "llm.prompts", "input.value"),
    *("http.request.header.authorization", "http.request.header.x-api-key", "http.url"),
    *("url.full", "url.query", "user.email", "user_agent.original", "exception.message"),
)
SPAN_KINDS = (*KINDS, *(engine.spans for engine in engines().values() if engine.spans))
READ: Mapping[str, type] = {
    **{name: COLUMNS[column] for kind in SPAN_KINDS for name, column in kind.attributes.items()},
    **{name: str for kind in SPAN_KINDS for names in kind.places.values() for name in names},
    **{mark.attribute: str for kind in SPAN_KINDS for mark in kind.outcomes},
    **dict.fromkeys(TENANT_ATTRIBUTES, str),
}
MARKS = {name for kind in SPAN_KINDS for group in kind.marks for name in group}


def found(*texts: str | bytes) -> list[str]:
    """The secrets in texts, each with what stands around it."""
    contexts = []
    for text in texts:
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        for hit in MARK.finditer(data):
            around = data[max(hit.start() - CONTEXT, 0) : hit.end() + CONTEXT]
            contexts.append(around.decode("utf-8", "replace"))
    return contexts


# Spans


def in_map() -> AnyValue:
    return AnyValue(kvlist_value=KeyValueList(values=attributes({SECRET: SECRET, "x": LONG})))


SHAPES: dict[str, Callable[[type], AnyValue]] = {
    "text": lambda kind: value(LONG if kind is str else SECRET),
    "bytes": lambda kind: value(SECRET.encode()),
    "list": lambda kind: value([LONG, SECRET]),
    "list that begins well": lambda kind: value([1, SECRET]),
    "map": lambda kind: in_map(),
}
"""How a secret is put into an attribute that is read, by the type of its column."""


def marked_span(number: int, producer: SpanKind, shape: str) -> Span:
    """A span with a secret wherever there is a place for one."""
    own = {group[0]: 1 for group in producer.marks}  # what makes it a request of this producer
    one = span(number, name=producer.name or f"chat {SECRET}")
    del one.attributes[:]
    one.attributes.extend(attributes({**dict.fromkeys(UNREAD, SECRET), SECRET: SECRET}))
    one.attributes.extend(attributes({"x.bytes": SECRET.encode(), "x.list": [SECRET, LONG]}))
    one.attributes.append(KeyValue(key="x.map", value=in_map()))
    one.attributes.extend(attributes(own))
    one.attributes.extend(
        KeyValue(key=key, value=SHAPES[shape](kind))
        for key, kind in READ.items()
        if key not in producer.lacks
        and (key in own or key in producer.attributes or key not in MARKS)  # of another producer
    )
    if producer.role == "gateway":  # it is a request only if it has a tenant
        one.attributes.extend(attributes({TENANT_ATTRIBUTES[0]: TENANT}))
    one.trace_state = f"vendor={KEY}"
    one.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=SECRET))
    one.events.add(name=SECRET, attributes=attributes({"gen_ai.prompt": SECRET, SECRET: 1}))
    one.links.add(
        trace_id=bytes(16), span_id=bytes(8), trace_state=KEY, attributes=attributes({"x": SECRET})
    )
    return one


def marked_message(first: int) -> tuple[ExportTraceServiceRequest, list[int]]:
    """A message with an engine's and a gateway's span of every shape; and their numbers."""
    spans = []
    for number, (shape, producer) in enumerate(product(SHAPES, SPAN_KINDS)):
        spans.append(marked_span(first + number, producer, shape))
    kept = list(range(first, first + len(spans)))
    spans.append(span(first + 90, name=SECRET, gen_ai__prompt=SECRET))
    unread = {**dict.fromkeys(UNREAD, SECRET), SECRET: SECRET}
    read = dict.fromkeys((*SERVER_ATTRIBUTES, *TENANT_ATTRIBUTES), LONG)
    request = message(spans, {**unread, **read})
    group = request.resource_spans[0]
    scope = group.scope_spans[0]
    group.schema_url = scope.schema_url = SECRET
    scope.scope.name = scope.scope.version = SECRET
    scope.scope.attributes.extend(attributes({"x": SECRET}))
    return request, kept


def to_json(request: ExportTraceServiceRequest) -> dict[str, Any]:
    """A message as OTLP writes it in JSON, events and links included."""
    loaded: dict[str, Any] = MessageToDict(request)
    for group in loaded["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for one in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    one[name] = b64decode(one[name]).hex()
                one[SECRET] = {"x": SECRET}
            scope[SECRET] = group[SECRET] = loaded[SECRET] = SECRET
    return loaded


def misshapen(loaded: Any) -> Iterator[Any]:
    """Copies of a document, each with a secret of the wrong kind in one of its places."""
    yield from (LONG, [LONG], {LONG: LONG}, {"x": [LONG, 1]})
    if isinstance(loaded, dict):
        for key, item in loaded.items():
            for wrong in misshapen(item):
                yield {**loaded, key: wrong}
    elif isinstance(loaded, list):
        for index, item in enumerate(loaded):
            for wrong in misshapen(item):
                yield [*loaded[:index], wrong, *loaded[index + 1 :]]


def unreadable() -> Iterator[tuple[bytes, str]]:
    """Bodies whose parsers would like to quote them."""
    whole = marked_message(5000)[0]
    for end in range(1, whole.ByteSize(), 997):
        yield whole.SerializeToString()[:-end], PROTOBUF
    yield whole.SerializeToString().replace(b"Tell canary", b"\xff\xfe canary"), PROTOBUF
    text = json.dumps(to_json(whole))
    for end in range(1, len(text), 4999):
        yield text[:-end].encode(), JSON
    yield text.replace("Tell canary", "\\ud800 canary").encode(), JSON
    yield text.encode("utf-16"), JSON
    yield text.encode().replace(b"Tell canary", b"\xff canary"), JSON
    small = to_json(message([span(5100)], {"service.name": "vllm"}))
    for wrong in misshapen(small):
        yield json.dumps(wrong).encode(), JSON
    for raw in (SECRET, f'{{"{SECRET}": }}', f'{{"resourceSpans": {SECRET}}}', f'"{SECRET}"'):
        yield raw.encode(), JSON
        yield raw.encode(), PROTOBUF


# Lines of a file


def lines() -> Iterator[str]:
    """Request records, good ones and bad ones."""
    good = {"arrived_ns": NOW_NS, "request_id": REQUEST, "tenant": TENANT}
    unread = {"prompt": SECRET, "messages": [{"content": SECRET}], "headers": {"x-api-key": KEY}}
    yield json.dumps({**good, **unread, SECRET: SECRET})
    for name, kind in COLUMNS.items():
        for wrong in (LONG if kind is str else SECRET, [SECRET], {SECRET: SECRET}):
            yield json.dumps({**good, name: wrong})
    yield json.dumps({**good, "role": SECRET})
    yield json.dumps({**good, "outcome": SECRET})
    yield SECRET
    yield f'{{"prompt": "{SECRET}", }}'
    yield f'{{"prompt": "{SECRET}", "x": NaN}}'
    yield f'{{"prompt": "\x01{SECRET}"}}'
    yield json.dumps([SECRET])
    yield json.dumps(SECRET)
    yield json.dumps({**good, "prompt": SECRET * (MAX_LINE // len(SECRET))})
    yield json.dumps(good)


def foreign_lines() -> Iterator[str]:
    """Rows of every format, with a secret in each of their places."""
    more = {"prompt": SECRET, "messages": [{"content": SECRET}], SECRET: SECRET}
    for row, _ in ROWS.values():
        yield json.dumps({**row, **more})
        yield from map(json.dumps, misshapen(row))
    parameters = json.loads(SGLANG["request_parameters"])
    for wrong in misshapen({**parameters, **more, "text": SECRET}):
        yield json.dumps({**SGLANG, "request_parameters": json.dumps(wrong)})


# An engine that tells secrets

RUNNING = "vllm:num_requests_running"


def raw(text: str) -> Behaviour:
    """An answer, head and all."""

    def behaviour(exchange: Exchange) -> None:
        exchange.wfile.write(text.replace("\n", "\r\n").encode())
        exchange.end()

    return behaviour


def headed(status: str, *headers: str) -> Behaviour:
    own = [*headers, "Connection: close"]
    return raw("\n".join([f"HTTP/1.1 {status}", *own, "", capture().replace("\n", " ")]))


def with_lines(*more: str) -> Behaviour:
    return answers("\n".join([capture(), *more, ""]))


TALKATIVE: dict[str, Behaviour] = {
    "unread": with_lines(
        *(f"# HELP x {SECRET}", f"# {SECRET}", f"#{SECRET}", SECRET, f"{SECRET} 5", f"{KEY} 1"),
        f'{RUNNING}{{prompt="{SECRET}",model_name="{MODEL}"}} 1',
        f'vllm:notes_info{{prompt="{SECRET}"}} 1',
        f'vllm:e2e_request_latency_seconds_bucket{{le="{SECRET}",model_name="{MODEL}"}} 1',
        f'vllm:e2e_request_latency_seconds_bucket{{le="1.0",model_name="{MODEL}"}} 1 '
        f'# {{trace_id="{SECRET}"}} 1',
    ),
    "names": with_lines(
        f'{{"{SECRET}"}} 1', f'{{"vllm:{SECRET}", model_name="x"}} 1', f'{KEY}{{a="b"}} 1'
    ),
    "types": answers(
        f"# TYPE {KEY} gauge\n# TYPE vllm:new_{KEY} gauge\n"
        + capture().replace(f"# TYPE {RUNNING} gauge", f"# TYPE {RUNNING} {KEY}")
    ),
    "long labels": with_lines(
        f'{RUNNING}{{model_name="{LONG}",engine="{LONG}"}} 1',
        f'vllm:request_success_total{{finished_reason="{LONG}",model_name="{MODEL}"}} 1',
    ),
    "only a long model": answers(re.sub('model_name="[^"]*"', f'model_name="{LONG}"', capture())),
}
"""Answers that are metrics."""

SILENT: dict[str, Behaviour] = {
    "HTML": fakes.html(f"text/html; charset={KEY}"),
    "HTML of a kind": fakes.html(f"{KEY}/html"),
    "JSON": fakes.json_body(),
    "JSON with secrets": answers(json.dumps({"prompt": SECRET}), f"application/json; x={KEY}"),
    "an error": lambda exchange: exchange.reply(SECRET.encode(), status=500),
    "a redirect": fakes.redirects(f"http://user:{KEY}@127.0.0.1:9/?prompt={SECRET}"),
    "text": answers(f"{SECRET}\n" * 10),
    "no engine": answers(f"# TYPE {KEY} gauge\n# TYPE a{KEY}/ gauge\nx 1\n"),
    "a name in quotes": answers(f'# TYPE "{SECRET}" gauge\n{{"{SECRET}"}} 1\n'),
    "mid-line": answers(f"{SECRET} # TYPE canarykey gauge\nx 1\n"),
    "gzip": lambda exchange: exchange.reply(SECRET.encode(), Content_Encoding="gzip"),
    "a status": raw(f"HTTP/1.1 {SECRET}\n\n"),
    "a reason": headed(f"503 {SECRET}", f"X-Key: {KEY}"),
    "a length": headed("200 OK", f"Content-Length: {KEY}", "Content-Type: text/plain"),
    "a chunk": raw(f"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n{SECRET}\n\n"),
    "a header": headed("200 OK", f"{SECRET}", f"X {KEY}: {KEY}", "Content-Length: 999999"),
    "no HTTP": raw(f"{SECRET}\n"),
}
"""Answers that are none."""

HEADERS = {
    "authorization": f"Bearer {KEY}",
    "x-api-key": KEY,
    "cookie": f"session={KEY}",
    "user-agent": SECRET,
    "referer": f"http://a/?{KEY}",
}


@dataclass
class Told:
    """An exporter that is told secrets, and what it said.

    Attributes:
        process: The exporter.
        data: Its store.
        answers: What it answered, by what it was asked.
        pages: What its pages showed, by when.
        logs: What it logged, in each of its lives.
        logs: What it logged, in each of its lives.
        kept: Numbers of the marked spans that are requests.
    """

    process: Exporter
    data: Path
    answers: dict[str, bytes] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE)

    def ask(self, method: str, url: str, content: bytes = b"", kind: str = "", **more: str) -> int:
        headers = {**HEADERS, "content-type": kind, **more}
        answer = self._http.request(method, url, body=content, headers=headers)
        said = f"{answer.status} {answer.reason} {answer.headers}".encode() + answer.data
        self.answers[f"{len(self.answers)} {method} {kind} {content[:200]!r}"] = said
        return int(answer.status)

    def post(self, content: bytes, kind: str, **more: str) -> int:
        return self.ask("POST", self.process.otlp_http, content, kind, **more)

    def call(
        self, content: bytes, method: str = "Export", compression: grpc.Compression | None = None
    ) -> bool:
        with grpc.insecure_channel(self.process.otlp_grpc) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{method}")
            metadata = (("authorization", KEY), ("x-prompt", SECRET))
            taken = True
            try:
                said = call(content, metadata=metadata, timeout=PATIENCE, compression=compression)
            except grpc.RpcError as error:
                taken = False
                said = f"{error.code()} {error.details()} {error.trailing_metadata()}".encode()
        self.answers[f"{len(self.answers)} gRPC {method} {content[:200]!r}"] = said
        return taken

    def garble(self, port: int, content: str) -> None:
        """Send what is no request, and hear the answer to its end."""
        said = b""
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        with connection, suppress(ConnectionError):
            send_all(connection, content.replace("\n", "\r\n").encode())
            while piece := connection.recv(65536):
                said += piece
        self.answers[f"{len(self.answers)} {port} {content[:200]!r}"] = said

    def look(self, when: str) -> None:
        """Read the pages."""
        self.pages[f"/ {when}"] = self.process.get("/")
        for accept in ("text/plain", "application/openmetrics-text"):
            self.pages[f"/metrics {accept} {when}"] = self.process.get(Accept=accept)


def tell_of_engines(told: Told, engine: FakeEngine) -> None:
    """Let the engine answer in every way, and well in between."""
    source = f"engine:{engine.address}"

    def success() -> float | None:
        return told.process.value("source_last_success_timestamp_seconds", source=source)

    def wait_for_read() -> None:
        before = success()
        until(lambda: success() != before, "the engine is read")

    numbers = count(910)
    for name, behaviour in TALKATIVE.items():
        engine.behaviour = behaviour
        wait_for_read()
        wait_for_read()  # the first one may have begun before
        told.look(name)
        # What the engine says of itself is filled in where a span does not say it.
        assert told.post(body(next(numbers)), PROTOBUF) == 200
    for name, behaviour in SILENT.items():
        engine.behaviour = behaviour
        until(lambda: told.process.state(source) != "ok", f"an answer with {name} is read")
        told.look(name)
        engine.behaviour = answers(capture())
        until(lambda: told.process.state(source) == "ok")


def tell_of_spans(told: Told) -> None:
    """Send spans by every way, with headers full of secrets."""
    requests = []
    for way in range(6):
        request, numbers = marked_message(100 * (way + 1))
        told.kept += numbers
        requests.append(request)
    packed = {"content-encoding": "gzip"}
    plain = [request.SerializeToString() for request in requests]
    assert told.post(plain[0], PROTOBUF) == 200
    assert told.post(gzip.compress(plain[1]), PROTOBUF, **packed) == 200
    assert told.post(json.dumps(to_json(requests[2])).encode(), JSON) == 200
    assert (
        told.post(gzip.compress(json.dumps(to_json(requests[3])).encode()), JSON, **packed) == 200
    )
    assert told.call(plain[4])
    assert told.call(plain[5], compression=grpc.Compression.Gzip)
    known = {
        "tenant.id": TENANT,
        "gen_ai.request.id": f"{REQUEST}-2",
        "gen_ai.response.model": MODEL,
    }
    good = span(900)
    good.attributes.extend(attributes(known))
    assert told.post(message([good]).SerializeToString(), PROTOBUF) == 200


def tell_badly(told: Told) -> None:
    """Send what is refused, and what is no request at all."""
    with ThreadPoolExecutor(8) as pool:  # several share a commit
        assert set(pool.map(lambda each: told.post(*each), unreadable())) == {200, 400}
    for content, kind in unreadable():
        assert kind == JSON or not told.call(content)
    junk = SECRET.encode()
    assert told.post(junk, PROTOBUF, **{"content-encoding": "gzip"}) == 400
    assert told.post(gzip.compress(junk * 9)[:-9], JSON, **{"content-encoding": "gzip"}) == 400
    assert told.post(b"", PROTOBUF, **{"content-encoding": SECRET}) == 400
    assert told.post(b"", SECRET) == 415
    assert told.post(junk * (MAX_MESSAGE // len(junk) + 1), PROTOBUF) == 413
    assert told.post(gzip.compress(junk * 400_000), JSON, **{"content-encoding": "gzip"}) == 413
    assert not told.call(gzip.compress(junk * 400_000))
    assert not told.call(b"", method=KEY)
    for place in (f"/v1/traces?key={KEY}", f"/v1/{KEY}", f"/?key={KEY}", "/v1/traces"):
        told.ask("GET", told.process.otlp_http.replace("/v1/traces", place))
        told.ask("POST", told.process.url + place, junk, JSON)
        told.ask("GET", f"{told.process.url}{place}", accept=SECRET)
    told.ask("GET", f"{told.process.url}/metrics?key={KEY}", accept=SECRET)
    for name in ("listen", "otlp_http", "otlp_grpc"):
        for garbage in (
            f"{SECRET}\n\n",
            f"GET /{KEY} HTTP/9.9\nX-Key: {KEY}\n\n",
            f"GET / HTTP/1.1\nHost: x\n{SECRET}\n\n",
            f"POST /v1/traces HTTP/1.1\nHost: {KEY}\nContent-Length: {KEY}\n\n",
            f"POST /v1/traces HTTP/1.1\nHost: x\nContent-Length: 999\n\n{SECRET}",
        ):
            told.garble(told.process.port(name), garbage)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """An exporter that has ended, and was told every secret; its store is sealed in part."""
    folder = tmp_path_factory.mktemp("privacy")
    data, file = folder / "data", folder / "requests.jsonl"
    with fake_engine() as engine:
        url = f"{engine.url}/metrics?token={KEY}#{KEY}"
        flags = ("--engine", url, "--data", str(data), "--interval", "100ms")
        more = ("--requests", str(file), "--log-level", "debug")
        with exporter(folder / "1.log", *flags, *more) as running:
            told = Told(running, data)
            tell_of_spans(told)
            told_lines = [*lines(), *foreign_lines()]
            file.write_text("".join(f"{line}\n" for line in told_lines))
            tell_of_engines(told, engine)
            tell_badly(told)
            until(lambda: running.value("records_total", source=f"file:{file.name}"))
            until(lambda: running.values("requests_total", tenant=TENANT), "they are counted")
            told.look("when all is told")
            assert running.stop() == 0
            told.logs.append(running.log)
        # What was told so far is sealed; what comes now stays in journals.
        with exporter(folder / "2.log", *flags, *more) as running:
            until(lambda: not listing(data / "requests")[1], "all is sealed")
            told.process = running
            request, numbers = marked_message(800)
            told.kept += numbers
            assert told.post(request.SerializeToString(), PROTOBUF) == 200
            told.look("at the end")
            assert running.stop() == 0
            told.logs.append(running.log)
        yield told


def test_the_secrets_stood_in_requests_that_are_kept(told: Told) -> None:
    assert len(SECRET) <= MAX_TEXT < len(LONG)
    rows = Reader(told.data).requests().set_index("span_id", drop=False)
    for number in told.kept:
        row = rows.loc[span_id(number)]
        producer = SPAN_KINDS[number % 100 % len(SPAN_KINDS)]
        assert row["source"] == producer.source
        assert (row["tenant"] == TENANT) is (producer.role == "gateway")
        assert row["outcome"] == "error"
    good = rows.loc[span_id(900)]
    assert (good["tenant"], good["request_id"], good["model"]) == (TENANT, f"{REQUEST}-2", MODEL)
    from_file = rows[rows["source"] == "file"]
    assert set(from_file["request_id"]) == {REQUEST}
    assert set(ROWS) <= set(rows["source"]), "a row of each format"
    assert TENANT in told.pages["/metrics text/plain when all is told"]
    assert MODEL in told.pages["/metrics text/plain unread"]


def test_no_byte_of_the_store_is_one(told: Told) -> None:
    files = [path for path in told.data.rglob("*") if path.is_file()]
    for path in files:
        assert not found(path.read_bytes(), path.name), path
    suffixes = {path.suffix for path in files}
    assert {".parquet", ".journal"} <= suffixes


def test_no_value_of_the_store_is_one(told: Told) -> None:
    for table in ("requests", "samples"):
        sealed, segments = listing(told.data / table)
        assert sealed
        for file in sealed:
            with pq.ParquetFile(file.path) as parquet:
                rows = parquet.read().to_pylist()
                assert rows
                assert not found(repr(rows), repr(parquet.metadata), repr(parquet.schema_arrow))
        for segment in segments:
            for batch in batches(segment.path):
                assert not found(repr(batch.to_pylist()), repr(batch.schema))


def test_no_page_shows_one(told: Told) -> None:
    for when, page in told.pages.items():
        assert not found(page), when


def test_no_answer_quotes_one(told: Told) -> None:
    assert len(told.answers) > 100
    for request, answer in told.answers.items():
        assert not found(answer), request


def test_the_log_quotes_none(told: Told) -> None:
    for log in told.logs:
        assert "metrics at http" in log
        assert "Traceback" not in log
        assert not found(log)


# The command itself

URL = f"http://user:{KEY}@127.0.0.1:9"


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_a_password_in_a_url_is_refused_and_not_repeated(tmp_path: Path, way: str) -> None:
    path = tmp_path / "tailscope.yaml"
    path.write_text(f"engine: {URL}\n")
    flags, env = {
        "flag": (["--engine", URL], {}),
        "variable": ([], {"TAILSCOPE_ENGINE": URL}),
        "file": (["--config", str(path)], {}),
    }[way]
    refused = run("exporter", *flags, env=env)
    assert refused.returncode == 2
    assert "--engine ...@127.0.0.1:9: a URL must hold no user and no password" in refused.stderr
    assert not found(refused.stderr, refused.stdout)


@pytest.mark.parametrize(
    "flags",
    [
        ("--engine", f"http://a:0/?token={KEY}"),
        ("--engine", "http://a:1", "--engine", f"http://a:1/?token={KEY}"),
        ("--dcgm-url", f"ftp://a/?token={KEY}"),
        ("--dcgm-url", f"http://user:{KEY}@a"),
    ],
)
def test_a_refusal_does_not_repeat_a_token(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["exporter", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tailscope exporter: {flags[-2]} ")
    assert not found(said)


def test_an_import_of_foreign_rows_quotes_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(foreign_lines()))
    imported = run("import", "--data", str(tmp_path / "data"), str(path))
    assert imported.returncode == 0, imported.stderr
    assert "left out: " in imported.stderr
    assert not found(imported.stderr, imported.stdout)
    rows = Reader(tmp_path / "data").requests()
    assert set(ROWS) <= set(rows["source"])
    assert not found(rows.to_json())


def test_an_import_does_not_quote_what_it_leaves_out(tmp_path: Path) -> None:
    told = list(lines())
    paths = []
    for start in range(0, len(told), MAX_NAMED):
        paths.append(tmp_path / f"{start}.jsonl")
        paths[-1].write_text("\n".join([*told[start : start + MAX_NAMED], told[-1]]))
    imported = run("import", "--data", str(tmp_path / "data"), *map(str, paths))
    assert imported.returncode == 0, imported.stderr
    assert imported.stderr.count("left out: line ") == len(told) - 2
    assert not found(imported.stderr, imported.stdout)
    assert set(Reader(tmp_path / "data").requests()["tenant"]) == {TENANT}
