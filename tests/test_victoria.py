"""VictoriaMetrics gives the boards and the alerts the same numbers as Prometheus."""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailscope.alerts.groups import groups
from tests import boards
from tests.counts import COUNTS
from tests.process import free, until
from tests.prometheus import Prometheus, backfill, running
from tests.synthetic import openmetrics
from tests.tools import tool

WITHIN = 0.01
START, COUNT, STEP = 1_760_000_000, 100, 15
END = START + (COUNT - 1) * STEP
_PATIENCE = 60.0

UNLIKE: Mapping[str, str] = {}
"""Titles of queries that VictoriaMetrics answers otherwise, and why."""


@contextmanager
def _victoria(directory: Path, lines: list[str]) -> Iterator[Prometheus]:
    """Run a VictoriaMetrics that holds the lines; it answers as a Prometheus does."""
    address = str(free())
    process = subprocess.Popen(
        [
            tool("victoria-metrics"),
            *(f"-storageDataPath={directory}", f"-httpListenAddr={address}"),
            *("-retentionPeriod=100y", "-search.latencyOffset=0s", "-search.disableCache"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = Prometheus(address)
    try:
        _wait(server, process)
        # The times of OpenMetrics are seconds, those of this import milliseconds.
        text = "\n".join(f"{line}000" for line in lines if not line.startswith("#"))
        for path, body in (("api/v1/import/prometheus", text), ("internal/force_flush", "")):
            urllib.request.urlopen(f"{server.url}/{path}", body.encode() or None, timeout=_PATIENCE)
        yield server
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def _wait(server: Prometheus, process: subprocess.Popen[bytes]) -> None:
    def healthy() -> bool:
        assert process.poll() is None, "VictoriaMetrics did not start"
        try:
            urllib.request.urlopen(f"{server.url}/health", timeout=5)
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    until(healthy, "VictoriaMetrics answers", _PATIENCE)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Prometheus]]:
    """A Prometheus and a VictoriaMetrics with the same series."""
    directory = tmp_path_factory.mktemp("steady")
    lines = list(openmetrics(START, COUNT, STEP, steady=True))
    text = directory / "series.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    backfill(text, directory / "prometheus")
    with (
        running(directory / "prometheus") as prometheus,
        _victoria(directory / "victoria", lines) as victoria,
    ):
        yield prometheus, victoria


def _values(found: list[Any]) -> dict[tuple[tuple[str, str], ...], float]:
    """Values by labels. VictoriaMetrics keeps the name of a metric where Prometheus drops it."""
    return {
        tuple(sorted((k, v) for k, v in one["metric"].items() if k != "__name__")): float(
            one["value"][1]
        )
        for one in found
    }


def _differences(title: str, expr: str, both: tuple[Prometheus, Prometheus]) -> Iterator[str]:
    ours, theirs = (_values(server.at(expr, END)) for server in both)
    if ours.keys() != theirs.keys():
        yield f"{title}: {sorted(ours)} and {sorted(theirs)}: {expr}"
        return
    for labels, value in ours.items():
        if abs(value - theirs[labels]) > WITHIN * max(abs(value), 1e-9):
            yield f"{title}: {value} and {theirs[labels]}: {expr}"


@pytest.mark.parametrize("path", boards.BOARDS, ids=lambda path: path.stem)
def test_a_board_shows_the_same(path: Path, both: tuple[Prometheus, Prometheus]) -> None:
    asked = [one for one in boards.expressions(boards.load(path)) if one.title not in UNLIKE]
    found = [line for title, expr, _ in asked for line in _differences(title, expr, both)]
    assert found == []
    COUNTS["expressions in VictoriaMetrics"] += len(asked)


def test_alerts_compare_the_same_numbers(both: tuple[Prometheus, Prometheus]) -> None:
    """Without their limits, so that there are numbers; each line of an alert is a condition."""
    found, compared = [], 0
    for alert in (alert for group in groups() for alert in group.alerts):
        for condition in re.split(r"\n(?:and|or|unless)(?: on \([^)]*\))? ", alert.expr):
            value = re.sub(r"\s+[<>]=?\s+[\d.]+\)*$", "", condition)
            expr = value + ")" * (value.count("(") - value.count(")"))
            expr = "(" * (expr.count(")") - expr.count("(")) + expr
            compared += len(both[0].at(expr, END))
            found += list(_differences(alert.name, expr, both))
    assert found == []
    assert compared > 50
