"""The OTLP receiver of the real exporter, and what senders make of its answers."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pandas as pd
import pytest
import urllib3
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpExporter,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import format_span_id, format_trace_id

from tailscope.address import Address
from tailscope.catalogue.engines import engines
from tailscope.errors import UsageError
from tailscope.exporter.health import Health
from tailscope.exporter.intake import Intake
from tailscope.exporter.listeners import HttpListeners, bind
from tailscope.exporter.matcher import Matcher
from tailscope.exporter.otlp import MAX_MESSAGE, BadMessage, TooLarge
from tailscope.exporter.otlpgrpc import SERVICE, GrpcListener
from tailscope.exporter.otlphttp import otlp_app
from tailscope.exporter.receiver import Budget, Busy, Receiver, unpack
from tailscope.exporter.spans import SpanReader
from tailscope.records.errors import StoreError, StoreFull
from tailscope.records.reader import Reader
from tailscope.records.segments import listing
from tests.otlp import (
    JSON,
    PROTOBUF,
    STAGES,
    body,
    clients,
    in_json,
    message,
    recorded,
    span,
    span_id,
)
from tests.process import PATIENCE, Exporter, exporter, run, until

NO_ENGINE = ("--engine", "http://127.0.0.1:9")
HTTP = urllib3.PoolManager(retries=False, timeout=PATIENCE)


class Running:
    """An exporter with a store."""

    def __init__(self, process: Exporter, data: Path) -> None:
        self.process = process
        self.data = data
        self.grpc = grpc.insecure_channel(
            process.otlp_grpc, options=[("grpc.max_send_message_length", -1)]
        )
        self.url = process.otlp_http

    def post(
        self, content: bytes, kind: str = PROTOBUF, **headers: str
    ) -> urllib3.BaseHTTPResponse:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return HTTP.request("POST", self.url, body=content, headers={"content-type": kind, **named})

    def call(
        self, content: bytes, compression: grpc.Compression | None = None
    ) -> ExportTraceServiceResponse:
        answer = self.grpc.unary_unary(f"/{SERVICE}/Export")(
            content, compression=compression, timeout=PATIENCE
        )
        return ExportTraceServiceResponse.FromString(answer)

    def requests(self) -> pd.DataFrame:
        return Reader(self.data).requests()

    def kept(self, *numbers: int) -> bool:
        found = set(self.requests()["span_id"])
        return all(span_id(number) in found for number in numbers)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("receiver")
    flags = ("--data", str(folder / "data"), "--log-level", "debug")
    with exporter(folder / "log", *NO_ENGINE, *flags) as process:
        receiver = Running(process, folder / "data")
        yield receiver
        receiver.grpc.close()
        assert "Traceback" not in process.log


# What real senders send


@pytest.mark.parametrize("transport", ["grpc", "grpc gzip", "http", "http gzip"])
def test_the_exporters_of_the_opentelemetry_sdk(running: Running, transport: str) -> None:
    sender: SpanExporter
    if transport.startswith("grpc"):
        packed = grpc.Compression.Gzip if "gzip" in transport else None
        sender = GrpcExporter(f"http://{running.process.otlp_grpc}", compression=packed)
    else:
        squeezed = Compression.Gzip if "gzip" in transport else None
        sender = HttpExporter(running.url, compression=squeezed)
    provider = TracerProvider(resource=Resource({"service.name": "vllm"}))
    provider.add_span_processor(BatchSpanProcessor(sender))
    tracer = provider.get_tracer("vllm.tracing.otel")
    with tracer.start_as_current_span("a client's") as outer:
        attributes: dict[str, Any] = {
            **STAGES,
            "gen_ai.request.id": "cmpl-x-0",
            "tenant.id": "acme",
        }
        with tracer.start_as_current_span("llm_request", attributes=attributes) as inner:
            inner.add_event("event", {"key": "value"})
        with tracer.start_as_current_span("Load model"):
            pass
    assert provider.force_flush()
    provider.shutdown()
    found = running.requests()
    context, parent = inner.get_span_context(), outer.get_span_context()
    mine = found["trace_id"] == format_trace_id(context.trace_id)
    (row,) = found[mine].to_dict("records")
    assert row["span_id"] == format_span_id(context.span_id)
    assert row["parent_span_id"] == format_span_id(parent.span_id)
    assert row["request_id"] == "x"
    assert (row["tenant"], row["frontend_seconds"]) == ("acme", 0.125)


def test_json_by_hand(running: Running) -> None:
    content = json.dumps(in_json(message([span(1001)]))).encode()
    answer = running.post(content, JSON)
    assert (answer.status, answer.data) == (200, b"{}")
    assert answer.headers["content-type"] == JSON
    packed = gzip.compress(json.dumps(in_json(message([span(1002)]))).encode())
    assert running.post(packed, f"{JSON}; charset=utf-8", content_encoding="gzip").status == 200
    assert running.kept(1001, 1002)


def test_protobuf_by_hand(running: Running) -> None:
    answer = running.post(body(1011))
    assert (answer.status, answer.data) == (200, b"")
    assert answer.headers["content-type"] == PROTOBUF
    packed = gzip.compress(body(1012))
    assert running.post(packed, content_encoding="GZIP").status == 200
    assert running.post(zlib.compress(body(1013)), content_encoding="deflate").status == 200
    assert running.post(body(1014), content_encoding="identity").status == 200
    pieces = gzip.compress(body(1015)[:50]) + gzip.compress(body(1015)[50:])
    assert running.post(pieces, content_encoding="gzip").status == 200
    assert running.kept(*range(1011, 1016))


def test_grpc_in_every_compression(running: Running) -> None:
    for number, compression in enumerate(grpc.Compression, 1021):
        # One message is below the size from which gRPC compresses, one above.
        running.call(body(number), compression)
        running.call(body(*range(number * 100, number * 100 + 20)), compression)
        assert running.kept(number, *range(number * 100, number * 100 + 20))


def test_an_empty_message_is_one(running: Running) -> None:
    assert running.post(b"").status == 200
    assert running.post(b"{}", JSON).status == 200
    assert running.call(b"") == ExportTraceServiceResponse()


def test_what_is_left_out_is_told(running: Running) -> None:
    bad = span(1031)
    bad.start_time_unix_nano = 0
    content = message([bad, span(1032)]).SerializeToString()
    expected = {"rejected_spans": 1, "error_message": "no_arrival"}
    over_http = ExportTraceServiceResponse.FromString(running.post(content).data)
    for answer in (over_http, running.call(content)):
        assert answer.partial_success.rejected_spans == expected["rejected_spans"]
        assert answer.partial_success.error_message == expected["error_message"]
    assert running.kept(1032)
    rejected = running.process.value(
        "records_rejected_total", source="otlp:http", reason="no_arrival"
    )
    assert rejected == 1


def test_a_span_that_is_sent_again_is_one_request(running: Running) -> None:
    for _ in range(3):
        running.post(body(1041))
        running.call(body(1041))
    assert (running.requests()["span_id"] == span_id(1041)).sum() == 1


# Recordings


@pytest.mark.parametrize(
    ("name", "requests", "tenants"), [("run11", 278, 278), ("run1", 182, 182), ("run2", 67, 67)]
)
def test_a_recorded_run_through_the_whole_exporter(
    tmp_path: Path, name: str, requests: int, tenants: int
) -> None:
    client_file = tmp_path / "clients.jsonl"
    client_file.write_text("")
    flags = ("--data", str(tmp_path / "data"), "--requests", str(client_file))
    with exporter(tmp_path / "log", *NO_ENGINE, *flags, "--interval", "100ms") as process:
        running = Running(process, tmp_path / "data")
        for index, content in enumerate(recorded(name)):
            if index % 2:
                running.call(content)
            else:
                assert running.post(content).status == 200
        rows = clients(name)
        with client_file.open("a") as file:
            for row in rows:
                known = {key: getattr(row, key) for key in row.__slots__}
                file.write(json.dumps({k: v for k, v in known.items() if v is not None}) + "\n")
        source = "file:clients.jsonl"
        until(lambda: process.value("records_total", source=source) == len(rows))
        found = running.requests()
        engine = found[found["role"] == "engine"]
        assert len(engine) == requests
        assert engine["tenant"].notna().sum() == tenants
        seconds = process.values("request_seconds_count", engine="vllm")
        assert sum(seconds) == requests, "each is counted once"
        running.grpc.close()
        assert process.stop() == 0
    assert len(Reader(tmp_path / "data").requests()) == len(found)


# What is refused


def status_of(answer: urllib3.BaseHTTPResponse) -> tuple[int, Status]:
    return answer.status, Status.FromString(answer.data)


def test_http_says_what_is_wrong(running: Running) -> None:
    for content, kind, headers, status, code in (
        (b"junk", PROTOBUF, {}, 400, 3),
        (b"junk", PROTOBUF, {"content_encoding": "gzip"}, 400, 3),
        (gzip.compress(body(1))[:-5], PROTOBUF, {"content_encoding": "gzip"}, 400, 3),
        (body(1), PROTOBUF, {"content_encoding": "br"}, 400, 3),
        (body(1), PROTOBUF, {"content_encoding": "gzip, gzip"}, 400, 3),
        (body(1), "text/plain", {}, 415, 3),
        (body(1), "", {}, 415, 3),
        (b"x" * (MAX_MESSAGE + 1), PROTOBUF, {}, 413, 8),
    ):
        answer = running.post(content, kind, **headers)
        assert answer.headers["content-type"] == PROTOBUF
        found, told = status_of(answer)
        assert (found, told.code) == (status, code), (content[:20], kind, headers)
        assert told.message
        assert "Retry-After" not in answer.headers


def test_json_hears_of_it_in_json(running: Running) -> None:
    for content, status in ((b"junk", 400), (b"[]", 400), (b" " * (5 << 20), 413)):
        answer = running.post(content, JSON)
        assert answer.status == status
        assert json.loads(answer.data)["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/traces", 405), ("POST", "/v1/metrics", 404), ("POST", "/", 404)],
)
def test_other_addresses(running: Running, method: str, path: str, status: int) -> None:
    url = running.url.replace("/v1/traces", path)
    assert HTTP.request(method, url, body=b"").status == status


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_grpc_says_what_is_wrong(running: Running, compression: grpc.Compression) -> None:
    for content, code in (
        (b"junk", grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x1f\x8b junk", grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x78\x9c junk", grpc.StatusCode.INVALID_ARGUMENT),
        (b"\0" * (50 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            running.call(content, compression)
        assert caught.value.code() is code
        assert "grpc-status-details-bin" not in dict(caught.value.trailing_metadata()), "no retry"


def test_a_method_that_there_is_not(running: Running) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        running.grpc.unary_unary(f"/{SERVICE}/Import")(b"", timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# A disk that is full


def test_a_full_disk_is_told_and_metrics_go_on(tmp_path: Path) -> None:
    """No file may grow beyond 64 KiB; a message of 1,000 requests takes 300 KiB."""
    with exporter(tmp_path / "log", *NO_ENGINE, "--data", str(tmp_path / "data")) as process:
        running = Running(process, tmp_path / "data")
        assert running.post(body(1)).status == 200
        limits = resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
        large = body(*range(1000, 2000))
        for _ in range(3):
            answer = running.post(large)
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert "cannot write to" in Status.FromString(answer.data).message
            with pytest.raises(grpc.RpcError) as caught:
                running.call(large)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert _delay(caught.value) == 1
        assert process.value("store_up") == 0
        assert process.value("records_total", source="otlp:http") == 1
        assert process.log.count("cannot write to") == 1
        assert running.kept(1)
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, limits)
        assert running.post(large).status == 200
        assert process.value("store_up") == 1
        assert running.kept(1, *range(1000, 2000))
        assert process.log.count("the store takes requests again") == 1
        # What came to nothing leaves nothing about, once the sealing that the disk stopped is done.
        until(lambda: _tidy(tmp_path / "data" / "requests"), "no file but those with requests")
        running.grpc.close()


def _tidy(folder: Path) -> bool:
    """Whether there are only files that readers look at, and one segment at most."""
    sealed, segments = listing(folder)
    return len(segments) <= 1 and set(folder.iterdir()) == {
        *(file.path for file in sealed),
        *(segment.path for segment in segments),
    }


def _delay(error: grpc.RpcError) -> int:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = Status.FromString(details)
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    return int(info.retry_delay.seconds)


def test_two_exporters_do_not_share_a_directory(running: Running) -> None:
    listen = ("--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-http", "off")
    second = run("exporter", *NO_ENGINE, *listen, "--data", str(running.data))
    assert second.returncode == 2
    assert "another exporter writes into" in second.stderr
    assert "give each one its own --data" in second.stderr


# Back-pressure


class Refusing(Intake):
    """An intake whose store is full, or broken."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(None, _matcher(), lambda: (None, None))
        self._error = error

    def accept(self, *arguments: Any, **more: Any) -> Counter[str]:
        raise self._error


def _matcher() -> Matcher:
    return Matcher(lambda pairs: None, expect_gateway=False)


def receiver(intake: Intake) -> Receiver:
    return Receiver(SpanReader(engines()), intake, Health("otlp"))


@contextmanager
def served(intake: Intake, **more: float) -> Iterator[str]:
    """The HTTP side on its own; yields its URL."""
    with bind("--otlp-http", Address("127.0.0.1", 0)) as listener:
        http = HttpListeners([(otlp_app(receiver(intake), **more), listener)])
        http.start()
        until(lambda: http.serving)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
        http.stop()
        http.join(PATIENCE)


REFUSALS = [
    (StoreFull("50000 records wait for the disk"), grpc.StatusCode.RESOURCE_EXHAUSTED),
    (StoreError("the disk took longer than 10 s"), grpc.StatusCode.UNAVAILABLE),
]


@pytest.mark.parametrize("error", [error for error, _ in REFUSALS])
def test_http_senders_are_asked_to_come_again(error: StoreError) -> None:
    with served(Refusing(error)) as url:
        answer = HTTP.request("POST", url, body=body(1), headers={"content-type": PROTOBUF})
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        told = Status.FromString(answer.data)
        assert (told.code, told.message) == (14, str(error))


@pytest.mark.parametrize(("error", "code"), REFUSALS)
def test_grpc_senders_are_asked_to_come_again(error: StoreError, code: grpc.StatusCode) -> None:
    listener = GrpcListener(receiver(Refusing(error)), "127.0.0.1:0")
    listener.start()
    with grpc.insecure_channel(f"127.0.0.1:{listener.port}") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/{SERVICE}/Export")(body(1), timeout=PATIENCE)
        assert (caught.value.code(), caught.value.details()) == (code, str(error))
        assert _delay(caught.value) == 1
    listener.stop(1)


def test_an_address_that_is_taken(running: Running) -> None:
    with pytest.raises(UsageError, match=r"--otlp-grpc .*: the address cannot be listened on"):
        GrpcListener(receiver(Refusing(StoreError())), running.process.otlp_grpc)


def test_a_sender_that_is_too_slow_is_not_waited_for() -> None:
    intake = Intake(None, _matcher(), lambda: (None, None))
    with served(intake, body_seconds=0.2) as url:
        parts = urlsplit(url)
        address = (str(parts.hostname), int(parts.port or 0))
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\nabc".encode())
            answer = b""
            while piece := connection.recv(1000):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"longer than 0.2 s" in answer


def test_messages_in_memory_are_bounded() -> None:
    budget = Budget(10)
    with budget.lend(6):
        with pytest.raises(Busy), budget.lend(5):
            pass
        with budget.lend(4), pytest.raises(Busy):
            budget.take(1)
    budget.take(10)
    budget.give(10)
    budget.take(10)


def test_unpacking_is_bounded() -> None:
    assert unpack(b"x", "") == unpack(b"x", "identity") == b"x"
    whole = bytes(MAX_MESSAGE)
    assert unpack(gzip.compress(whole), "gzip") == whole
    for more in (bytes(MAX_MESSAGE + 1), bytes(MAX_MESSAGE * 8)):
        with pytest.raises(TooLarge):
            unpack(gzip.compress(more), "gzip")
    half = gzip.compress(bytes(MAX_MESSAGE // 2 + 1))
    with pytest.raises(TooLarge):
        unpack(half + half, "gzip")
    with pytest.raises(BadMessage, match="more than 16 pieces"):
        unpack(gzip.compress(b"") * 17, "gzip")
    for cut in (b"", half[:-1], half + b"\0", b"\0" + half):
        with pytest.raises(BadMessage):
            unpack(cut, "gzip")
