from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import altair as alt
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from tailscope import cli
from tailscope.app import charts, gpus, plot, strips, tables, timeline
from tailscope.app.palette import COLOURS, GREY, TenantColours, shown
from tailscope.app.settings import Settings
from tailscope.app.source import MIN_AGE, Source
from tailscope.app.text import plain
from tailscope.records.reader import Reader
from tailscope.records.record import RequestRecord
from tailscope.records.samples import Sample, label_text
from tailscope.records.store import Store
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.identity import find, keys
from tailscope.triage.neighbours import neighbours
from tailscope.triage.scope import Scope
from tailscope.triage.words import seconds
from tests import gpusamples, recorded
from tests.gpusamples import BUSY, Board, of, rising, steady

MAIN = Path(__file__).parents[1] / "app" / "tailscope" / "app" / "main.py"

Open = Callable[..., AppTest]


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Run the page in this process, on a store, with an address."""

    def run(
        data: Path,
        *,
        page: str = "overview",
        notice: str = "",
        settings_of: Mapping[str, Any] = MappingProxyType({}),
        **address: str,
    ) -> AppTest:
        settings = Settings((data,), notice, **settings_of)
        for name, value in settings.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(plot, "CHECKED", True)
        test = AppTest.from_string(
            f"from tailscope.app import pages\npages.show({page!r})", default_timeout=60
        )
        for name, value in address.items():
            test.query_params[name] = value
        test.run()
        assert not test.exception, test.exception
        return test

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the recording, which ended a minute ago."""
    return recorded.store(tmp_path / "store", recorded.shifted(recorded.records(), ago=60))


def words(test: AppTest) -> str:
    """What the page says, without the marks of Markdown."""
    parts = [*test.markdown, *test.caption, *test.subheader, *test.info, *test.error]
    return re.sub(r"\\(.)", r"\1", "\n".join(str(part.value) for part in parts))


def table(test: AppTest, column: str) -> Any:
    """The table that has this column."""
    return next(item.value for item in test.dataframe if column in item.value.columns)


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["diagnose", *arguments, "--json"]) == 0
    shape: dict[str, Any] = json.loads(capsys.readouterr().out)
    return shape


# What the page says


def test_without_a_store_the_page_says_what_to_do(open_page: Open, tmp_path: Path) -> None:
    test = open_page(tmp_path / "none")
    assert "No exporter has written into this store." in words(test)
    code = "\n".join(block.value for block in test.code)
    assert f"--data {tmp_path / 'none'}" in code
    assert "--otlp-traces-endpoint http://127.0.0.1:4317" in code
    assert not test.metric


def test_an_empty_store_is_told_from_a_missing_one(open_page: Open, tmp_path: Path) -> None:
    Store(tmp_path).close()
    assert "no request record has come in" in words(open_page(tmp_path))


def test_the_page_opens_with_the_verdict(open_page: Open, store: Path) -> None:
    said = words(open_page(store, notice="This is a *recording*."))
    assert "This is a *recording*." in said
    assert "p50 1.72 s, p99 4.68 s over 278 requests since" in said
    assert "83 % of the slow seconds are in the queue." in said
    assert "is owed to tenant initech" in said
    assert "Grade A." in said


def test_the_numbers_are_those_of_diagnose(
    open_page: Open, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = open_page(store, window="all")
    shape = diagnosed(capsys, "--data", str(store))
    for metric in test.metric[:6]:
        level, what = metric.label.split()
        key = {"total": "total", "TTFT": "ttft"}[what]
        assert metric.value == seconds(shape["latency"][key][level]), metric.label
    assert {metric.label.split()[0] for metric in test.metric[:6]} == {"p50", "p95", "p99"}

    parts = table(test, "part").set_index("part")
    for stage, values in shape["latency"]["stages"].items():
        assert parts.loc[stage, "p99"] == values["p99"]
        assert parts.loc[stage, "requests"] == values["count"]
        assert parts.loc[stage, "slow"] == shape["slow"]["by_stage"][stage]
    assert parts.loc["time to first token", "p95"] == shape["latency"]["ttft"]["p95"]

    tenants = table(test, "slot_share").set_index("tenant")
    assert list(tenants.index) == [tenant["name"] for tenant in shape["tenants"]]
    for tenant in shape["tenants"]:
        row = tenants.loc[tenant["name"]]
        assert row["requests"] == tenant["requests"]
        assert row["p99"] == tenant["total"]["p99"]
        assert row["slot_share"] == pytest.approx(100 * tenant["slot_share"])

    slow = table(test, "excess")
    assert list(slow["request"]) == [one["request_id"] for one in shape["slow"]["slowest"]]
    assert list(slow["excess"]) == [one["excess_seconds"] for one in shape["slow"]["slowest"]]


def test_filters_and_rules_in_the_address_choose(
    open_page: Open, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = open_page(store, window="all", slow="2s", tenant="acme")
    shape = diagnosed(capsys, "--data", str(store), "--slow", "2s", "--tenant", "acme")
    assert shape["window"]["requests"] == 140
    assert "over 140 requests" in words(test)
    assert f"{shape['slow']['requests']} requests are slow: 2.00 s or more." in words(test)
    assert test.sidebar.selectbox(key="slow").value == "2s"
    assert test.sidebar.multiselect(key="tenant").value == ["acme"]


def test_a_filter_in_the_page_chooses(open_page: Open, store: Path) -> None:
    test = open_page(store)
    test.sidebar.multiselect(key="tenant").set_value(["globex"]).run()
    assert "over 37 requests" in words(test)
    assert not test.exception


def test_a_window_without_requests_offers_all(open_page: Open, tmp_path: Path) -> None:
    store = recorded.store(tmp_path / "s", recorded.shifted(recorded.records(), ago=4000))
    test = open_page(store)
    assert "The store holds requests from" in words(test)
    test.button[0].click().run()
    assert not test.exception
    assert test.sidebar.selectbox(key="window").value == "all"
    assert "over 278 requests" in words(test)


def test_a_request_in_the_address_is_shown(open_page: Open, store: Path) -> None:
    frame = Source(store).window(None).frame
    position = find(frame, "tail-0216-umbrella")
    assert position is not None
    for name in (keys(frame).iloc[position], "tail-0216-umbrella"):
        said = words(open_page(store, request=name))
        assert "Request tail-0216-umbrella" in said
        assert "It took 4.32 s: 0.437 s frontend, 3.26 s queue" in said
        assert "tenant initech held 6.5 places on average" in said


def test_a_request_is_found_by_its_key_outside_the_window(open_page: Open, tmp_path: Path) -> None:
    rows = [
        *recorded.shifted(recorded.records(), ago=7000),
        RequestRecord("test", "gateway", 0, span_id="ff", tenant="acme", total_seconds=1.0),
    ]
    rows[-1].arrived_ns = max(row.arrived_ns for row in rows) + 6_900 * 10**9
    store = recorded.store(tmp_path / "s", rows)
    frame = Source(store).window(None).frame
    position = find(frame, "tail-0216-umbrella")
    assert position is not None
    said = words(open_page(store, window="5m", request=str(keys(frame).iloc[position])))
    assert "over 1 request since" in said
    assert "Request tail-0216-umbrella" in said
    assert "tenant initech held 6.5 places on average" in said


def test_an_unknown_request_is_not_invented(open_page: Open, store: Path) -> None:
    said = words(open_page(store, request="[nobody](http://example.org)"))
    assert "No request [nobody](http://example.org) in this time window." in said
    assert "over 278 requests" in said


def test_one_request_is_a_page(open_page: Open, tmp_path: Path) -> None:
    rows = [row for row in recorded.records() if row.request_id == "tail-0001-acme"]
    assert len(rows) == 2
    store = recorded.store(tmp_path / "s", recorded.shifted(rows, ago=5))
    said = words(open_page(store))
    assert "over 1 request since" in said
    assert "Fewer than 20 requests are too few" in said
    assert "No request is slow." in said


def test_without_tenants_the_page_says_unknown(open_page: Open, tmp_path: Path) -> None:
    rows = [row for row in recorded.records() if row.role == "engine"]
    store = recorded.store(tmp_path / "s", recorded.shifted(rows, ago=5))
    test = open_page(store)
    assert "278 of 278 requests have no tenant" in words(test)
    assert list(table(test, "slot_share")["tenant"]) == ["unknown"]


def test_with_totals_alone_the_page_leaves_out_what_nobody_knows(
    open_page: Open, tmp_path: Path
) -> None:
    rows = [row for row in recorded.records() if row.role == "gateway"]
    for row in rows:
        row.ttft_seconds = None
    store = recorded.store(tmp_path / "s", recorded.shifted(rows, ago=5))
    test = open_page(store)
    said = words(test)
    assert "p50 1.73 s, p99 4.72 s over 278 requests" in said
    assert "No stage times are known" in said
    assert [metric.value for metric in test.metric][3:6] == ["unknown"] * 3
    assert "queue" not in list(table(test, "part")["part"])
    assert {"ttft_p99", "slot_share"}.isdisjoint(table(test, "tenant").columns)


def test_names_from_clients_are_shown_as_they_are(open_page: Open, tmp_path: Path) -> None:
    name = "<b>**x**</b> :red[y] $z$ [l](http://example.org)"
    rows = recorded.shifted(recorded.records(), ago=5)
    for row in rows:
        row.tenant = name if row.tenant == "initech" else row.tenant
    test = open_page(recorded.store(tmp_path / "s", rows))
    shown_raw = next(m.value for m in test.markdown if "owed to" in m.value)
    assert plain(name) in shown_raw
    assert f"tenant {name}; without it" in words(test)


def test_a_damaged_store_is_said(open_page: Open, store: Path) -> None:
    (store / "requests" / "0000000009-0000000009.parquet").write_bytes(b"no parquet file")
    test = open_page(store)
    assert len(test.error) == 1
    assert "requests" in test.error[0].value
    assert not test.metric


def test_plain_text_has_no_meaning_in_markdown() -> None:
    assert plain("a*b_c[d](e):f:") == r"a\*b\_c\[d\]\(e\)\:f\:"
    assert plain("one\n\n# two") == r"one \# two"
    assert plain("tenant") == "tenant"


# GPUs


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


# The source behind the pages


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_read_is_shared_while_it_is_young_and_as_long_as_nothing_is_written(
    tmp_path: Path,
) -> None:
    clock = Clock()
    source = Source(tmp_path, clock=clock)
    assert not source.exists()
    assert source.span() is None
    assert source.window(None).frame.empty

    clock.now += MIN_AGE + 1
    recorded.store(tmp_path, recorded.shifted(recorded.records(), ago=60))
    assert source.exists()
    first = source.window(None)
    assert len(first.frame) == 278
    span = source.span()
    assert span is not None
    # A client row arrives a moment before the engine row that it belongs to.
    assert 0 <= first.frame["arrived_ns"].min() - span[0] < 10**9
    assert 0 <= span[1] - first.frame["arrived_ns"].max() < 10**9

    clock.now += 10_000
    assert source.window(None) is first  # nothing was written

    recorded.store(tmp_path, [RequestRecord("t", "gateway", span[1] + 10**9, tenant="new")])
    second = source.window(None)
    assert second is not first
    assert len(second.frame) == 279
    assert second.names["tenant"] == ["acme", "globex", "initech", "new", "umbrella"]
    assert source.window(None) is second
    assert source.span() == (span[0], span[1] + 10**9)  # read anew


def test_a_dear_read_is_kept_longer(store: Path) -> None:
    clock = Clock()
    source = Source(store, clock=clock)
    loaded = source.window(900.0)
    loaded.cost = 3.0
    clock.now += 29
    assert source.window(900.0) is loaded
    clock.now += 2
    assert source.window(900.0) is not loaded


def test_a_finding_is_made_once_for_a_scope(store: Path) -> None:
    loaded = Source(store).window(None)
    scopes = [Scope(tenants=(str(number),)) for number in range(18)]
    found = [loaded.finding(scope) for scope in scopes]
    assert loaded.finding(scopes[-1]) is found[-1]
    assert loaded.finding(scopes[0]) is not found[0]  # only the last ones are kept


def test_settings_pass_through_the_environment(tmp_path: Path) -> None:
    settings = Settings(
        (tmp_path, tmp_path / "b"), "It's a notice", "http://p:9090", tmp_path / "h"
    )
    assert Settings.read(settings.environment()) == settings


# Drawings


def marks(chart: Any) -> int:
    """Rows that a chart sends to the browser."""
    with alt.data_transformers.enable("default", max_rows=None):
        return sum(len(rows) for rows in chart.to_dict()["datasets"].values())


def test_each_request_is_a_mark_until_they_are_too_many() -> None:
    frame = recorded.frame()
    finding = Diagnosis(frame).finding
    colours = TenantColours()
    colours.learn(frame["tenant"])
    few = charts.latency(frame, finding, "total_seconds", colours, ["acme"])
    assert marks(few) == 278 + 14

    many = frame.loc[frame.index.repeat(50)].reset_index(drop=True)
    many["arrived_ns"] += many.index.to_numpy() * 10**8
    found = Diagnosis(many).finding
    assert len(many) > charts.MAX_MARKS
    chart = charts.latency(many, found, "ttft_seconds", colours, ["acme"])
    assert 100 < marks(chart) <= charts.MAX_MARKS
    assert found.slow.requests > len(found.slow.slowest) == 100


def test_what_nobody_measured_is_not_drawn() -> None:
    frame = recorded.frame().assign(ttft_seconds=float("nan"))
    finding = Diagnosis(frame).finding
    assert charts.latency(frame, finding, "ttft_seconds", TenantColours(), []) is None
    bare = Diagnosis(frame.iloc[:3]).finding
    assert charts.slow_seconds(bare) is None


def test_a_chart_names_its_axes_with_units() -> None:
    frame = recorded.frame()
    finding = Diagnosis(frame).finding
    drawn = [
        charts.latency(frame, finding, "total_seconds", TenantColours(), ["acme"]),
        charts.slow_seconds(finding),
        timeline.gantt(timeline.bars(neighbours(frame, 174), ["acme"]), TenantColours()),
    ]
    assert None not in drawn
    pattern = r'"title": "([^"]*\((?:s|UTC)\))"'
    titles = [re.findall(pattern, json.dumps(chart.to_dict())) for chart in drawn if chart]
    assert "total time (s)" in titles[0]
    assert "arrival (UTC)" in titles[0]
    assert "time above what they take alone (s)" in titles[1]
    assert "time after the arrival of the request (s)" in titles[2]


def test_the_timeline_is_bounded_and_has_the_request_on_top() -> None:
    frame = recorded.frame()
    crowded = frame.loc[frame.index.repeat(5)].reset_index(drop=True)
    around = neighbours(crowded, 870)
    assert len(around.others) > timeline.MAX_ROWS
    bars = timeline.bars(around, ["acme"])
    assert bars["rank"].nunique() == timeline.MAX_ROWS + 1
    mine = bars[bars["rank"] == 0]
    assert mine["start"].min() == 0.0
    assert mine["end"].max() == pytest.approx(around.request["total_seconds"].iloc[0], abs=0.01)
    assert set(bars["tenant"]) == {"acme", "other tenants"}
    chart = timeline.gantt(bars, TenantColours()).to_dict()
    low, high = chart["layer"][0]["encoding"]["x"]["scale"]["domain"]
    drawn = next(iter(chart["datasets"].values()))
    assert all(low <= bar["start"] < bar["end"] <= high for bar in drawn)


def test_a_tenant_keeps_its_colour() -> None:
    colours = TenantColours()
    colours.learn(["globex", "acme", "unknown"])
    before = {name: colours.colour(name) for name in ("acme", "globex")}
    assert list(before.values()) == list(COLOURS[:2])
    colours.learn(["aardvark", "globex"])
    assert {name: colours.colour(name) for name in before} == before
    assert colours.colour("aardvark") == COLOURS[2]
    assert colours.colour("unknown") == colours.colour("never seen") == GREY
    assert shown(["unknown", *"abcdefghijk"]) == list("abcdefgh")


def test_an_interval_says_where_it_is_open() -> None:
    total = Diagnosis(recorded.frame()).finding.latency.total
    assert total is not None
    assert tables.interval(total.p50) == "1.00 to 2.38 s"
    assert tables.interval(total.p99) == "from 4.58 s"
    assert tables.interval(dataclasses.replace(total.p50, low=None)) == "to 2.38 s"
    assert tables.interval(dataclasses.replace(total.p50, low=None, high=None)) == ""


# The command


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--port", "0"], "--port 0: it must be between 1 and 65535"),
        (["--data", str(MAIN)], "this is a file"),
        (["--address", "203.0.113.1"], "cannot listen on 203.0.113.1:8501"),
    ],
)
def test_the_command_refuses_what_cannot_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: list[str], said: str
) -> None:
    assert cli.main(["app", "--data", str(tmp_path), *flags]) == 2
    assert said in capsys.readouterr().err
