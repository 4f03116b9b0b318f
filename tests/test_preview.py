"""Boards drawn without Grafana: every panel has something, and what is drawn is what was asked."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from tailscope.cli import main
from tailscope.dashboards.board import Board
from tailscope.dashboards.boards import boards
from tailscope.dashboards.preview import chart, units
from tailscope.dashboards.preview.chart import Frame, Line, Look
from tailscope.dashboards.preview.page import WIDTH, page
from tailscope.dashboards.preview.panel import Span, _legend_lines
from tailscope.dashboards.preview.picture import browser
from tailscope.dashboards.preview.prometheus import Curve
from tailscope.dashboards.preview.prometheus import Prometheus as Source
from tailscope.dashboards.preview.scale import moments, ticks
from tailscope.dashboards.preview.variables import values
from tests.prometheus import Prometheus

EVERY = pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)


@EVERY
def test_every_panel_is_drawn_inside_of_the_page(
    board: Board, prometheus_of_everything: tuple[Prometheus, int]
) -> None:
    server, end = prometheus_of_everything
    data = board.json()
    known = values(data, {"offset": "5m"}, 600, 15)
    drawn = page(data, Source(server.url), Span(end - 600, end, 15, known))
    assert drawn.empty == ()
    assert "$" not in re.sub(r' title="[^"]*"', "", drawn.html)
    assert 'class="wrong"' not in drawn.html
    places = re.findall(r"left:(\d+)px;top:(\d+)px;width:(\d+)px;height:(\d+)px", drawn.html)
    assert len(places) > drawn.panels
    for left, top, width, height in (map(int, place) for place in places):
        assert left + width <= WIDTH and top + height <= drawn.height
    for svg in re.findall(r"<svg.*?</svg>", drawn.html):
        ElementTree.fromstring(svg)


def test_a_board_becomes_a_page_and_a_picture(
    prometheus_of_everything: tuple[Prometheus, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if browser() is None:
        pytest.skip("no Chromium here: install it (as root: apt-get install chromium)")
    server, _ = prometheus_of_everything
    flags = ["--prometheus", server.url, "--output", str(tmp_path), "--png"]
    assert main(["dashboards", "preview", *flags, "--board", "tailscope-exporter"]) == 0
    # The series ended long ago: an empty board is drawn too, and says so.
    assert "15 panels, 15 empty" in capsys.readouterr().out
    with Image.open(tmp_path / "tailscope-exporter.png") as picture:
        assert picture.width == WIDTH and picture.height > 1000
        assert len(picture.convert("L").getcolors() or ()) > 10


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--prometheus is missing"),
        (("--prometheus", "http://127.0.0.1:9"), "--prometheus http://127.0.0.1:9"),
        (("--prometheus", "x", "--last", "soon"), "--last soon: give a time such as"),
        (("--prometheus", "x", "--set", "tenant"), "--set tenant: give NAME=VALUE"),
    ],
)
def test_a_preview_that_cannot_be_is_refused(
    flags: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboards", "preview", "--output", str(tmp_path), *flags]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0123, "s", "12.3 ms"),
        (0.00001, "s", "10 µs"),
        (0, "s", "0 s"),
        (90, "s", "1.5 min"),
        (-90, "s", "-1.5 min"),
        (0.125, "percentunit", "12.5%"),
        (1234, "short", "1.23k"),
        (0.5, "reqps", "0.5 req/s"),
        (1536, "bytes", "1.5 KiB"),
        (512, "Bps", "512 B/s"),
        (2e9, "hertz", "2GHz"),
        (60, "celsius", "60 °C"),
        (3, "suffix: x", "3 x"),
        (1500, "suffix: tok/s", "1.5k tok/s"),
    ],
)
def test_values_have_their_units(value: float, unit: str, shown: str) -> None:
    assert units.text(value, unit) == shown


@pytest.mark.parametrize(
    ("hours", "scrape", "rate", "interval"),
    [
        (1, 15, "60s", "15s"),
        (24, 15, "375s", "360s"),
        (1, 60, "240s", "60s"),
        (24, 1, "361s", "360s"),
    ],
)
def test_rates_look_back_as_far_as_in_grafana(
    hours: int, scrape: int, rate: str, interval: str
) -> None:
    known = values(boards()[0].json(), {}, hours * 3600, scrape)
    assert (known["__rate_interval"], known["__interval"]) == (rate, interval)


def test_axes_have_round_numbers_that_reach_around_the_values() -> None:
    for low, high in ((0.0, 1.0), (0.0, 0.37), (-0.5, 0.2), (3.0, 3.0), (0.0, 7e9)):
        marks = ticks(low, high)
        assert marks[0] <= low and marks[-1] >= high and 2 <= len(marks) <= 12, (low, high, marks)
    assert ticks(0, 100, unit="s") == [0, 30, 60, 90, 120]
    assert ticks(0, 400, unit="s") == [0, 120, 240, 360, 480]
    assert ticks(0, 2e6, unit="s")[-1] == 24 * 86400
    assert ticks(0, 12, unit="s") == [0, 5, 10, 15]
    assert moments(0, 600, 2) == [(0, "00:00"), (300, "00:05"), (600, "00:10")]


FRAME = Frame(width=400, height=200, start=0, end=100, step=10)


def _curve(*points: tuple[float, float], **labels: str) -> Curve:
    return Curve(labels, points)


def test_long_names_get_more_lines_of_the_legend() -> None:
    lines = [Line(f"held back by 10.0.0.{n}:8000", _curve((0, 1)), "#000", "short") for n in "12"]
    assert [_legend_lines(lines, width) for width in (460, 300, 30)] == [1, 2, 3]


def test_stacked_curves_stand_on_one_another() -> None:
    lines = [
        Line("a", _curve((0, 1), (100, 1)), "#111111", "short"),
        Line("b", _curve((0, 2), (100, 2)), "#222222", "short"),
    ]
    drawn = chart.lines(lines, Look("short", 0, 4, True, ()), FRAME)
    below, above = (
        float(re.findall(rf'd="M[\d.]+ ([\d.]+)[^"]*" fill="none" stroke="{colour}"', drawn)[0])
        for colour in ("#111111", "#222222")
    )
    zero, top = 180, 8  # the axis' ends, in pixels from above
    assert below == pytest.approx(zero - (zero - top) * 1 / 4)
    assert above == pytest.approx(zero - (zero - top) * 3 / 4)


def test_a_gap_in_the_data_is_a_gap_in_the_line() -> None:
    line = Line("a", _curve((0, 1), (10, 1), (90, 1), (100, 1)), "#111111", "short")
    drawn = chart.lines([line], Look("short", 0, 2, False, ()), FRAME)
    found = re.search(r'd="([^"]+)" fill="none" stroke="#111111"', drawn)
    assert found and found[1].count("M") == 2


def test_a_heatmap_shows_what_lies_between_two_bounds() -> None:
    buckets = [
        _curve((50, 3), le="1"),
        _curve((50, 3), le="2"),
        _curve((50, 7), le="+Inf"),
    ]
    drawn = chart.heatmap(buckets, "s", FRAME)
    shades = re.findall(r'fill-opacity="([\d.]+)"', drawn)
    assert len(shades) == 2, "nothing lies between 1 and 2"
    assert max(map(float, shades)) == 1
    assert ">more<" in drawn
