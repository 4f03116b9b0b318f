"""The middleware in a real uvicorn, with a real exporter behind it."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tailscope.catalogue.engines import engines
from tailscope.exporter.otlp import read_protobuf
from tailscope.exporter.spans import SpanReader
from tailscope.middleware import TailscopeMiddleware, response
from tailscope.middleware.encoding import message
from tailscope.middleware.observation import Context, Observation, continue_trace
from tailscope.middleware.settings import Settings, read
from tailscope.records.reader import Reader, join_records
from tailscope.records.record import RequestRecord
from tests.process import PATIENCE, ROOT, Exporter, exporter, free, until

NOW_NS = 1_796_000_000_000_000_000
PATH = "/v1/chat/completions"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "canaryprompt"
ROLE = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
TOKEN = {"choices": [{"delta": {"content": f'{SECRET} says "error": and \n data: x'}}]}


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


# An engine's server


class Engine:
    """A server with the middleware.

    Attributes:
        seen: The ``traceparent`` headers that the application got.
        aborted: Set when a stream was broken off.
    """

    def __init__(self, settings: Settings) -> None:
        self.seen: list[str | None] = []
        self.aborted = threading.Event()
        self.app = Starlette(
            routes=[
                Route(PATH, self.answer, methods=["POST"]),
                Route("/health", lambda request: Response("ok")),
            ]
        )
        self.middleware = TailscopeMiddleware(self.app, settings)

    async def answer(self, request: Request) -> Response:
        self.seen.append(request.headers.get("traceparent"))
        way = (await request.json())["way"]
        if way == "whole":
            return JSONResponse({"text": SECRET})
        if way == "full":
            return JSONResponse({"error": {"message": SECRET, "code": 503}}, 503)
        if way == "crash":
            raise RuntimeError("the engine is dead")
        kind = "text/event-stream; charset=utf-8"
        return StreamingResponse(self.stream(way), media_type=kind)

    async def stream(self, way: str) -> AsyncIterator[bytes]:
        if way == "turned away":
            yield event({"error": {"message": SECRET, "type": "ServiceUnavailable", "code": 503}})
            yield b"data: [DONE]\n\n"
            return
        yield event(ROLE)
        await asyncio.sleep(0.02)
        yield event(TOKEN)
        if way == "endless":
            try:
                while True:
                    await asyncio.sleep(0.01)
                    yield event(TOKEN)
            finally:
                self.aborted.set()
        if way == "broken":
            for _ in range(50):
                yield event(TOKEN)
            yield event({"error": {"message": SECRET, "code": 400}})
        yield b"data: [DONE]\n\n"


class Server:
    """Uvicorn in a thread, on a free port."""

    def __init__(self, settings: Settings) -> None:
        self.engine = Engine(settings)
        self.sender = self.engine.middleware.sender
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(self.engine.middleware, log_level="critical", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self._socket],))
        self.thread.start()
        until(lambda: self.server.started, "uvicorn serves")

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        self._socket.close()
        self.sender.close()

    def call(self, way: str, pieces: int | None = None, **headers: str) -> tuple[int, bytes]:
        """Ask; with ``pieces``, leave after so many bytes of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            named = {name.replace("_", "-"): text for name, text in headers.items()}
            connection.request("POST", PATH, json.dumps({"way": way, "prompt": SECRET}), named)
            answer = connection.getresponse()
            return answer.status, answer.read(pieces)
        finally:
            connection.close()


@contextmanager
def serving(endpoint: str, **more: Any) -> Iterator[Server]:
    server = Server(Settings(endpoint=endpoint, interval=0.05, **more))
    try:
        yield server
    finally:
        server.stop()


WAYS: dict[str, tuple[int, str]] = {
    "whole": (200, "ok"),
    "stream": (200, "ok"),
    "full": (503, "rejected"),
    "crash": (500, "error"),
    "turned away": (200, "rejected"),
    "broken": (200, "error"),
    "endless": (200, "aborted"),
}
"""What is asked for, the status that comes, and how it ends."""


class Told:
    """What was asked and what came into the store."""

    def __init__(self, rows: pd.DataFrame, answers: dict[str, bytes], seen: list[str | None]):
        self.rows, self.answers, self.seen = rows, answers, seen
        self.files: dict[str, bytes] = {}
        self.log = ""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("middleware")
    data = folder / "data"
    with exporter(folder / "log", "--data", str(data), "--engine", "http://127.0.0.1:1") as running:
        with serving(running.otlp_http) as server:
            answers = {}
            for way, (status, _) in WAYS.items():
                pieces = 200 if way == "endless" else None
                got, answers[way] = server.call(
                    way, pieces, X_Request_Id=way, X_Tenant_Id="acme", Authorization="sk-canary"
                )
                assert got == status
            heard = server.engine.aborted.wait(PATIENCE)
            assert heard, "the application hears that the client left"
            server.call(
                "stream",
                traceparent=f"00-{TRACE}-{CALLER}-00",
                X_Request_Id="traced",
                Idempotency_Key="call-1",
                X_Stainless_Retry_Count="2",
                X_Tenant="globex",
            )
            health = http.client.HTTPConnection("127.0.0.1", server.port)
            health.request("GET", "/health")
            assert health.getresponse().read() == b"ok"
            health.close()
            until(lambda: server.sender.sent == len(WAYS) + 1, "all are acknowledged")
            assert server.sender.dropped == 0
        assert running.stop() == 0
        rows = Reader(data).requests().set_index("request_id", drop=False)
        found = Told(rows, answers, server.engine.seen)
        found.files = {str(p): p.read_bytes() for p in data.rglob("*") if p.is_file()}
        found.log = running.log
    return found


def test_each_request_is_a_record(told: Told) -> None:
    assert len(told.rows) == len(WAYS) + 1, "and the probe is none"
    assert set(told.rows["source"]) == {"middleware"}
    assert set(told.rows["role"]) == {"gateway"}
    for way, (status, outcome) in WAYS.items():
        row = told.rows.loc[way]
        assert row["outcome"] == outcome, way
        assert row["tenant"] == "acme"
        assert row["status"] == status, way


def test_the_first_token_is_told_of_streams_alone(told: Told) -> None:
    first = told.rows["ttft_seconds"]
    assert set(first.index[first.notna()]) == {"stream", "broken", "endless", "traced"}
    assert (first.dropna() >= 0.02).all(), "the role's chunk is no token"
    assert (told.rows["total_seconds"] > 0).all()


def test_a_trace_is_continued_or_begun(told: Told) -> None:
    by_span = {}
    for header in told.seen:
        assert header is not None
        _, trace, span, flags = header.split("-")
        by_span[span] = trace, flags
    assert set(by_span) == set(told.rows["span_id"])
    for _, row in told.rows.iterrows():
        traced = row["request_id"] == "traced"
        assert by_span[row["span_id"]] == (row["trace_id"], "00" if traced else "01")
        assert (row["trace_id"] == TRACE) == traced
        assert row["parent_span_id"] == CALLER if traced else pd.isna(row["parent_span_id"])


def test_headers_that_were_named_are_read(told: Told) -> None:
    row = told.rows.loc["traced"]
    assert (row["tenant"], row["session"], row["attempt"]) == ("globex", "call-1", 3)
    assert told.rows["attempt"].isna()["whole"]


def test_nothing_of_a_body_is_kept_and_the_body_is_whole(told: Told) -> None:
    for name, content in told.files.items():
        assert b"canary" not in content, name
    assert "canary" not in told.log
    assert told.answers["stream"] == event(ROLE) + event(TOKEN) + b"data: [DONE]\n\n"


def test_it_meets_the_engines_row(told: Told) -> None:
    gateway = told.rows.loc["stream"]
    trace, span = str(gateway["trace_id"]), str(gateway["span_id"])
    rows = [
        RequestRecord("middleware", "gateway", NOW_NS, span_id=span, trace_id=trace, tenant="acme"),
        RequestRecord("vllm", "engine", NOW_NS, parent_span_id=span, trace_id=trace),
    ]
    (row,) = join_records(rows).to_dict("records")
    assert (row["joined"], row["tenant"]) == ("parent", "acme")


# An exporter that is away


def test_an_exporter_that_comes_later_gets_what_waited(tmp_path: Path) -> None:
    address = free()
    with serving(f"http://{address}/v1/traces") as server:
        for number in range(5):
            assert server.call("whole", X_Request_Id=str(number))[0] == 200
        flags = ("--otlp-http", str(address), "--data", str(tmp_path / "data"))
        with exporter(tmp_path / "log", *flags, "--engine", "http://127.0.0.1:1") as running:
            until(lambda: server.sender.sent == 5, "what waited is sent")
            assert running.value("records_total", source="otlp:http") == 5
            kill(running)
            assert server.call("whole", X_Request_Id="5")[0] == 200
            with exporter(tmp_path / "log2", *flags, "--engine", "http://127.0.0.1:1"):
                until(lambda: server.sender.sent == 6, "the new one gets the rest")
    assert server.sender.dropped == 0
    assert set(Reader(tmp_path / "data").requests()["request_id"]) == set("012345")


def kill(running: Exporter) -> None:
    running.process.kill()
    running.process.wait(PATIENCE)


def test_what_does_not_fit_is_dropped_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), serving(f"http://{free()}/", buffer=3) as server:
        for _ in range(5):
            assert server.call("whole")[0] == 200
        until(lambda: server.sender.dropped == 2, "two do not fit")
        until(lambda: "2 requests were not told" in caplog.text)
    assert caplog.text.count("takes nothing") == 1


# Its parts


def observation(number: int = 1, **more: Any) -> Observation:
    context = Context(number.to_bytes(16), number.to_bytes(8), b"", b"")
    values: dict[str, Any] = dict.fromkeys(Observation._fields)
    values |= {"context": context, "arrived_ns": NOW_NS, "total_ns": 10**9, "status": 200}
    return Observation(**{**values, **more})


@pytest.mark.parametrize("count", [1, 200])
def test_what_it_writes_is_read(count: int) -> None:
    told = {"tenant": "ä" * 100, "session": "s", "attempt": 300, "first_ns": 250_000_000}
    ones = [observation(number + 1, **told) for number in range(count)]
    batch = SpanReader(engines()).read(read_protobuf(message(ones, "x")))
    assert not batch.rejected
    assert len(batch.records) == count
    assert batch.records[0] == RequestRecord(
        source="middleware",
        role="gateway",
        arrived_ns=NOW_NS,
        ended_ns=NOW_NS + 10**9,
        span_id="0" * 15 + "1",
        trace_id="0" * 31 + "1",
        tenant="ä" * 100,
        session="s",
        attempt=300,
        ttft_seconds=0.25,
        total_seconds=1.0,
        status=200,
        outcome="ok",
    )


@pytest.mark.parametrize(
    "header",
    [
        *(None, b"", b"00", b"00-xyz", f"ff-{TRACE}-{CALLER}-01".encode()),
        *(f"00-{'0' * 32}-{CALLER}-01".encode(), f"00-{TRACE}-{'0' * 16}-01".encode()),
        f"00-{TRACE.upper()}-{CALLER}-01".encode(),
    ],
)
def test_a_context_that_is_none_begins_a_trace(header: bytes | None) -> None:
    context = continue_trace(header)
    assert context.parent == b""
    assert context.trace.hex() != TRACE
    expected = f"00-{context.trace.hex()}-{context.span.hex()}-01"
    assert context.header.decode() == expected


def test_settings_are_read_and_secrets_are_not(caplog: pytest.LogCaptureFixture) -> None:
    assert read({}) == Settings()
    found = read(
        {
            "TAILSCOPE_TENANT_HEADER": "X-Customer, Authorization, x-api-key",
            "TAILSCOPE_MIDDLEWARE_ENDPOINT": "http://exporter:4318",
            "TAILSCOPE_MIDDLEWARE_BUFFER": "-1",
            "TAILSCOPE_MIDDLEWARE_PATHS": "/v1/*",
        }
    )
    assert found.tenant_headers == ("x-customer",)
    assert found.endpoint == "http://exporter:4318/v1/traces"
    assert (found.buffer, found.paths) == (20_000, ("/v1/*",))
    assert "authorization holds a secret" in caplog.text
    assert "give a number above 0" in caplog.text
    assert read({"TAILSCOPE_MIDDLEWARE_ENDPOINT": "http://u:p@h"}).endpoint == Settings().endpoint
    assert "u:p" not in caplog.text


def test_it_needs_nothing_else() -> None:
    """What a user copies into the engine's environment: one folder."""
    program = (
        "import sys; before = set(sys.modules)\n"
        "import tailscope.middleware\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT / 'exporter')!r})\n{program}",
        ],
        capture_output=True,
        text=True,
    )
    assert (done.stdout.split(), done.stderr) == (["tailscope"], "")


@pytest.mark.parametrize("pieces", [0, 9, 63, 64, 65, 200])
def test_an_error_is_seen_however_long_the_stream_goes_on(pieces: int) -> None:
    async def nothing(*given: Any) -> Any:
        """Neither listens nor sends."""

    async def run() -> str | None:
        seen = response.Response(nothing, nothing, 0)
        kind = [(b"content-type", b"text/event-stream")]
        body = {"type": "http.response.body", "more_body": True}
        await seen.send({"type": "http.response.start", "status": 200, "headers": kind})
        failed = b'data: {"error": {"code": 503}}\n\n'
        for text in (*[b'data: {"a": 1}\n\n'] * pieces, failed, *[b"data: {}\n\n"] * pieces):
            await seen.send({**body, "body": text})
        await seen.send({"type": "http.response.body"})
        return seen.outcome()

    assert asyncio.run(run()) == "rejected"
