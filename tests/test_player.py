"""What plays the recording into a receiver."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.demo.player import Player, Track
from tailscope.demo.recording import Recording
from tailscope.demo.replay import Replay
from tailscope.demo.schedule import Schedule
from tailscope.demo.sender import FileSender, GrpcSender, HttpSender, SendError, Unavailable
from tailscope.launch.clock import Clock
from tests.demorecording import (
    NOW_NS,
    Collected,
    SimulatedClock,
    player_threads,
    recording,
    requests,
    schedule,
)
from tests.process import PATIENCE, free, until

__all__ = ["recording", "schedule"]


def test_history_comes_at_once_and_the_rest_in_time(
    recording: Recording, schedule: Schedule
) -> None:
    end_ns = NOW_NS + 90_000_000_000
    for index in (0, 1):
        clock = SimulatedClock(end_ns)
        kept = Collected(clock)
        Player(recording, schedule, kept, kept, clock).tracks[index].run()
        replay = Replay(recording)
        due = sorted(
            at
            for number in range(schedule.position(end_ns)[0] + 1)
            for at, _ in (replay.exports, replay.rows)[index](schedule.one(number))
            if at < end_ns
        )
        assert len(kept.events) == len(due)
        past = [at for at in due if at <= NOW_NS]
        assert len(past) > len(due) / 4
        for (sent_ns, _), due_ns in zip(kept.events, due, strict=True):
            assert max(due_ns, NOW_NS) <= sent_ns <= max(due_ns, NOW_NS) + 1_000_000_000


def test_track_tries_again_and_leaves_out_what_is_refused(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimulatedClock(NOW_NS + 60_000_000_000)
    answers = [Unavailable("down"), Unavailable("down"), None, SendError("bad"), None]
    got: list[bytes] = []

    class Picky(Collected):
        def send(self, event: bytes) -> None:
            answer = answers.pop(0)
            if answer:
                raise answer
            got.append(event)
            if not answers:
                clock.stop()

    events = [(NOW_NS, b"a"), (NOW_NS, b"b"), (NOW_NS, b"c")]
    Track(
        "x",
        lambda: iter([schedule.one(0), schedule.one(1)]),
        lambda one: [] if one.number else events,
        Picky(clock),
        clock,
    ).run()
    assert got == [b"a", b"c"]
    assert [entry.message for entry in caplog.records if entry.levelname == "WARNING"] == [
        "x: an event was refused and left out: bad"
    ]


class Receiver:
    """A small OTLP receiver that refuses the first requests for a while."""

    def __init__(self, refuse: int = 0) -> None:
        self.spans: list[Span] = []
        self._refuse = refuse

    def export(
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        if self._refuse:
            self._refuse -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again")
        self.spans += requests([request.SerializeToString()])
        return ExportTraceServiceResponse()


@contextmanager
def grpc_receiver(receiver: Receiver, port: int = 0) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(2))
    export = grpc.unary_unary_rpc_method_handler(
        receiver.export,
        request_deserializer=ExportTraceServiceRequest.FromString,
        response_serializer=ExportTraceServiceResponse.SerializeToString,
    )
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Export": export}),)
    )
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def test_player_delivers_to_a_real_grpc_receiver_that_comes_up_late(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is not answered in time is sent again, and would be there twice.
    monkeypatch.setattr("tailscope.demo.sender._TIMEOUT", PATIENCE)
    clock = Clock()
    schedule = Schedule.of(recording, live_ns=clock.now_ns(), history_ns=60_000_000_000)
    address = free()
    rows = tmp_path / "rows.jsonl"
    player = Player(recording, schedule, GrpcSender(str(address)), FileSender(rows), clock)
    player.start()
    try:
        until(lambda: len(rows.read_bytes().splitlines()) >= 200)
        receiver = Receiver(refuse=2)
        with grpc_receiver(receiver, address.port):
            until(lambda: len(receiver.spans) >= 200)
    finally:
        player.stop()
    until(lambda: not player_threads(), "the threads end")
    told = rows.read_text().splitlines()
    # A thread may be ahead of the other; in the past, all of either is delivered.
    past = {(row["trace_id"], row["span_id"]) for row in map(json.loads, told[:200])}
    calls = Counter((span.trace_id.hex(), span.parent_span_id.hex()) for span in receiver.spans)
    assert len(past & calls.keys()) >= 180
    assert max(calls.values()) == 1


def test_player_stops_quickly_while_nobody_listens(recording: Recording, tmp_path: Path) -> None:
    clock = Clock()
    schedule = Schedule.of(recording, live_ns=clock.now_ns(), history_ns=0)
    address = free()
    rows = FileSender(tmp_path / "rows.jsonl")
    player = Player(recording, schedule, GrpcSender(str(address)), rows, clock)
    player.start()
    player.stop()
    until(lambda: not player_threads(), "the threads end")


def test_gateway_file_is_rotated_and_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sender = FileSender(path, rotate_bytes=30, rotate_seconds=0)
    seen: list[bytes] = []
    for number in range(20):
        before = path.stat().st_ino
        sender.send(b"%09d\n" % number)
        if path.stat().st_ino != before:
            seen += (tmp_path / "rows.jsonl.1").read_bytes().splitlines()
    sender.close()
    assert [int(line) for line in seen + path.read_bytes().splitlines()] == list(range(20))
    assert {file.name for file in tmp_path.iterdir()} == {"rows.jsonl", "rows.jsonl.1"}
    assert all(file.stat().st_size <= 30 for file in tmp_path.iterdir())


def test_gateway_file_is_not_rotated_faster_than_it_is_followed(tmp_path: Path) -> None:
    sender = FileSender(tmp_path / "rows.jsonl", rotate_bytes=10, rotate_seconds=1e9)
    for _ in range(20):
        sender.send(b"0123456789\n")
    sender.close()
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


def test_what_ends_in_the_next_pass_comes_in_order(schedule: Schedule) -> None:
    """A request that began in one pass and ends in the next does not hold up the next."""
    first, second = schedule.one(0), schedule.one(1)
    events = {
        0: [(first.begins_ns + 1, b"a"), (second.begins_ns + 2, b"c")],
        1: [(second.begins_ns + 1, b"b"), (second.begins_ns + 3, b"d")],
    }
    clock = SimulatedClock(NOW_NS + 60_000_000_000)
    kept = Collected(clock)
    track = Track("x", lambda: iter([first, second]), lambda one: events[one.number], kept, clock)
    track.run()
    assert [event for _, event in kept.events] == [b"a", b"b", b"c", b"d"]


def test_http_sender_knows_what_may_be_tried_again() -> None:
    got: list[tuple[str, str | None, bytes]] = []
    statuses = [200, 503, 429, 400]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], body))
            self.send_response(statuses[len(got) - 1])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    sender = HttpSender(f"http://127.0.0.1:{server.server_port}/v1/traces")
    try:
        sender.send(b"one")
        for _ in range(2):
            with pytest.raises(Unavailable):
                sender.send(b"two")
        with pytest.raises(SendError) as refused:
            sender.send(b"three")
        assert not isinstance(refused.value, Unavailable)
    finally:
        sender.close()
        server.shutdown()
        thread.join()
        server.server_close()
    assert got[0] == ("/v1/traces", "application/x-protobuf", b"one")
    with pytest.raises(Unavailable):
        sender.send(b"four")
    sender.close()
