"""GPUs in the pages: what is said, and the strips under a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tailscope.app import gpus, strips, timeline
from tailscope.app.source import Source
from tailscope.records.reader import Reader
from tailscope.records.record import RequestRecord
from tailscope.records.samples import Sample, label_text
from tailscope.triage.scope import Scope
from tests import gpusamples, recorded
from tests.gpusamples import BUSY, Board, of, rising, steady
from tests.openpage import Open, marks, open_page, store, table, words

__all__ = ["open_page", "store"]


def with_gpus(store: Path, *boards: Board) -> Path:
    """Read GPUs beside the requests of a store."""
    low, high = Source(store).span() or (0, 0)
    ends = [RequestRecord("t", "gateway", at) for at in (low, high)]
    return gpusamples.add(store, gpusamples.beside(ends, *boards))


HOT = {**BUSY, of("throttled_seconds_total", reason="hw_thermal"): rising(40, 81)}


def test_the_overview_says_how_the_gpus_did(open_page: Open, store: Path) -> None:
    with_gpus(store, Board(0, HOT), Board(1, {of("power_watts"): steady(70.0)}))
    test = open_page(store)
    said = words(test)
    assert "GPU 0 was held down by heat for 41.0 s" in said
    assert "slow requests ran meanwhile" in said
    assert "No SM activity is known of GPU 1." in said
    shown_gpus = table(test, "sm_mean").set_index("gpu")
    assert shown_gpus.loc["GPU 0", "sm_mean"] == pytest.approx(90.0)
    assert shown_gpus.loc["GPU 0", "held"] == pytest.approx(41.0)
    assert shown_gpus.isna().loc["GPU 1", ["sm_mean", "held"]].all()
    assert shown_gpus.loc["GPU 1", "power_watts"] == 70


def test_a_request_shows_what_gpus_and_engine_did(open_page: Open, store: Path) -> None:
    with_gpus(store, Board(0, HOT), Board(1, BUSY))
    rows = Source(store).window(None).frame
    server = rows["server"].iloc[0]
    labels = {"engine": "vllm", "server": server, "model": "tiny-llama", "rank": ""}
    other = {**labels, "server": "elsewhere:1"}
    first = int(rows["arrived_ns"].min())
    gpusamples.add(
        store,
        [
            Sample(first + second * gpusamples.SECOND, f"tailscope_engine_{name}", text, value)
            for second in range(80)
            for text, value in ((label_text(labels), 3.0), (label_text(other), 77.0))
            for name in ("requests_running", "requests_waiting")
        ],
    )
    test = open_page(store, window="all", request="tail-0216-umbrella")
    assert "GPU 0 was held down by heat for 4.32 s of it." in words(test)
    assert "GPU 0, GPU 1: share of cycles, mean since the sample before." in words(test)
    assert "Which GPU served the request is not recorded." in words(test)
    source = Source(store)
    around = source.around("tail-0216-umbrella", source.window(None))
    assert around is not None
    origin, length = int(around.request["arrived_ns"].iloc[0]), 4.32
    samples = source.samples(strips.METRICS, *strips.span(origin, length))
    activity = strips.lines(samples, strips.GPU, origin, length)
    assert set(activity["whose"]) == {"GPU 0", "GPU 1"}
    assert set(activity.loc[activity["what"] == "DRAM", "value"]) == {40.0}
    # From the last sample before the axis to the first behind it.
    low, high = timeline.edges(length)
    assert low - 1 <= activity["start"].min() < low
    assert high < activity["start"].max() <= high + 1
    queue = strips.lines(samples, strips.QUEUE, origin, length, server)
    assert set(queue["value"]) == {3.0}  # of its own engine
    assert strips.lines(samples, strips.CACHE, origin, length, server).empty


def test_without_gpu_samples_the_request_says_how_to_get_them(open_page: Open, store: Path) -> None:
    said = words(open_page(store, window="all", request="tail-0216-umbrella"))
    assert "No GPU activity is stored for this time." in said
    assert "By GPU" not in said
    assert "tailscope exporter --gpu auto" in said


def test_without_sm_activity_the_request_says_so(open_page: Open, store: Path) -> None:
    curves = {name: curve for name, curve in BUSY.items() if "sm_active" not in name[0]}
    with_gpus(store, Board(0, curves))
    said = words(open_page(store, window="all", request="tail-0216-umbrella"))
    assert "No SM activity is stored for this time." in said


def samples_of(board: Board, seconds: int) -> tuple[Any, int]:
    """Samples as the reader returns them, and when they begin."""
    origin = 1_796_004_600 * gpusamples.SECOND
    found = pd.DataFrame(board.samples(origin, seconds), columns=Sample._fields)
    texts = found.pop("labels").map(json.loads)
    return found.assign(gpu=texts.map(lambda labels: labels["gpu"])), origin


def test_a_line_breaks_where_nothing_was_read_and_is_bounded() -> None:
    samples, origin = samples_of(Board(0, BUSY, silent=range(20, 40)), 60)
    found = strips.lines(samples, strips.GPU, origin, 60.0)
    assert found.groupby("what")["piece"].nunique().to_dict() == {"DRAM": 2, "SM": 2}
    curves = {of("sm_active_ratio"): lambda second: second % 2}
    samples, origin = samples_of(Board(0, curves), 2_000)
    found = strips.lines(samples, strips.GPU, origin, 2_000.0)
    assert 100 < len(found) <= strips.MAX_POINTS
    assert found["value"].mean() == pytest.approx(50.0, abs=1.0)
    chart = strips.draw(found, strips.GPU, 2_000.0)
    assert marks(chart) <= strips.MAX_POINTS + 2
    text = json.dumps(chart.to_dict())
    assert "GPU activity (% of cycles)" in text
    outside = strips.lines(samples, strips.GPU, origin - 10**14, 5.0)
    assert outside.empty


def test_more_gpus_than_fit_leave_the_busiest() -> None:
    parts = [
        samples_of(Board(index, {of("sm_active_ratio"): steady(index / 10)}), 10)
        for index in range(10)
    ]
    found = strips.lines(pd.concat([part for part, _ in parts]), strips.GPU, parts[0][1], 10.0)
    assert set(found["whose"]) == {f"GPU {index}" for index in range(2, 10)}


def test_a_short_request_between_two_samples_has_its_line() -> None:
    samples, origin = samples_of(Board(0, BUSY), 10)
    found = strips.lines(samples, strips.GPU, origin + 4_300_000_000, 0.2)
    assert sorted(found["start"].round(1).unique()) == [-0.3, 0.7]


def test_of_many_samples_the_latest_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hours of them, one a minute."""
    rows = recorded.shifted(recorded.records()[:2], ago=5)
    end = max(row.arrived_ns for row in rows)
    begin = end - 3 * 3600 * gpusamples.SECOND
    heat = {of("throttled_seconds_total", reason="hw_thermal"): rising(0, 7200, each=0.5)}
    samples = [
        sample
        for sample in Board(0, {**BUSY, **heat}).samples(begin, 3 * 3600)
        if (sample.time_ns - begin) % (60 * gpusamples.SECOND) == 0
    ]
    store = gpusamples.add(recorded.store(tmp_path / "s", rows), samples)
    scope = Scope(start_ns=begin)
    reader = Reader(store)
    frame = reader.requests()
    (whole,) = gpus.examined(reader, frame, scope)
    assert whole.start_ns == begin
    assert whole.activity["sm"].samples == 181
    assert whole.throttles[0].seconds == pytest.approx(3600)
    monkeypatch.setattr(gpus, "MAX_SAMPLES", 700)
    (part,) = gpus.examined(reader, frame, scope)
    assert 60 < part.activity["sm"].samples < 120
    assert part.start_ns > begin
    in_part = (begin + 7200 * gpusamples.SECOND - part.start_ns) / gpusamples.SECOND / 2
    assert part.throttles[0].seconds == pytest.approx(in_part)
    none = Reader(recorded.store(tmp_path / "none", rows))
    assert gpus.examined(none, frame, scope) == ()


def test_samples_of_the_past_are_read_once(store: Path) -> None:
    with_gpus(store, Board(0, BUSY))
    source = Source(store)
    low, high = source.span() or (0, 0)
    first = source.samples(strips.METRICS, low, low + 10**9)
    assert len(first) == 2
    assert source.samples(strips.METRICS, low, low + 10**9) is first
    # What has just been is read anew: it may not be written yet.
    young = source.samples(strips.METRICS, low, high + 30 * 10**9)
    assert source.samples(strips.METRICS, low, high + 30 * 10**9) is not young
    for step in range(10):
        source.samples(strips.METRICS, low, low + step)
    assert source.samples(strips.METRICS, low, low + 10**9) is not first
