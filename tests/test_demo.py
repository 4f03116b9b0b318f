from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
import urllib3
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from tailscope.address import Address, choose, parse
from tailscope.demo import cut
from tailscope.demo.engine import RecordedEngine
from tailscope.demo.exposition import Exposition
from tailscope.demo.player import Player, Track
from tailscope.demo.recording import BUNDLED, Recording, RecordingError, Scrape, load, save
from tailscope.demo.replay import Replay
from tailscope.demo.schedule import Schedule
from tailscope.demo.sender import FileSender, GrpcSender, HttpSender, SendError, Unavailable
from tailscope.demo.stack import Settings, Stack
from tailscope.errors import UsageError
from tailscope.launch.child import ChildError
from tailscope.launch.clock import Clock
from tailscope.records.jsonl import parse_line
from tailscope.records.record import COLUMNS
from tests.process import until

NOW_NS = 2_000_000_000_000_000_000
MACHINE_PATH = re.compile(rb"/(?:home|root|tmp|work|usr|opt|var|mnt|etc|srv|Users|data)/")
DEADLINE = 20.0


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load()


@pytest.fixture
def schedule(recording: Recording) -> Schedule:
    return Schedule.of(recording, live_ns=NOW_NS, before=2)


class SimulatedClock(Clock):
    """Time passes only while somebody waits, and ends at a given moment."""

    def __init__(self, end_ns: int, now_ns: int = NOW_NS) -> None:
        super().__init__()
        self._now_ns = now_ns
        self._end_ns = end_ns

    def now_ns(self) -> int:
        return self._now_ns

    def wait(self, seconds: float) -> bool:
        self._now_ns += max(round(seconds * 1e9), 1)
        if self._now_ns >= self._end_ns:
            self.stop()
        return super().wait(0)


class Collected:
    """A sender that keeps what it gets, and says when."""

    def __init__(self, clock: Clock) -> None:
        self.events: list[tuple[int, bytes]] = []
        self._clock = clock

    def send(self, event: bytes) -> None:
        self.events.append((self._clock.now_ns(), event))

    def close(self) -> None:
        pass


def spans(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        span
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def requests(bodies: Iterator[bytes] | list[bytes]) -> list[Span]:
    return [span for body in bodies for span in spans(body) if span.name == "llm_request"]


def attributes(span: Span) -> dict[str, str]:
    return {item.key: item.value.SerializeToString().hex() for item in span.attributes}


def request_id(span: Span) -> str:
    found = [a.value.string_value for a in span.attributes if a.key == "gen_ai.request.id"]
    assert len(found) == 1
    return found[0]


def series(text: str) -> dict[tuple[str, str], tuple[str, float]]:
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): (family.type, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def player_threads() -> list[threading.Thread]:
    return [item for item in threading.enumerate() if item.name.startswith("player ")]


# The recording


def test_bundle_is_small() -> None:
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) < 400_000


def test_bundle_names_no_machine_and_no_prompt(recording: Recording) -> None:
    texts = [path.read_bytes() for path in BUNDLED.iterdir() if path.suffix != ".gz"]
    texts += [gzip.decompress(path.read_bytes()) for path in BUNDLED.glob("*.gz")]
    texts += [export.body for export in recording.exports]
    for text in texts:
        assert not MACHINE_PATH.search(text)
        assert not re.search(rb"(?i)gen_ai\.(prompt|completion)\b|\"content\"|messages\":", text)
    for row in recording.gateway:
        assert set(row) <= set(COLUMNS)
        assert all(len(value) <= 64 for value in row.values() if isinstance(value, str))


def test_bundle_is_whole(recording: Recording) -> None:
    found = requests([export.body for export in recording.exports])
    assert len(found) == 278
    by_call = {(row["trace_id"], row["span_id"]): row for row in recording.gateway}
    assert len(by_call) == 278
    for span in found:
        row = by_call[span.trace_id.hex(), span.parent_span_id.hex()]
        assert row["request_id"] in request_id(span)
        assert row["tenant"] in {"acme", "umbrella", "initech", "globex"}
    early = [export for export in recording.exports if export.at_ns < recording.start_ns]
    assert 1 <= len(early) <= 2
    assert not requests([export.body for export in early])
    assert recording.period_ns == pytest.approx(60.1e9, abs=0.1e9)
    assert "vLLM 0.32 (run of 60 s" in recording.notice


def test_gateway_rows_are_records(recording: Recording) -> None:
    for row in recording.gateway:
        record, clamped = parse_line(json.dumps(row).encode())
        assert (record.role, record.source, record.outcome, clamped) == (
            "gateway",
            "client",
            "ok",
            0,
        )
        assert record.ended_ns is not None
        assert record.total_seconds is not None
        assert record.ttft_seconds is not None
        assert record.ttft_seconds <= record.total_seconds
        assert (record.ended_ns - record.arrived_ns) / 1e9 == pytest.approx(record.total_seconds)


@pytest.mark.parametrize("damage", ["missing", "no gzip", "no json", "no scrape"])
def test_damaged_recording_is_named(tmp_path: Path, damage: str) -> None:
    for path in BUNDLED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    scrapes = tmp_path / "scrapes.jsonl.gz"
    if damage == "missing":
        scrapes.unlink()
    else:
        scrapes.write_bytes(
            {"no gzip": b"x", "no json": gzip.compress(b"{"), "no scrape": gzip.compress(b"")}[
                damage
            ]
        )
    with pytest.raises(RecordingError, match=re.escape(str(tmp_path))):
        load(tmp_path)


# Loops


def test_ids_are_new_in_each_loop_and_agree(recording: Recording, schedule: Schedule) -> None:
    replay = Replay(recording)
    seen: set[str] = set()
    for loop in (schedule.loop(0), schedule.loop(1), schedule.loop(7)):
        rows = [json.loads(line) for _, line in replay.rows(loop)]
        found = requests([body for _, body in replay.exports(loop)])
        by_call = {(row["trace_id"], row["span_id"]): row["request_id"] for row in rows}
        ids = {span.trace_id.hex() for span in found} | {span.span_id.hex() for span in found}
        ids |= {row["request_id"] for row in rows} | {row["span_id"] for row in rows}
        assert len(ids) == 4 * 278
        assert not ids & seen
        seen |= ids
        for span in found:
            client = by_call[span.trace_id.hex(), span.parent_span_id.hex()]
            assert re.fullmatch(rf"chatcmpl-{client}|cmpl-{client}-\d+", request_id(span))


def test_ids_are_the_same_when_asked_again_and_others_in_another_run(recording: Recording) -> None:
    first, again, other = (
        list(Replay(recording).exports(Schedule.of(recording, live_ns=at, before=0).loop(0)))
        for at in (NOW_NS, NOW_NS, NOW_NS + recording.period_ns)
    )
    assert first == again
    ours = {span.trace_id for span in requests([body for _, body in first])}
    theirs = {span.trace_id for span in requests([body for _, body in other])}
    assert not ours & theirs


def test_shift_keeps_durations_and_attributes(recording: Recording, schedule: Schedule) -> None:
    loop = schedule.loop(2)
    new = requests([body for _, body in Replay(recording).exports(loop)])
    old = requests([export.body for export in recording.exports])
    assert len(new) == len(old)
    for was, now in zip(old, new, strict=True):
        assert now.start_time_unix_nano - was.start_time_unix_nano == loop.shift_ns
        assert now.end_time_unix_nano - was.end_time_unix_nano == loop.shift_ns
        assert {**attributes(now), "gen_ai.request.id": ""} == {
            **attributes(was),
            "gen_ai.request.id": "",
        }
        assert (now.kind, now.status, now.flags) == (was.kind, was.status, was.flags)
    rows = [json.loads(line) for _, line in Replay(recording).rows(loop)]
    changed = {"arrived_ns", "ended_ns", "trace_id", "span_id", "request_id"}
    for row, recorded in zip(rows, recording.gateway, strict=True):
        assert row["ended_ns"] - row["arrived_ns"] == recorded["ended_ns"] - recorded["arrived_ns"]
        assert {k: v for k, v in row.items() if k not in changed} == {
            k: v for k, v in recorded.items() if k not in changed
        }


def test_start_up_spans_are_sent_once(recording: Recording, schedule: Schedule) -> None:
    replay = Replay(recording)
    counts = [len(list(replay.exports(schedule.loop(number)))) for number in range(3)]
    assert counts == [len(recording.exports), counts[0] - 2, counts[0] - 2]


def test_loops_join_without_gap(recording: Recording, schedule: Schedule) -> None:
    loops = [schedule.loop(number) for number in range(4)]
    for before, after in itertools.pairwise(loops):
        assert before.time(recording.end_ns) == after.time(recording.start_ns)
    assert loops[2].time(recording.start_ns) == NOW_NS
    assert schedule.position(NOW_NS) == (2, recording.start_ns)
    assert schedule.position(NOW_NS - 1) == (1, recording.end_ns - 1)


def test_long_sleep_leaves_loops_out(schedule: Schedule) -> None:
    now = [NOW_NS]
    loops = schedule.loops(lambda: now[0])
    assert [next(loops).number for _ in range(3)] == [0, 1, 2]
    now[0] += 100 * schedule.period_ns
    assert [next(loops).number, next(loops).number] == [101, 102]


# The recorded engine


def test_counters_go_on_over_the_edges(recording: Recording) -> None:
    exposition = Exposition(recording.scrapes)
    times = [scrape.at_ns for scrape in recording.scrapes]
    before = series(exposition.at(0, times[0]))
    assert exposition.at(0, times[0]) == recording.scrapes[0].text
    steps = 0
    for loop in range(3):
        for at_ns in times:
            after = series(exposition.at(loop, at_ns))
            for key, (kind, value) in before.items():
                if kind in {"counter", "histogram", "summary"} and not key[0].endswith("_created"):
                    assert after[key][1] >= value, (loop, key)
                    steps += after[key][1] > value
            before = after
    assert steps > 1000


def test_counters_grow_by_the_recorded_gain(recording: Recording) -> None:
    exposition = Exposition(recording.scrapes)
    first, last = (series(recording.scrapes[index].text) for index in (0, -1))
    later = series(exposition.at(3, recording.end_ns))
    assert set(later) == set(last)
    for key, (kind, value) in last.items():
        gained = value - first.get(key, ("", 0.0))[1]
        if kind == "gauge" or key[0].endswith("_created"):
            assert later[key][1] == value
        else:
            assert later[key][1] == pytest.approx(value + 3 * gained, rel=1e-12)
    done = ("vllm:request_success_total", '"length"')
    assert sum(
        v for (n, labels), (_, v) in later.items() if n == done[0] and done[1] in labels
    ) == (4 * 278)


def test_gauges_and_bucket_sums_are_as_recorded(recording: Recording) -> None:
    exposition = Exposition(recording.scrapes)
    scrape = recording.scrapes[15]
    now = series(exposition.at(4, scrape.at_ns + 1_000_000_000))
    for key, (kind, value) in series(scrape.text).items():
        if kind == "gauge":
            assert now[key][1] == value
    tokens = {key[1]: value for key, (_, value) in now.items() if "iteration_tokens" in key[0]}
    assert tokens
    inf = now["vllm:iteration_tokens_total_bucket", next(k for k in tokens if '"+Inf"' in k)][1]
    count = next(v for k, (_, v) in now.items() if k[0] == "vllm:iteration_tokens_total_count")
    assert inf == count > 0


def test_quantiles_of_a_summary_are_not_added_up() -> None:
    text = '# TYPE s summary\ns{quantile="0.5"} 3.0\ns_count 10\ns_sum 4.5\n'
    start = text.replace("10", "0").replace("4.5", "0")
    exposition = Exposition([Scrape(1, start), Scrape(2, text)])
    assert exposition.at(2, 2).splitlines()[1:] == [
        's{quantile="0.5"} 3.0',
        "s_count 30.0",
        "s_sum 13.5",
    ]


def test_engine_answers_like_vllm(recording: Recording, schedule: Schedule) -> None:
    now = [NOW_NS - 2 * schedule.period_ns]
    engine = RecordedEngine(recording, schedule, lambda: now[0])
    engine.start()
    try:
        with urllib3.PoolManager(retries=False, timeout=5.0) as pool:
            answer = pool.request("GET", f"{engine.url}/metrics")
            assert answer.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
            assert answer.data.decode() == recording.scrapes[0].text
            now[0] += 30_000_000_000
            later = pool.request("GET", f"{engine.url}/metrics").data.decode()
            assert later in {scrape.text for scrape in recording.scrapes[10:20]}
            assert pool.request("GET", f"{engine.url}/version").json() == {"version": "0.32.0"}
            assert pool.request("GET", f"{engine.url}/health").status == 200
            assert pool.request("GET", f"{engine.url}/nothing").status == 404
    finally:
        engine.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(engine.url.rpartition(":")[2]))) != 0


# The player


def test_history_comes_at_once_and_the_rest_in_time(
    recording: Recording, schedule: Schedule
) -> None:
    end_ns = NOW_NS + schedule.period_ns + schedule.period_ns // 2
    for index in (0, 1):
        clock = SimulatedClock(end_ns)
        kept = Collected(clock)
        Player(recording, schedule, kept, kept, clock).tracks[index].run()
        replay = Replay(recording)
        due = [
            at
            for number in range(4)
            for at, _ in (replay.exports, replay.rows)[index](schedule.loop(number))
            if at < end_ns
        ]
        assert len(kept.events) == len(due)
        past = [at for at in due if at <= NOW_NS]
        assert len(past) > len(due) / 3
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
    Track("x", lambda: iter([schedule.loop(0)]), lambda _: events, Picky(clock), clock).run()
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
    recording: Recording, tmp_path: Path
) -> None:
    clock = Clock()
    schedule = Schedule.of(recording, live_ns=clock.now_ns(), before=1)
    address = choose("x", Address("127.0.0.1", 0), insist=True)
    rows = tmp_path / "rows.jsonl"
    player = Player(recording, schedule, GrpcSender(str(address)), FileSender(rows), clock)
    player.start()
    try:
        until(lambda: len(rows.read_bytes().splitlines()) >= 278)
        receiver = Receiver(refuse=2)
        with grpc_receiver(receiver, address.port):
            until(lambda: len(receiver.spans) >= 270)
    finally:
        player.stop()
    assert not player_threads()
    known = {
        (row["trace_id"], row["span_id"]) for row in map(json.loads, rows.read_text().splitlines())
    }
    calls = [(span.trace_id.hex(), span.parent_span_id.hex()) for span in receiver.spans]
    assert len(set(calls)) == len(calls)
    assert set(calls) <= known


def test_player_stops_quickly_while_nobody_listens(recording: Recording, tmp_path: Path) -> None:
    clock = Clock()
    schedule = Schedule.of(recording, live_ns=clock.now_ns(), before=0)
    address = choose("x", Address("127.0.0.1", 0), insist=True)
    rows = FileSender(tmp_path / "rows.jsonl")
    player = Player(recording, schedule, GrpcSender(str(address)), rows, clock)
    player.start()
    player.stop()
    # Stopping waits a second for each thread, and no longer: one that hangs would be seen here.
    assert not player_threads()


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


# The command


@pytest.mark.parametrize("text", ["9836", "host:", "host:x", "host:70000", ":-1"])
def test_bad_address_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"--listen .*: give host:port"):
        parse("--listen", text)


def test_addresses() -> None:
    assert parse("x", "[::1]:80") == Address("::1", 80)
    assert str(Address("::1", 80)) == "[::1]:80"
    assert Address("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert Address("::", 80).url == "http://[::1]:80"


def test_taken_port_is_replaced_or_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = Address("127.0.0.1", taken.getsockname()[1])
        other = choose("--listen", wanted, insist=False)
        assert other.port not in (0, wanted.port)
        with pytest.raises(UsageError, match=f"--listen is {wanted}, which cannot be used"):
            choose("--listen", wanted, insist=True)


FAKE = """
import http.server, signal, sys
arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
print("arguments", sys.argv[1:], flush=True)
if sys.argv[1] == {failing!r}:
    sys.exit("no luck: 7 is missing")
port = int(arguments.get("--port") or arguments["--listen"].rpartition(":")[2])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def _settings(tmp_path: Path) -> Settings:
    free = Address("127.0.0.1", 0)
    return Settings(
        listen=choose("x", free, insist=True),
        app=choose("x", free, insist=True),
        data=tmp_path / "data",
        loops_before=0,
    )


@pytest.mark.parametrize("failing", ["exporter", "app"])
def test_child_that_ends_is_named(recording: Recording, tmp_path: Path, failing: str) -> None:
    program = tmp_path / "fake.py"
    program.write_text(FAKE.format(failing=failing))
    stack = Stack(recording, _settings(tmp_path), Clock(), print, (sys.executable, str(program)))
    with pytest.raises(ChildError) as ended:
        stack.run()
    text = str(ended.value)
    assert text.startswith(f"the {failing} ended with exit status 1\n")
    assert text.endswith("no luck: 7 is missing")
    if failing == "app":
        assert recording.notice in text


def test_stack_says_where_things_are_and_stops(recording: Recording, tmp_path: Path) -> None:
    program = tmp_path / "fake.py"
    program.write_text(FAKE.format(failing=""))
    settings, clock, said = _settings(tmp_path), Clock(), list[str]()

    def say(line: str) -> None:
        said.append(line)
        if line == "Ctrl-C ends it.":
            clock.interrupt()

    Stack(recording, settings, clock, say, (sys.executable, str(program))).run()
    assert settings.app
    assert f"  metrics          {settings.listen.url}/metrics" in said
    assert f"  triage app       {settings.app.url}" in said
    for address in (settings.listen, settings.app):
        with socket.socket() as probe:
            assert probe.connect_ex(address) != 0


@pytest.mark.parametrize("otlp", ["grpc", "http"])
def test_demo_fills_the_exporter_and_ends_cleanly(tmp_path: Path, otlp: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    flags = ["--no-app", "--listen", "127.0.0.1:0", "--loops-before", "1", "--otlp", otlp]
    process = subprocess.Popen(
        [sys.executable, "-m", "tailscope.cli", "demo", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(3)]
        assert "recording of a real vLLM 0.32" in lines[0], process.stderr
        metrics, engine = (line.split()[-1] for line in lines[1:])
        with urllib3.PoolManager(retries=False, timeout=5.0) as pool:

            def counted() -> dict[str, float]:
                text = pool.request("GET", metrics).data.decode()
                totals: dict[str, float] = {}
                for family in text_string_to_metric_families(text):
                    for sample in family.samples:
                        source = sample.labels.get("source", "")
                        if sample.name == "tailscope_records_total":
                            totals[source] = sample.value
                        if sample.name == "tailscope_source_up" and source.startswith("engine:"):
                            totals["up"] = sample.value
                return totals

            def full() -> bool:
                totals = counted()
                return (
                    totals.get(f"otlp:{otlp}", 0) >= 270
                    and totals.get("file:requests.jsonl", 0) >= 270
                    and totals.get("up") == 1
                )

            until(full)
            assert pool.request("GET", engine).status == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert not list(temporary.iterdir())


def test_demo_names_a_bad_recording(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailscope.cli", "demo", "--recording", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 2
    assert f"--recording: cannot read {tmp_path}" in done.stderr


# The cut


def _capture(folder: Path) -> None:
    (folder / "otlp").mkdir(parents=True)
    start = 1_795_000_000.0
    text = 'up{model_name="/home/me/llama",handler="/v1/completions"} 1.0\n'
    with gzip.open(folder / "metrics_scrapes.jsonl.gz", "wt") as file:
        file.write(json.dumps({"t": start, "text": text}) + "\n")
    (folder / "metrics_after.txt").write_text(text)
    phases = [{"phase": "a", "t": start}, {"phase": "end", "t": start + 10}]
    (folder / "phases.json").write_text(json.dumps(phases))
    version = {"path": "/version", "body": '{"version": "1.2.3"}'}
    (folder / "endpoints.jsonl").write_text(json.dumps(version) + "\n")
    batches = []
    for number, name in enumerate(["Early", "Load model", "Worker init", "llm_request"]):
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        for key in ("service.name", "host.name"):
            resource.resource.attributes.add(key=key).value.string_value = "secret"
        span = resource.scope_spans.add().spans.add(name=name, span_id=bytes([number + 1] * 8))
        span.attributes.add(key="code.file").value.string_value = "/home/me/x.py"
        (folder / "otlp" / f"{number}.binpb").write_bytes(request.SerializeToString())
        batches.append({"file": f"{number}.binpb", "recv_unix": start - 3.5 + number * 1.5})
    (folder / "otlp" / "batches.jsonl").write_text("".join(json.dumps(b) + "\n" for b in batches))
    clients = [
        {"start_unix": start + 2, "t_end": 1.5, "status": 200, "aborted": True, "tenant": "a"},
        {"start_unix": start + 1, "t_end": 0.5, "status": 503, "chunk_times": [1], "user": "u"},
        {"start_unix": start + 3, "status": None, "finish_reason": ["stop", "length"]},
    ]
    (folder / "client_requests.jsonl").write_text("".join(json.dumps(c) + "\n" for c in clients))


def test_cut_keeps_what_is_needed_and_nothing_private(tmp_path: Path) -> None:
    _capture(tmp_path / "capture")
    target = tmp_path / "recording"
    assert cut.main([str(tmp_path / "capture"), str(target)]) == 0
    recording = load(target)
    assert (recording.engine, recording.period_ns) == ("vLLM 1.2.3", 10_000_000_000)
    assert recording.scrapes[0].text == 'up{model_name="llama",handler="/v1/completions"} 1.0\n'
    names = [span.name for export in recording.exports for span in spans(export.body)]
    assert names == ["Load model", "Worker init", "llm_request"]
    for export in recording.exports[:2]:
        assert b"/home/me" not in export.body
        assert b"host.name" not in export.body
    assert [row.get("outcome") for row in recording.gateway] == ["rejected", None, "aborted"]
    assert {row["model"] for row in recording.gateway} == {"llama"}
    for row in recording.gateway:
        assert set(row) <= set(COLUMNS)
        parse_line(json.dumps(row).encode())


def test_what_is_saved_again_is_the_same(recording: Recording, tmp_path: Path) -> None:
    save(recording, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (BUNDLED / path.name).read_bytes()


def test_cut_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cut.main([str(tmp_path), str(tmp_path / "x")]) == 2
    assert "phases.json" in capsys.readouterr().err
