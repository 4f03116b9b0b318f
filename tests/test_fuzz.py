"""Bad messages: the answer is an honest status, the memory is bounded, the log is quiet."""

from __future__ import annotations

import gzip
import json
import random
import socket
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import urllib3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailscope.catalogue.engines import engines
from tailscope.catalogue.spans import KINDS
from tailscope.exporter.otlp import BadMessage, TooLarge, read_protobuf
from tailscope.exporter.otlpgrpc import SERVICE
from tailscope.exporter.otlpjson import read_json
from tailscope.exporter.receiver import unpack
from tailscope.exporter.spans import Batch, SpanReader
from tailscope.records.record import COLUMNS
from tailscope.records.schema import request_batch
from tests.otlp import JSON, PROTOBUF, body, in_json, message, recorded, span
from tests.process import PATIENCE, Exporter, exporter, send_all, until

MIB = 1 << 20
GROWTH = 150 * MIB
READER = SpanReader(engines())
SPAN_KINDS = (*KINDS, *(engine.spans for engine in engines().values() if engine.spans))
QUICK = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# Without a network: the reader takes it or says no, and what it takes the store can hold.


def taken(content: bytes, kind: str) -> Batch | None:
    try:
        batch = READER.read(read_json(content) if kind == JSON else read_protobuf(content))
    except (BadMessage, TooLarge) as error:
        assert len(str(error)) < 200
        return None
    rows = request_batch(batch.records)
    rows.validate(full=True)
    for record in batch.records:
        for name, column in COLUMNS.items():
            value = getattr(record, name)
            assert value is None or type(value) is column, name
    return batch


@QUICK
@given(st.binary(max_size=2000))
def test_random_bytes(content: bytes) -> None:
    for kind in (PROTOBUF, JSON):
        taken(content, kind)
    for encoding in ("gzip", "deflate"):
        with suppress(BadMessage, TooLarge):
            unpack(content, encoding)


@QUICK
@given(st.data())
def test_recorded_messages_with_bytes_changed(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(recorded("run2"))))
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                content[position] = data.draw(st.integers(0, 255))
            case 1:
                del content[position : position + data.draw(st.integers(1, 30))]
            case _:
                content[position:position] = data.draw(st.binary(max_size=30))
        if not content:
            return
    taken(bytes(content), PROTOBUF)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=300)
    | st.sampled_from(["NaN", "Infinity", "1e400", "-1", "2e18", "\ud800", "00" * 8, "ff" * 16]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@QUICK
@given(st.data())
def test_json_of_wrong_types(data: st.DataObject) -> None:
    loaded = in_json(message([span(1, tenant="x")], {"service.name": "y"}))
    for _ in range(data.draw(st.integers(1, 3))):
        _change(loaded, data)
    taken(json.dumps(loaded).encode(), JSON)


def _change(value: Any, data: st.DataObject) -> None:
    """Put something else in the place of something inside."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(value[key], dict | list) and data.draw(st.booleans()):
            value = value[key]
            continue
        value[key] = data.draw(VALUES)
        return


ATTRIBUTES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=400),
    st.binary(max_size=20),
    st.lists(st.text(max_size=10), max_size=3),
)


@QUICK
@given(
    st.dictionaries(
        st.sampled_from(
            [
                *(name for kind in SPAN_KINDS for name in kind.attributes),
                "tenant",
                "error.type",
                "gen_ai.system",
            ]
        ),
        ATTRIBUTES,
    ),
    st.sampled_from(["llm_request", "chat"]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)
def test_attributes_of_wrong_types_and_sizes(
    attributes: dict[str, Any], name: str, start: int, end: int
) -> None:
    one = span(1, name=name, **attributes)
    one.start_time_unix_nano, one.end_time_unix_nano = start, end
    batch = taken(message([one]).SerializeToString(), PROTOBUF)
    assert batch is not None


# Over the network, against the real exporter.


class Target:
    """A running exporter, and what it cost."""

    def __init__(self, process: Exporter) -> None:
        self.process = process
        self.http = urllib3.PoolManager(retries=False, timeout=PATIENCE, maxsize=20)
        self.channel = grpc.insecure_channel(
            process.otlp_grpc, options=[("grpc.max_send_message_length", -1)]
        )
        self.memory = psutil.Process(process.process.pid)
        self.bad: list[str] = []

    def post(self, content: Any, kind: str = PROTOBUF, encoding: str | None = None) -> int:
        headers = {"content-type": kind}
        if encoding:
            headers["content-encoding"] = encoding
        answer = self.http.request("POST", self.process.otlp_http, body=content, headers=headers)
        return int(answer.status)

    def call(self, content: bytes, compression: grpc.Compression | None = None) -> grpc.StatusCode:
        try:
            self.channel.unary_unary(f"/{SERVICE}/Export")(
                content, compression=compression, timeout=PATIENCE
            )
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
        return grpc.StatusCode.OK

    def peak(self) -> int:
        """The most memory that it took since ``forget_peak``, in bytes."""
        status = Path(f"/proc/{self.memory.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) << 10

    def forget_peak(self) -> int:
        """Begin to watch the memory; returns what it takes now, in bytes."""
        Path(f"/proc/{self.memory.pid}/clear_refs").write_text("5")
        return self.peak()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    flags = ("--engine", "http://127.0.0.1:9", "--data", str(folder / "data"))
    with exporter(folder / "log", *flags) as process:
        found = Target(process)
        # What it says and needs anyway is there before anything is measured.
        until(lambda: "is down (unreachable)" in process.log, "the engine is told to be away")
        for content in recorded("run11"):
            assert found.post(content) == 200
            assert found.call(content, grpc.Compression.Gzip) is grpc.StatusCode.OK
        yield found
        found.channel.close()
        found.http.clear()


@pytest.fixture(autouse=True)
def unimpressed(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the exporter lives, has said at most one line, and took little memory."""
    if "target" not in request.fixturenames:
        yield
        return
    target: Target = request.getfixturevalue("target")
    lines, before = target.process.log.count("\n"), target.forget_peak()
    yield
    assert target.post(body(1)) == 200
    assert target.call(body(2)) is grpc.StatusCode.OK
    assert target.process.log.count("\n") <= lines + 1, target.process.log[-2000:]
    assert target.peak() - before < GROWTH, f"{(target.peak() - before) >> 20} MiB"


REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_noise(target: Target) -> None:
    noise = random.Random(1)
    for _ in range(15):
        content = noise.randbytes(noise.choice((1, 10, 300, 5000)))
        for kind in (PROTOBUF, JSON):
            for encoding in (None, "gzip", "deflate"):
                assert target.post(content, kind, encoding) in (200, 400)
        assert target.call(content) in (grpc.StatusCode.OK, *REFUSED)


def test_cut_messages(target: Target) -> None:
    content = body(1, 2)
    packed = gzip.compress(content)
    for length in range(1, len(packed), 37):
        assert target.post(content[:length]) == 400
        assert target.post(packed[:length], encoding="gzip") == 400
        assert target.call(content[:length]) is grpc.StatusCode.INVALID_ARGUMENT


def field(number: int, content: bytes) -> bytes:
    """A field of a message in protobuf that has a length."""
    head = bytearray([number << 3 | 2])
    length = len(content)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(head) + bytes([length]) + content


SIZE = 15 * MIB
BOMBS = {
    "spans": field(1, field(2, b"\x12\x00" * (SIZE // 2))),
    "scopes": field(1, b"\x12\x00" * (SIZE // 2)),
    "resources": b"\x0a\x00" * (SIZE // 2),
    "unknown fields": b"\x78\x01" * (SIZE // 2),
    "attributes": field(1, field(2, field(2, b"\x4a\x00" * (SIZE // 2)))),
    "events": field(1, field(2, field(2, b"\x5a\x00" * (SIZE // 2)))),
    "attributes of the resource": field(1, field(1, b"\x0a\x00" * (SIZE // 2))),
    "many spans of many attributes": field(
        1,
        field(
            2,
            field(
                2,
                b"".join(field(9, field(1, f"{n:x}".encode())) for n in range(100_000)),
            )
            * 10,
        ),
    ),
    "an attribute of many values": field(
        1, field(2, field(2, field(9, b"\x0a\x01x" + field(2, field(5, b"\x0a\x00" * (MIB // 4))))))
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_messages_that_grow_when_they_are_decoded(target: Target, name: str) -> None:
    assert target.post(BOMBS[name]) in (200, 413)
    assert target.call(BOMBS[name], grpc.Compression.Gzip) in (
        grpc.StatusCode.OK,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )


@pytest.fixture(scope="module")
def zip_bomb() -> bytes:
    """One GiB of zeros."""
    machine = zlib.compressobj(9, wbits=31)
    head = machine.compress(bytes(16 * MIB)) + machine.flush(zlib.Z_FULL_FLUSH)
    again = machine.compress(bytes(16 * MIB)) + machine.flush(zlib.Z_FULL_FLUSH)
    # From one full flush to the next a stream repeats; the checksum at its end is never reached.
    return head + 63 * again + machine.flush()


def test_zip_bombs(target: Target, zip_bomb: bytes) -> None:
    assert len(zip_bomb) < 2 * MIB
    assert len(zlib.decompressobj(31).decompress(zip_bomb, 100 * MIB)) == 100 * MIB
    for kind in (PROTOBUF, JSON):
        assert target.post(zip_bomb, kind, "gzip") == 413
        nested = gzip.compress(gzip.compress(zip_bomb))
        assert target.post(nested, kind, "gzip") == 400
        assert target.post(nested, kind, "gzip, gzip") == 400
    # Packed by hand, and by gRPC once more.
    assert target.call(zip_bomb) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert target.call(zip_bomb, grpc.Compression.Gzip) in REFUSED
    for compression in grpc.Compression:
        assert target.call(bytes(40 * MIB), compression) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_large_bodies(target: Target) -> None:
    for kind in (PROTOBUF, JSON, "text/plain"):
        assert target.post(bytes(50 * MIB), kind) in (413, 415)
    chunks = (bytes(MIB) for _ in range(50))
    try:
        assert target.post(chunks) == 413
    except urllib3.exceptions.HTTPError as error:
        assert "Broken pipe" in str(error) or "reset" in str(error)


def test_many_large_bodies_at_a_time(target: Target) -> None:
    with ThreadPoolExecutor(12) as pool:
        over_http = [pool.submit(target.post, bytes(SIZE)) for _ in range(8)]
        packed = gzip.compress(bytes(SIZE))
        over_http += [pool.submit(target.post, packed, encoding="gzip") for _ in range(8)]
        over_grpc = [pool.submit(target.call, bytes(8 * MIB)) for _ in range(6)]
        # 408: there was no time to take it all in.
        assert {future.result(PATIENCE) for future in over_http} <= {400, 408, 413, 503}
        assert {future.result(PATIENCE) for future in over_grpc} <= set(REFUSED)


@pytest.mark.parametrize(
    "content",
    [
        b'{"resourceSpans":[' + b"{}," * MIB + b"{}]}",
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * MIB + b"{}]}]}]}",
        b"[" * (4 * MIB),
        b'{"a":' * (700 << 10),
        b"[" + b"0," * (2 * MIB - 8) + b"0]",
        b'{"x":"' + b"y" * (4 * MIB - 9) + b'"}',
        b" " * (4 * MIB),
        b"9" * (4 * MIB),
        b"[" + b'{"":[]},' * (500 << 10) + b"0]",
        b'{"resourceSpans":[{"resource":{"attributes":['
        + b'{"key":"","value":{}},' * (40 << 10)
        + b'{"key":""}]}}]}',
    ],
    ids=lambda content: content[:24].decode(),
)
def test_json_that_grows_when_it_is_read(target: Target, content: bytes) -> None:
    assert len(content) <= 4 * MIB
    assert target.post(content, JSON) in (200, 400, 413)


def test_wrong_kinds(target: Target) -> None:
    for kind in ("", "text/html", "application/grpc", "multipart/form-data; boundary=x", "é" * 9):
        assert target.post(body(1), kind) in (400, 415)
    assert target.post(body(1), JSON) == 400
    assert target.post(b"{}", PROTOBUF) == 400
    assert target.post(body(1), PROTOBUF, "gzip") == 400
    assert target.post(gzip.compress(body(1)), PROTOBUF) == 400


def raw(target: Target, content: bytes) -> bytes:
    """Send bytes and read until the other side closes or has answered."""
    address = ("127.0.0.1", target.process.port("otlp_http"))
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        send_all(connection, content)
        answer = b""
        with suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                answer += piece
    return answer


HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"


@pytest.mark.parametrize(
    "content",
    [
        HEAD + b"Content-Length: 50\r\n\r\nabc",
        HEAD + b"Content-Length: 1\r\n\r\nabcdefgh",
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffff\r\nab",
        HEAD[:40],
        b"",
    ],
)
def test_lengths_that_are_wrong(target: Target, content: bytes) -> None:
    for answer in raw(target, content).split(b"\r\n"):
        if answer.startswith(b"HTTP/"):
            assert answer.split()[1].startswith(b"4")


@pytest.mark.parametrize(
    "content",
    [
        HEAD + b"Content-Length: -5\r\n\r\nabc",
        HEAD + b"Content-Length: many\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\0" * 5000,
        b"GET " + b"/" * 100_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_http(target: Target, content: bytes) -> None:
    answer = raw(target, content)
    assert answer == b"" or answer.split()[1].startswith(b"4")


def test_slow_senders_keep_nobody_waiting(target: Target) -> None:
    address = ("127.0.0.1", target.process.port("otlp_http"))
    slow = [socket.create_connection(address, timeout=PATIENCE) for _ in range(50)]
    for connection in slow:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\nabc")
    for number in range(20):
        assert target.post(body(number + 100)) == 200
        assert target.call(body(number + 200)) is grpc.StatusCode.OK
    assert "tailscope_build_info" in target.process.get()
    for connection in slow:
        connection.close()


def test_grpc_with_bytes_that_are_no_grpc(target: Target) -> None:
    address = ("127.0.0.1", target.process.port("otlp_grpc"))
    for content in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), random.Random(1).randbytes(5000)):
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            send_all(connection, content)
