"""Nothing acknowledged is lost, however often the exporter is killed."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import grpc
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import urllib3
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.exporter.otlpgrpc import SERVICE
from tailscope.records.reader import Reader
from tailscope.records.segments import batches, listing
from tests.otlp import JSON, NOW_NS, PROTOBUF, in_json, message, span, span_id, trace_id
from tests.process import PATIENCE, Exporter, environment, exporter, until

SEED = 1
KINDS = ("protobuf", "json", "grpc", "grpc")
LANE = 1_000_000
"""From one sender's first span to that of the next one."""

PAUSE = 0.004
# Answers to which OTLP has a sender come again; a server that stops cancels what it has not begun.
AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
)

# What the exporter does when it is killed.
KILLS = ["sending"] * 13 + ["sealing"] * 10 + ["sealed"] * 4 + ["starting"] * 3
READ_EVERY = 6

# The exporter as it is, but for segments that are full after some twenty commits, so that sealing
# goes on all the time. Loading takes longer than a life, so it is done once: each life is forked.
NURSERY = """
import json, os, sys
from functools import partial
sys.modules.update(numpy=None, pandas=None)
from tailscope.records import store
from tailscope.exporter import command, otlpgrpc, sidecar
store.Store = partial(store.Store, segment_bytes=100_000)
from tailscope.cli import main
for line in sys.stdin:
    log, *arguments = json.loads(line)
    if (child := os.fork()) == 0:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        sys.exit(main(arguments))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
FLAGS = ("--engine", "http://127.0.0.1:9", "--gpu", "off", "--listen", "127.0.0.1:0")
PORTS = ("--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0")


def of_sender(number: int) -> Span:
    return span(number, tenant__id=f"sender-{number // LANE}")


class Transport(Protocol):
    """A way to one life of the exporter."""

    def send(self, spans: Sequence[Span]) -> bool:
        """Send a message; returns whether it was acknowledged."""

    def close(self) -> None: ...


class Http:
    def __init__(self, url: str, kind: str) -> None:
        self._url, self._kind = url, kind
        self._pool = urllib3.PoolManager(retries=False, timeout=PATIENCE)

    def send(self, spans: Sequence[Span]) -> bool:
        content, headers = message(spans).SerializeToString(), {"content-type": PROTOBUF}
        if self._kind == "json":
            content = gzip.compress(json.dumps(in_json(message(spans))).encode(), 1)
            headers = {"content-type": JSON, "content-encoding": "gzip"}
        try:
            answer = self._pool.request("POST", self._url, body=content, headers=headers)
        except urllib3.exceptions.HTTPError:
            return False
        told = (answer.status, answer.data)
        # 408 and 503 ask for another try, as a machine that is too busy does.
        assert told in ((200, b""), (200, b"{}")) or answer.status in (408, 503), told
        return answer.status == 200

    def close(self) -> None:
        self._pool.clear()


class Grpc:
    def __init__(self, address: str) -> None:
        # A channel of its own: the waits after a failure are kept by address otherwise.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(address, options)
        self._export = self._channel.unary_unary(f"/{SERVICE}/Export")

    def send(self, spans: Sequence[Span]) -> bool:
        try:
            answer = self._export(message(spans).SerializeToString(), timeout=PATIENCE)
        except grpc.RpcError as error:
            assert error.code() in AGAIN, error
            return False
        assert answer == b"", answer
        return True

    def close(self) -> None:
        self._channel.close()


class Place(NamedTuple):
    """Where the exporter listens in one of its lives."""

    http: str
    grpc: str


class Ledger:
    """What senders know, and where they send.

    Attributes:
        sent: How often each span was sent.
        acknowledged: Spans that were acknowledged.
        messages: How many messages were.
    """

    def __init__(self) -> None:
        self.sent: Counter[int] = Counter()
        self.acknowledged: set[int] = set()
        self.messages = 0
        self._place: Place | None = None
        self._ended = False
        self._changed = threading.Condition()

    def move(self, place: Place | None) -> None:
        with self._changed:
            self._place = place
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def place(self) -> Place | None:
        """Wait for an exporter; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._place or self._ended)
            return None if self._ended else self._place

    def note_sent(self, numbers: Sequence[int]) -> None:
        with self._changed:
            self.sent.update(numbers)

    def note_acknowledged(self, numbers: Sequence[int]) -> None:
        with self._changed:
            self.acknowledged.update(numbers)
            self.messages += 1


class Sender:
    """Sends spans of its own, and each message again until it is acknowledged."""

    def __init__(self, kind: str, lane: int, ledger: Ledger) -> None:
        self._kind, self._lane, self._ledger = kind, lane, ledger
        self._place: Place | None = None
        self._transport: Transport | None = None

    def run(self) -> None:
        rng = random.Random(self._lane)
        last = self._lane * LANE
        while True:
            numbers = range(last + 1, last + 1 + rng.choice((1, 1, 5, 25)))
            while (place := self._ledger.place()) and not self._sent(place, numbers):
                time.sleep(PAUSE)
            if place is None:
                break
            last = numbers[-1]
            time.sleep(PAUSE)
        self._leave()

    def _sent(self, place: Place, numbers: Sequence[int]) -> bool:
        if self._transport is None or place != self._place:
            self._leave()
            self._place, self._transport = place, self._reach(place)
        self._ledger.note_sent(numbers)
        acknowledged = self._transport.send([of_sender(number) for number in numbers])
        if acknowledged:
            self._ledger.note_acknowledged(numbers)
        return acknowledged

    def _reach(self, place: Place) -> Transport:
        return Grpc(place.grpc) if self._kind == "grpc" else Http(place.http, self._kind)

    def _leave(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


class Nursery:
    """Where the lives of the exporter with small segments come from."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self, log: Path, *arguments: str) -> int:
        """Begin a life; returns its process id."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(log), *arguments]).encode() + b"\n")
        self.process.stdin.flush()
        return self.told()

    def told(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=PATIENCE)


class Life(Exporter):
    """One life of an exporter with small segments."""

    def __init__(self, nursery: Nursery, log: Path, data: Path) -> None:
        self.process = nursery.process
        self._nursery = nursery
        self._log = log
        log.touch()
        self._id = nursery.begin(log, "exporter", *FLAGS, *PORTS, "--data", str(data))

    def held(self, wanted: Callable[[], bool]) -> bool:
        """Hold the process where `wanted` is true; returns whether it stands there now."""
        if not wanted():
            return False
        os.kill(self._id, signal.SIGSTOP)
        until(self._stands)
        if wanted():
            return True
        os.kill(self._id, signal.SIGCONT)
        return False

    def _stands(self) -> bool:
        try:
            tasks = [task.read_text() for task in Path(f"/proc/{self._id}/task").glob("*/stat")]
        except OSError:  # a thread that ended in between
            return False
        return all(task.rpartition(")")[2].split()[0] == "T" for task in tasks)

    def end(self) -> None:
        os.kill(self._id, signal.SIGKILL)
        assert self._nursery.told() == -signal.SIGKILL, f"it ended by itself:\n{self.log}"
        assert "Traceback" not in self.log, self.log


class Lives:
    """The lives of one exporter, one after the other, on one directory."""

    def __init__(
        self, folder: Path, nursery: Nursery, ledger: Ledger, senders: Sequence[Future[None]]
    ) -> None:
        self.data = folder / "data"
        self._requests = self.data / "requests"
        self._nursery = nursery
        self._folder = folder
        self._ledger = ledger
        self._senders = senders
        self._rng = random.Random(SEED)

    def live(self, number: int, doing: str) -> None:
        """Start, and kill while it does something."""
        running = Life(self._nursery, self._folder / f"{number}.log", self.data)
        try:
            self._wait(doing, running)
        finally:
            running.end()
            self._ledger.move(None)

    def _wait(self, doing: str, running: Life) -> None:
        """Wait for a moment to kill at. Which one it is decides nothing about the outcome."""
        if doing == "starting":
            time.sleep(self._rng.uniform(0, 0.3))
            return
        left = [segment.path for segment in listing(self._requests)[1]]
        self._ledger.move(Place(running.otlp_http, running.otlp_grpc))
        enough = self._ledger.messages + self._rng.randint(1, 60)
        until(lambda: self._acknowledged(enough), f"{enough} messages are acknowledged")
        if doing == "sealed":
            until(lambda: not any(path.exists() for path in left), "what was left is sealed")
        if doing == "sealing":
            until(lambda: running.held(self.half_sealed), "it is held amid a seal", pause=0.001)
        else:
            time.sleep(self._rng.uniform(0, 0.1))

    def _acknowledged(self, enough: int) -> bool:
        for sender in self._senders:
            if sender.done():
                sender.result()
        return self._ledger.messages >= enough

    def half_sealed(self) -> bool:
        """Whether a seal has begun and not ended: there are files that no reader looks at."""
        paths = set(self._requests.glob("*"))
        sealed, segments = listing(self._requests)
        read = {*(file.path for file in sealed), *(segment.path for segment in segments)}
        return bool(paths - read)


@contextmanager
def sending(ledger: Ledger) -> Iterator[list[Future[None]]]:
    with ThreadPoolExecutor(len(KINDS)) as pool:
        senders = [Sender(kind, lane, ledger) for lane, kind in enumerate(KINDS, 1)]
        futures = [pool.submit(sender.run) for sender in senders]
        try:
            yield futures
        finally:
            ledger.end()
    for future in futures:
        future.result()


def read(reader: Reader) -> set[int]:
    """The spans that a reader gives, each once and whole."""
    rows = reader.requests()
    numbers = rows["arrived_ns"] - NOW_NS
    expected = {
        "span_id": numbers.map(span_id),
        "trace_id": numbers.map(trace_id),
        "request_id": "r" + numbers.astype(str),
        "tenant": "sender-" + (numbers // LANE).astype(str),
        "decode_seconds": pd.Series(1.0, rows.index),
        "output_tokens": pd.Series(11, rows.index),
    }
    for name, column in expected.items():
        assert np.array_equal(rows[name], column), name
    assert numbers.is_unique
    return set(numbers)


def copies(folder: Path) -> Counter[int]:
    """How often each span is in the files of the store."""
    sealed, segments = listing(folder)
    columns = [pq.read_table(file.path, columns=["arrived_ns"])["arrived_ns"] for file in sealed]
    columns += [batch["arrived_ns"] for item in segments for batch in batches(item.path)]
    return Counter(value - NOW_NS for column in columns for value in column.to_pylist())


def check(reader: Reader, ledger: Ledger) -> set[int]:
    """What is kept is what was acknowledged, and nothing that was never sent."""
    spans = read(reader)
    lost = ledger.acknowledged - spans
    assert not lost, f"{len(lost)} of {len(ledger.acknowledged)} acknowledged spans are lost"
    assert spans <= ledger.sent.keys(), "what was never sent is not there"
    raw = copies(reader.directory / "requests")
    assert raw.keys() == spans
    assert raw <= ledger.sent, "no span is kept more often than it was sent"
    return spans


def test_nothing_acknowledged_is_lost_in_thirty_kills(tmp_path: Path) -> None:
    assert len(KILLS) == 30
    ledger, kills = Ledger(), random.Random(SEED).sample(KILLS, len(KILLS))
    amid_a_seal = 0
    with Nursery() as nursery, sending(ledger) as senders:
        lives = Lives(tmp_path, nursery, ledger, senders)
        requests, reader = lives.data / "requests", Reader(lives.data)
        for number, doing in enumerate(kills):
            lives.live(number, doing)
            amid_a_seal += lives.half_sealed()
            if number % READ_EVERY == 0 or lives.half_sealed():
                check(reader, ledger)  # it has read in earlier lives, too
    spans = check(Reader(lives.data), ledger)
    assert amid_a_seal >= kills.count("sealing")
    assert listing(requests)[0], "it sealed in between"
    with exporter(tmp_path / "last.log", *FLAGS, "--data", str(lives.data)) as running:
        until(lambda: not listing(requests)[1], "all is sealed")
        assert running.stop() == 0
    assert check(Reader(lives.data), ledger) == check(reader, ledger) == spans
    assert {path.suffix for path in requests.iterdir()} == {".parquet"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_amid_requests_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    ledger, data = Ledger(), tmp_path / "data"
    with sending(ledger), exporter(tmp_path / "log", *FLAGS, "--data", str(data)) as running:
        ledger.move(Place(running.otlp_http, running.otlp_grpc))
        until(lambda: ledger.messages > 50)
        assert running.stop(number) == 0
        assert "Traceback" not in running.log
    check(Reader(data), ledger)
