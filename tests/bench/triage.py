"""What the triage costs: calibration, cost fit, ledgers, and the tenant by tenant matrix."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tailscope.triage import blame
from tailscope.triage.calibration import calibrate
from tailscope.triage.ledger import accounts, ledger
from tailscope.triage.reckoning import in_parallel
from tailscope.triage.study import Costing, costing, slowdown
from tailscope.triage.work import Ints, works
from tests.simulated.engine import Machine
from tests.simulated.scenario import scenario

ENGINES = 8
RATE = 6.0
"""Requests a second of one engine."""


def records(count: int, tenants: int) -> pd.DataFrame:
    """Many records of eight engines, some hours long."""
    random = np.random.default_rng(0)
    arrived = np.sort(random.uniform(0, count / ENGINES / RATE, count))
    prompt = np.exp(random.normal(6.5, 0.8, count)).astype(np.int64) + 16
    output = np.exp(random.normal(4.8, 0.7, count)).astype(np.int64) + 1
    queue = random.exponential(0.05, count) * (random.random(count) < 0.3)
    queue += (np.abs(np.sin(arrived / 300)) > 0.98) * random.exponential(2, count)
    prefill = 0.01 + 6e-5 * prompt * random.lognormal(0, 0.1, count)
    decode = (output - 1) * 0.012 * random.lognormal(0, 0.1, count)
    return pd.DataFrame(
        {
            "arrived_ns": 1_796_000_000 * 10**9 + (arrived * 1e9).astype(np.int64),
            "server": _names("engine", random.integers(0, ENGINES, count), ENGINES),
            "tenant": _names("tenant", random.integers(0, tenants, count), tenants),
            "frontend_seconds": 0.002,
            "queue_seconds": queue,
            "prefill_seconds": prefill,
            "decode_seconds": decode,
            "ttft_seconds": 0.002 + queue + prefill,
            "total_seconds": 0.002 + queue + prefill + decode,
            "input_tokens": prompt,
            "cached_tokens": 0,
            "output_tokens": output,
        }
    )


def _names(word: str, codes: Ints, count: int) -> pd.Series[Any]:
    names = pd.Series([f"{word}-{i}" for i in range(count)], dtype="category")
    return names.take(codes).reset_index(drop=True)


def books(found: Costing, least: float) -> float:
    """Ledgers of an engine's slow requests, and its matrix; the seconds in the matrix."""
    slow = np.flatnonzero(found.excess >= least)
    unusual = slowdown(found)
    held = accounts(found.work, found.cost)
    ledger(found.work, found.cost, found.alone, held, unusual, slow)
    return float(blame.matrix(found.work, found.cost, found.alone, held).sum())


def matrices(requests: int, tenants: int = 20) -> Iterator[str]:
    """Cost fit, ledgers of the slowest hundredth, and the matrix of all requests."""
    frame = records(requests, tenants)
    begin = time.perf_counter()
    parts = works(frame)
    read = time.perf_counter()
    found = in_parallel(costing, parts)
    fitted = time.perf_counter()
    least = float(np.quantile(np.concatenate([one.excess for one in found]), 0.99))
    sum(in_parallel(lambda one: books(one, least), found))
    done = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield (
        f"{requests:,} requests, {tenants} tenants, {ENGINES} engines: read {read - begin:.2f} s, "
        f"fit {fitted - read:.2f} s, ledgers and matrix {done - fitted:.2f} s, "
        f"all {done - begin:.2f} s; {memory:.2f} GiB at most with the records"
    )


def replay() -> str:
    """Calibration on 1,500 requests."""
    made = scenario("flood", 1, span=270.0, machine=Machine(sequences=48), removals=False)
    work = works(made.frame)[0].take(np.arange(min(1500, len(made.frame))))
    one = costing(work)
    begin = time.perf_counter()
    engine = calibrate(work, one.cost)
    took = time.perf_counter() - begin
    return f"calibration on {len(work):,} requests: {took:.2f} s, loss {engine.loss:.3f}"


def run() -> Iterator[str]:
    """Measure."""
    yield replay()
    yield from matrices(1_000_000)
    yield from matrices(10_000_000)
