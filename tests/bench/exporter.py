"""What the exporter costs: spans, scrapes, memory, and a share of a core."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import urllib3
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.load import SPANS, Steady, call, message, post
from tests.fake_engine import FakeEngine, fake_engine
from tests.process import Exporter, exporter

_MESSAGES = 120
_SENDERS = 4
_SCRAPES = 300
_SECONDS = 20.0
_RATE = 100


def run() -> Iterator[str]:
    """Yield one line per figure."""
    yield from _decode()
    with tempfile.TemporaryDirectory() as name, fake_engine() as engine:
        folder = Path(name)
        for title, send in (("HTTP", post), ("gRPC", call)):
            yield from _spans(folder / title, engine, title, send)
        yield from _scrapes(folder / "scrapes", engine)
        yield from _share(folder / "share", engine)
        yield from _bare(folder / "bare", engine)


def _decode() -> Iterator[str]:
    bodies = [message(number * SPANS) for number in range(20)]
    started = time.process_time()
    for body in bodies:
        ExportTraceServiceRequest.FromString(body)
    took = time.process_time() - started
    yield f"decoding alone             {20 * SPANS / took:10,.0f} spans/s on one core"


def _spans(
    folder: Path, engine: FakeEngine, title: str, send: Callable[[str, list[bytes]], None]
) -> Iterator[str]:
    folder.mkdir()
    shares = [
        [message((sender * _MESSAGES + number) * SPANS) for number in range(_MESSAGES)]
        for sender in range(_SENDERS)
    ]
    with exporter(folder / "log", "--engine", engine.url, "--data", str(folder / "data")) as it:
        target = it.otlp_http if send is post else it.otlp_grpc
        process = psutil.Process(it.process.pid)
        send(target, [message(10**12)])
        before, started = _cpu(process), time.monotonic()
        context = multiprocessing.get_context("spawn")
        senders = [context.Process(target=send, args=(target, bodies)) for bodies in shares]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        took, wall = _cpu(process) - before, time.monotonic() - started
        count = _SENDERS * _MESSAGES * SPANS
        failed = [sender for sender in senders if sender.exitcode]
        if failed:
            raise RuntimeError(f"{len(failed)} senders failed")
        yield (
            f"into the store, {title:<4}       {count / took:10,.0f} spans/s on one core "
            f"(goal 30,000); {count / wall:,.0f} spans/s of wall time, {count:,} spans"
        )
        yield f"memory after that, {title:<4}    {_memory(process):10.0f} MiB"
        kept = sum(path.stat().st_size for path in (folder / "data" / "requests").iterdir())
        yield f"on the disk, some sealed   {kept / count:10.0f} bytes a record"


def _scrapes(folder: Path, engine: FakeEngine) -> Iterator[str]:
    folder.mkdir()
    with exporter(folder / "log", "--engine", engine.url, "--data", str(folder / "data")) as it:
        post(it.otlp_http, [message(number * SPANS) for number in range(20)])
        # One connection for all, as Prometheus has it.
        pool = urllib3.PoolManager(maxsize=4, block=True)
        url, times, size = f"{it.url}/metrics", [], 0
        for _ in range(_SCRAPES):
            started = time.perf_counter()
            size = len(pool.request("GET", url).data)
            times.append(1000 * (time.perf_counter() - started))
        quantiles = statistics.quantiles(times, n=100)
        yield (
            f"/metrics                   {quantiles[49]:10.2f} ms p50 (goal 2), "
            f"{quantiles[98]:.2f} ms p99, {size / 1000:.0f} kB, 20 tenants, {_SCRAPES} scrapes"
        )
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: pool.request("GET", url), range(40)))
        yield f"memory after that          {_memory(psutil.Process(it.process.pid)):10.0f} MiB"


def _share(folder: Path, engine: FakeEngine) -> Iterator[str]:
    folder.mkdir()
    flags = ("--engine", engine.url, "--data", str(folder / "data"))
    with exporter(folder / "log", *flags) as it, Steady(it.otlp_http, _RATE):
        process = psutil.Process(it.process.pid)
        time.sleep(2)
        before, started = _cpu(process), time.monotonic()
        ends = started + _SECONDS
        while time.monotonic() < ends:
            it.get()
            time.sleep(5)
        share = (_cpu(process) - before) / (time.monotonic() - started)
        yield (
            f"share of a core            {100 * share:10.2f} % (goal 1) at {_RATE} requests/s, one "
            "engine every second, a scrape every 5 s"
        )
        yield f"memory with the store      {_memory(process):10.0f} MiB (goal 130)"


def _bare(folder: Path, engine: FakeEngine) -> Iterator[str]:
    folder.mkdir()
    started = time.monotonic()
    with exporter(folder / "log", "--engine", engine.url) as it:
        yield f"start to ready             {time.monotonic() - started:10.2f} s"
        yield from _without(it)


def _without(it: Exporter) -> Iterator[str]:
    post(it.otlp_http, [message(0)])
    it.get()
    memory = _memory(psutil.Process(it.process.pid))
    yield f"memory without the store   {memory:10.0f} MiB (goal 60)"


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _memory(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / (1 << 20)
