"""What the store costs: records by source, bytes on the disk, opening a million."""

from __future__ import annotations

import gc
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tailscope.catalogue.engines import engines
from tailscope.exporter.health import Health
from tailscope.exporter.intake import Intake
from tailscope.exporter.matcher import Matcher
from tailscope.exporter.otlp import read_protobuf
from tailscope.exporter.receiver import Receiver
from tailscope.exporter.requestmetrics import RequestMetrics
from tailscope.exporter.spans import SpanReader
from tailscope.records.jsonl import parse_line
from tailscope.records.reader import Reader
from tailscope.records.record import RequestRecord
from tailscope.records.schema import request_batch
from tailscope.records.store import Store
from tests.bench.load import SPANS, message
from tests.process import until

_MESSAGES = 60
_RECORDS = 1_000_000
_AT_A_TIME = 5_000
_START_NS = 1_796_000_000_000_000_000
_COLUMNS = (
    *("arrived_ns", "ended_ns", "tenant", "model", "outcome", "input_tokens", "output_tokens"),
    *("queue_seconds", "prefill_seconds", "decode_seconds", "ttft_seconds", "total_seconds"),
)


def run() -> Iterator[str]:
    """Yield one line per figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, rate in _sources(folder):
            yield f"{title:<26} {rate:10,.0f} records/s on one core, kept and counted"
        yield from _open(folder / "million")


def _sources(folder: Path) -> Iterator[tuple[str, float]]:
    bodies = [message(number * SPANS) for number in range(_MESSAGES)]
    spans, careful = SpanReader(engines()), SpanReader(engines(), quick=False)
    lines = [
        json.dumps({"arrived_ns": one.arrived_ns, "tenant": one.tenant, "role": "gateway",
                    "request_id": one.request_id, "total_seconds": one.total_seconds,
                    "outcome": "ok"})
        for body in bodies for one in spans.read(read_protobuf(body)).records
    ]  # fmt: skip
    yield "OTLP spans of an engine", _rate(folder / "quick", partial(_otlp, spans, bodies))
    yield "... of unknown layouts", _rate(folder / "careful", partial(_otlp, careful, bodies))
    yield "JSON lines", _rate(folder / "lines", partial(_lines, lines))


def _rate(folder: Path, feed: Callable[[Intake], None]) -> float:
    store, metrics = Store(folder), RequestMetrics()
    intake = Intake(store, Matcher(metrics.observe, expect_gateway=False), lambda: ("a:1", "m"))
    started = time.process_time()
    feed(intake)
    took = time.process_time() - started
    store.close()
    return _MESSAGES * SPANS / took


def _otlp(spans: SpanReader, bodies: Sequence[bytes], intake: Intake) -> None:
    receiver = Receiver(spans, intake, Health("otlp:http"))
    for body in bodies:
        receiver.accept(body)


def _lines(lines: Sequence[str], intake: Intake) -> None:
    for first in range(0, len(lines), SPANS):
        records = [parse_line(line.encode())[0] for line in lines[first : first + SPANS]]
        intake.accept("file:x", records)


def _record(number: int, rng: random.Random) -> RequestRecord:
    """A record like those of vLLM; ids and times are as random as real ones."""
    arrived = _START_NS + number * 5_000_000
    queue, prefill, decode = (rng.expovariate(rate) for rate in (2, 5, 0.5))
    return RequestRecord(
        "vllm",
        "engine",
        arrived,
        arrived + int((queue + prefill + decode) * 1e9),
        rng.randbytes(8).hex(),
        rng.randbytes(8).hex(),
        rng.randbytes(16).hex(),
        rng.randbytes(16).hex(),
        f"tenant-{number % 20}",
        "meta-llama/Llama-3.1-8B-Instruct",
        "127.0.0.1:8000",
        "vllm",
        0.01,
        queue,
        prefill,
        decode,
        queue + prefill + 0.01,
        queue + prefill + decode + 0.01,
        rng.randrange(4000),
        None,
        rng.randrange(500),
        512,
        "ok",
    )


def _open(folder: Path) -> Iterator[str]:
    rng, store = random.Random(1), Store(folder)
    batch = request_batch([_record(number, rng) for number in range(SPANS)])
    yield f"on the disk, journal       {batch.serialize().size / SPANS:10.0f} bytes a record"
    for first in range(0, _RECORDS, _AT_A_TIME):
        rows = [_record(number, rng) for number in range(first, first + _AT_A_TIME)]
        store.submit(rows).result()
    _sealed(store, folder)
    size = sum(path.stat().st_size for path in (folder / "requests").iterdir())
    yield f"on the disk, Parquet       {size / _RECORDS:10.0f} bytes a record (goal 120)"
    yield f"open {_RECORDS:,} records   {_seconds(lambda: Reader(folder).span()):10.2f} s (goal 1)"
    some = _seconds(lambda: Reader(folder).requests(columns=_COLUMNS))
    yield f"read 12 columns of them    {some:10.2f} s"
    yield f"read all columns of them   {_seconds(lambda: Reader(folder).requests()):10.2f} s"


def _sealed(store: Store, folder: Path) -> None:
    store.close()
    store = Store(folder)
    requests = folder / "requests"
    until(lambda: not any(p.suffix == ".journal" for p in requests.iterdir()), "sealed", 600)
    store.close()


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    started = time.monotonic()
    work()
    return time.monotonic() - started
