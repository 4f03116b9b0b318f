"""What it costs to read engines: a scrape of each size, and eight engines every second."""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

from tailscope.catalogue.engines import engines
from tailscope.exporter.normalise import Normaliser
from tests.captures import captures
from tests.fake_engine import answers, capture, fake_engine
from tests.process import exporter

_TURNS = 60
_ENGINES = 8
_SECONDS = 20.0
_SIZES = ((70_000, 5), (1_000_000, 80))
"""Bytes of a scrape of vLLM, and the milliseconds that it may take."""


def run() -> Iterator[str]:
    """Yield one line per figure."""
    for size, goal in _SIZES:
        yield _scrape(page(size), goal)
    for one in captures():
        if one.text:
            yield _scrape(one.text, None, str(one), one.engine.name)
    with tempfile.TemporaryDirectory() as name:
        yield from _share(Path(name))


def page(size: int) -> str:
    """A scrape of vLLM with as many data-parallel ranks as fit."""
    whole = capture("0.32-all-options")
    series = re.sub(r"^#.*\n", "", whole, flags=re.MULTILINE)
    rank = 1
    while len(whole) < size:
        more = series.replace('engine="0"', f'engine="{rank}"')
        whole += more[: more.rfind("\n", 0, size - len(whole)) + 1] or "\n"
        rank += 1
    return whole


def _scrape(text: str, goal: int | None, title: str = "vLLM", engine: str = "vllm") -> str:
    reader = Normaliser(engines()[engine], "a:1")
    started = time.perf_counter()
    reader.read(text)
    first = 1000 * (time.perf_counter() - started)
    times, work = [], []
    for _ in range(_TURNS):
        started, before = time.perf_counter(), time.thread_time()
        reader.read(text)
        times.append(1000 * (time.perf_counter() - started))
        work.append(1000 * (time.thread_time() - before))
    limit = f" (goal {goal})" if goal else ""
    return (
        f"{title:<26} {statistics.median(times):10.2f} ms median{limit}, "
        f"{statistics.median(work):.2f} ms of it on the CPU, {max(times):.2f} ms max, "
        f"{first:.1f} ms the first time, {len(text) / 1000:.0f} kB"
    )


def _share(folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        text = page(70_000)
        servers = [stack.enter_context(fake_engine(answers(text))) for _ in range(_ENGINES)]
        flags = [part for one in servers for part in ("--engine", one.url)]
        it = stack.enter_context(exporter(folder / "log", *flags, "--gpu", "off"))
        process = psutil.Process(it.process.pid)
        time.sleep(2)
        before, started = process.cpu_times(), time.monotonic()
        time.sleep(_SECONDS)
        after, seconds = process.cpu_times(), time.monotonic() - started
        share = (after.user - before.user + after.system - before.system) / seconds
        yield (
            f"share of a core            {100 * share:10.2f} % at {_ENGINES} engines of 70 kB, "
            "each every second"
        )
        yield f"memory                     {process.memory_info().rss / (1 << 20):10.0f} MiB"
