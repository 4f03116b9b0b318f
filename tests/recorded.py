"""Request records of a recorded vLLM run, and stores that hold them."""

from __future__ import annotations

import dataclasses
import gzip
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from tailscope.records.jsonl import parse_line
from tailscope.records.reader import join_records
from tailscope.records.record import RequestRecord
from tailscope.records.store import Store
from tests.process import PATIENCE

FILE = Path(__file__).parent / "captures" / "run11_records.jsonl.gz"
"""278 requests of four tenants, one engine and one client row each; made by run11_records.py."""


@cache
def _lines() -> tuple[bytes, ...]:
    return tuple(gzip.decompress(FILE.read_bytes()).splitlines())


def records() -> list[RequestRecord]:
    """The rows of the recording, new objects at each call."""
    return [parse_line(line)[0] for line in _lines()]


def frame() -> pd.DataFrame:
    """The recording as the triage gets it."""
    return join_records(records())


def shifted(rows: Iterable[RequestRecord], ago: float) -> list[RequestRecord]:
    """Rows moved in time, so that the newest arrived this many seconds ago."""
    rows = list(rows)
    by = int((time.time() - ago) * 1e9) - max(row.arrived_ns for row in rows)
    return [
        dataclasses.replace(
            row,
            arrived_ns=row.arrived_ns + by,
            ended_ns=None if row.ended_ns is None else row.ended_ns + by,
        )
        for row in rows
    ]


def store(directory: Path, rows: Iterable[RequestRecord]) -> Path:
    """Write rows into a store, as an exporter does, and close it."""
    writer = Store(directory)
    try:
        writer.submit(list(rows)).result(PATIENCE)
    finally:
        writer.close()
    return directory
