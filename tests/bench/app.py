"""What the pages cost: a first page, a switch between pages, one request.

Each figure is one run of the page's script in this process, without a browser: what the server
computes and sends. The first page shows percentiles and the latency over time once the store is
read, then the finding (which are slow), then the verdict; the replay that follows is not counted.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from streamlit.testing.v1 import AppTest

from tailscope.app.settings import Settings
from tailscope.app.source import Question, Source
from tailscope.records.schema import REQUESTS
from tailscope.triage.identity import keys
from tailscope.triage.scope import Scope
from tests.bench.triage import records

_BARE = "streamlit.runtime.scriptrunner_utils.script_run_context"
"""Streamlit's logger that warns of pages that run without a server, as all do here."""

SIZES = (10_000, 100_000, 1_000_000)
PAGES = ("overview", "slow", "tenants", "comparison", "health", "request")


_EMPTY = "import streamlit as st\nst.text('')"


def store(folder: Path, count: int) -> Path:
    """A store with so many made-up requests, as one sealed file."""
    frame = records(count, 20)
    number = pd.RangeIndex(len(frame)).to_series()
    frame = frame.assign(
        source="bench",
        role="engine",
        span_id=number.map("{:016x}".format),
        request_id=number.map("r{}".format),
        model="bench",
        engine="vllm",
        outcome="ok",
        ended_ns=frame["arrived_ns"] + (frame["total_seconds"] * 1e9).astype("int64"),
    )
    frame = frame.astype({"server": "str", "tenant": "str"})
    columns = [
        pa.array(frame[field.name], field.type)
        if field.name in frame
        else pa.nulls(len(frame), field.type)
        for field in REQUESTS
    ]
    (folder / "requests").mkdir(parents=True)
    table = pa.Table.from_arrays(columns, schema=REQUESTS)
    pq.write_table(
        table, folder / "requests" / "0000000001-0000000001.parquet", row_group_size=65_536
    )
    return folder


def run() -> Iterator[str]:
    """Measure at each size; yield lines."""
    logging.getLogger(_BARE).disabled = True
    _run(AppTest.from_string(_EMPTY))
    least = _run(AppTest.from_string(_EMPTY))
    yield f"an empty page takes {least:.2f} s; each page below holds as much"
    for count in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            yield from _measured(store(Path(folder) / "store", count), count)


def _measured(data: Path, count: int) -> Iterator[str]:
    said = {}
    began = time.perf_counter()
    source = Source(data)
    loaded = source.window(None)
    said["read"] = time.perf_counter() - began
    began = time.perf_counter()
    loaded.sight(Question(Scope()))
    said["percentiles"] = time.perf_counter() - began
    began = time.perf_counter()
    loaded.finding(Question(Scope()))
    said["finding"] = time.perf_counter() - began
    began = time.perf_counter()
    with loaded.lock:
        _ = loaded.diagnosis(Question(Scope())).quick.suspects
    said["verdict"] = time.perf_counter() - began
    key = str(keys(loaded.frame.iloc[[count // 2]]).iloc[0])
    began = time.perf_counter()
    source.around(key, loaded)
    said["one request"] = time.perf_counter() - began
    yield f"{count:,} requests: " + ", ".join(f"{name} {took:.2f} s" for name, took in said.items())
    os.environ.update(Settings((data,)).environment())
    _page("overview", key)  # all that is computed once
    for visit in ("first visit", "again"):
        took = {name: _page(name, key) for name in PAGES}
        yield f"  {visit}: " + ", ".join(f"{name} {one:.2f} s" for name, one in took.items())


def _page(name: str, key: str) -> float:
    script = f"from tailscope.app import pages\npages.show({name!r})"
    test = AppTest.from_string(script, default_timeout=300)
    test.query_params["window"] = "all"
    test.query_params["live"] = "false"
    if name == "request":
        test.query_params["request"] = key
    took = _run(test)
    if test.exception:
        raise RuntimeError(f"{name}: {test.exception[0].message}")
    return took


def _run(test: AppTest) -> float:
    began = time.perf_counter()
    test.run()
    return time.perf_counter() - began
