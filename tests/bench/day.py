"""Memory in a day of load: every record is kept, counted, sealed, merged and deleted in its time.

``make bench ARGS=day HOURS=24`` feeds the whole day, as fast as it goes.
"""

from __future__ import annotations

import logging
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from tailscope.exporter.intake import Intake
from tailscope.exporter.matcher import Matcher
from tailscope.exporter.memory import collect_seldom, return_large_blocks
from tailscope.exporter.requestmetrics import RequestMetrics
from tailscope.records.record import RequestRecord
from tailscope.records.segments import listing
from tailscope.records.store import Store
from tests.process import until

_PER_SECOND = 200
_AT_A_TIME = 5
_SCRAPE_SECONDS = 60
_TENANTS = 100_000
_SHAPES = 10_000
_START = 1_699_999_200
_HOUR = 3600
_MAX_BYTES = 512 << 20
_SETTLED = 2
"""Hours until the store holds as much as it may, and every tenant's seat is taken."""


class _Clock:
    """Time that passes as it is told."""

    def __init__(self) -> None:
        self.passed = 0.0

    def running(self) -> float:
        return self.passed

    def wall(self) -> float:
        return _START + self.passed


class _Shape(NamedTuple):
    queue: float
    prefill: float
    decode: float
    sent: int
    made: int


class _Load:
    """Records like those of vLLM, of a few tenants with much and of very many with little load."""

    def __init__(self) -> None:
        self._rng = rng = random.Random(1)
        draw = rng.expovariate
        self._shapes = [
            _Shape(draw(2.0), draw(5.0), draw(0.5), rng.randrange(4000), rng.randrange(500))
            for _ in range(_SHAPES)
        ]

    def records(self, second: float, count: int) -> list[RequestRecord]:
        arrived, step = int((_START + second) * 1e9), int(_AT_A_TIME * 1e9 / count)
        ids = self._rng.randbytes(48 * count).hex()
        shapes = self._rng.choices(self._shapes, k=count)
        return [
            self._record(arrived + step * number, ids[96 * number : 96 * number + 96], shape)
            for number, shape in enumerate(shapes)
        ]

    def _record(self, arrived: int, ids: str, shape: _Shape) -> RequestRecord:
        queue, prefill, decode, sent, made = shape
        total = queue + prefill + decode + 0.01
        draw = self._rng.random()
        tenant = int(20 * draw) if draw < 0.9 else int(draw * 1e9) % _TENANTS
        return RequestRecord(
            "vllm",
            "engine",
            arrived,
            arrived + int(total * 1e9),
            span_id=ids[:16],
            trace_id=ids[16:48],
            request_id=ids[48:80],
            tenant=f"tenant-{tenant}",
            model="meta-llama/Llama-3.1-8B-Instruct",
            server="127.0.0.1:8000",
            engine="vllm",
            frontend_seconds=0.01,
            queue_seconds=queue,
            prefill_seconds=prefill,
            decode_seconds=decode,
            ttft_seconds=queue + prefill + 0.01,
            total_seconds=total,
            input_tokens=sent,
            output_tokens=made,
            max_tokens=512,
            outcome="ok",
        )


def run() -> Iterator[str]:
    """Yield one line for every second hour, and the growth."""
    hours = max(4, int(os.environ.get("HOURS", "4")))
    logging.getLogger("tailscope.records").setLevel(logging.ERROR)
    return_large_blocks()
    collect_seldom()
    with tempfile.TemporaryDirectory() as name:
        yield from _day(Path(name), hours)


def _day(folder: Path, hours: int) -> Iterator[str]:
    clock, load, process = _Clock(), _Load(), psutil.Process()
    store = Store(folder, max_bytes=_MAX_BYTES, now=clock.wall)
    metrics = RequestMetrics(now=clock.running)
    matcher = Matcher(metrics.observe, expect_gateway=False, now=clock.running)
    intake = Intake(store, matcher, lambda: ("a:1", "m"))
    began, sizes = time.monotonic(), []
    for hour in range(1, hours + 1):
        most = 0.0
        while clock.passed < hour * _HOUR:
            intake.accept("otlp:http", load.records(clock.passed, _PER_SECOND * _AT_A_TIME))
            clock.passed += _AT_A_TIME
            if not clock.passed % _SCRAPE_SECONDS:
                metrics.lines()
                most = max(most, process.memory_info().rss / (1 << 20))
        # A day goes by in minutes: let the sealer, which is to have an hour, keep up.
        _sealed(store, folder / "requests", clock)
        sizes.append(most)
        if not hour % 2:
            lines = sum(len(list(family)) for family in metrics.lines().values())
            yield (
                f"after {hour:2} h {_HOUR * _PER_SECOND * hour:13,} records {most:6.0f} MiB at "
                f"most in the hour, {_kept(folder):6.0f} MiB on the disk, {lines} lines of metrics"
            )
    store.close()
    late = sizes[_SETTLED:]
    slope = statistics.linear_regression(range(len(late)), late).slope
    yield (
        f"growth after {_SETTLED} h          {slope:10.2f} MiB an hour; took "
        f"{(time.monotonic() - began) / 60:.0f} min"
    )


def _sealed(store: Store, folder: Path, clock: _Clock) -> None:
    """Wait until the last hour is a file, and give it the time at which it would be made."""
    store.submit(()).result()  # the writer sees that the hour is over
    until(lambda: not any(path.suffix == ".journal" for path in folder.iterdir()), "sealed", 600)
    now = clock.wall()
    for one in _newer(folder, now):
        os.utime(one, (now - 1, now - 1))


def _newer(folder: Path, now: float) -> Sequence[Path]:
    """Files that have the time of today, which is not that of the day that is played."""
    files = [one.path for one in listing(folder)[0]]
    return [path for path in files if not _START <= path.stat().st_mtime <= now]


def _kept(folder: Path) -> float:
    return sum(path.stat().st_size for path in (folder / "requests").iterdir()) / (1 << 20)
