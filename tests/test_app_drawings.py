"""Drawings: bounded, with units, in the colours of the tenants."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from tailscope.app import charts, tables, timeline
from tailscope.app.palette import COLOURS, GREY, TenantColours, shown
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.neighbours import neighbours
from tests import recorded
from tests.openpage import marks


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
