"""Every fault fires its alerts and no others; a healthy hour and an idle night fire none.

The series of the fleet are loaded into a real Prometheus, the recording rules are evaluated over
them by promtool, and then every alert at every minute. That a rule fires, resolves and lingers
when it should is tested with Prometheus' own rule engine in ``tests/rules``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailscope.alerts.groups import groups
from tailscope.alerts.model import Alert
from tests import boards
from tests.counts import COUNTS
from tests.faults import ABSENT, FAULTS, QUICK, SLOW, SLOW_FAULTS, Course, Fault, openmetrics
from tests.prometheus import Prometheus, backfill, running
from tests.tools import ROOT, tool

ALERTS = tuple(alert for group in groups() for alert in group.alerts)
RECORDINGS = ROOT / "alerts" / "recordings" / "tailscope-recordings.yml"
OF_NO_MACHINE = {"ExporterAbsent": ABSENT.name, "TimeoutLayers": "timeouts contradict"}
"""Alerts without an instance, and whose fault they are."""

_MARKED = "90s"
"""A failed scrape marks its series as ended at once; a file of OpenMetrics cannot."""

DAY = 86400
START = 1_760_000_000 // DAY * DAY


@dataclass(frozen=True, slots=True)
class Period:
    """A time at which a fleet has its faults; none sees the one before, whatever its windows."""

    faults: Sequence[Fault]
    course: Course
    start: int
    target: bool = True

    @property
    def began(self) -> int:
        """First moment of the faults."""
        return self.start + self.course.usual * 60 * self.course.minutes

    @property
    def end(self) -> int:
        """Last moment."""
        return self.start + (self.course.end - self.course.minutes) * 60


PERIODS = (
    Period(FAULTS, QUICK, START),
    Period(SLOW_FAULTS, SLOW, START + 10 * DAY),
    Period([ABSENT], QUICK, START + 20 * DAY, target=False),
)
EVERY = tuple(fault for period in PERIODS for fault in period.faults)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with all periods, and with what the recording rules make of them."""
    directory = tmp_path_factory.mktemp("faults")
    lines = [
        line
        for period in PERIODS
        for line in openmetrics(period.faults, period.course, period.start, target=period.target)
    ]
    text = directory / "series.txt"
    text.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
    data = directory / "data"
    backfill(text, data)
    for number, rules in enumerate(_levels()):
        (directory / f"rules{number}.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
        # A Prometheus finds new blocks when it starts.
        with running(data, lookback=_MARKED) as server:
            for period in PERIODS:
                _record(directory, f"rules{number}.yml", server, period)
    with running(data, lookback=_MARKED) as server:
        yield server


def _levels() -> list[Any]:
    """The recording rules that need none, and those that need them."""
    rules = [
        rule
        for group in yaml.safe_load(RECORDINGS.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]
    names = {rule["record"] for rule in rules}
    levels: list[list[Any]] = [[], []]
    for rule in rules:
        levels[any(name in rule["expr"] for name in names)].append(rule)
    return [{"groups": [{"name": "recordings", "rules": level}]} for level in levels]


def _record(directory: Path, rules: str, server: Prometheus, period: Period) -> None:
    command = [tool("promtool"), "tsdb", "create-blocks-from", "rules", f"--url={server.url}"]
    command += [f"--start={period.start}", f"--end={period.end}", "--eval-interval=60s"]
    command += ["--max-block-duration=1000h"]  # else each rule makes a block for every 2 hours
    # Moments are shifted by the name of the file: as it stands here it is always the same.
    ran = subprocess.run(
        [*command, "--output-dir=data", rules], cwd=directory, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


Fired = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Alerts by machine, each with the labels of one that fired."""


@pytest.fixture(scope="module")
def fired(fleet: Prometheus) -> Fired:
    found: dict[str, dict[str, Mapping[str, str]]] = {}
    for period in PERIODS:
        step = 60 * period.course.minutes
        for alert in ALERTS:
            for series in fleet.over(alert.expr, period.began, period.end, step):
                if _lasted(series["values"], step) >= _seconds(alert.lasts):
                    name = alert.name.removeprefix("Tailscope")
                    labels = series["metric"]
                    machine = labels.get("instance") or OF_NO_MACHINE[name]
                    found.setdefault(machine, {})[name] = labels
    return found


def _lasted(values: Sequence[tuple[float, str]], step: int) -> float:
    """The longest time without a gap."""
    longest, began, last = 0.0, values[0][0], values[0][0]
    for at, _ in values:
        began = at if at - last > step else began
        longest, last = max(longest, at - began), at
    return longest


def _seconds(duration: str) -> int:
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)(\w)", duration))


@pytest.mark.parametrize("fault", EVERY, ids=lambda fault: fault.name)
def test_a_fault_fires_its_alerts_and_no_others(fault: Fault, fired: Fired) -> None:
    assert set(fired.get(fault.name, {})) == fault.alerts
    COUNTS["faults"] += 1


def test_every_alert_has_a_fault_that_fires_it() -> None:
    named = {f"Tailscope{name}" for fault in EVERY for name in fault.alerts}
    assert named == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_panel_of_an_alert_shows_it(alert: Alert, fleet: Prometheus, fired: Fired) -> None:
    """With the alert's own labels chosen, as its link does, the panel has data at that time."""
    name = alert.name.removeprefix("Tailscope")
    period, labels = next(
        (period, fired[fault.name][name])
        for period in PERIODS
        for fault in period.faults
        if name in fault.alerts
    )
    chosen = {
        **boards.EVERYTHING,
        "__rate_interval": f"{5 * period.course.minutes}m",
        "__range": "1h",
        **labels,
    }
    board = boards.load(ROOT / "dashboards" / "json" / f"{alert.panel.board}.json")
    panel = next(each for each in boards.panels(board) if each["id"] == alert.panel.panel)
    shown = [
        series
        for target in panel["targets"]
        for series in fleet.over(
            boards.substitute(target["expr"], chosen), period.began, period.end, 600
        )
    ]
    assert shown
