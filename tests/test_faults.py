"""Every fault fires its alerts and no others; a healthy hour and an idle night fire none."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tailscope.alerts.groups import groups
from tests.counts import COUNTS
from tests.faults import ABSENT, FAULTS, QUICK, SLOW, SLOW_FAULTS, Course, Fault, series
from tests.tools import ROOT, tool

RULES = sorted((ROOT / "alerts" / "rules").glob("*.yml"))
OF_NO_MACHINE = {"ExporterAbsent": ABSENT.name, "TimeoutLayers": "timeouts contradict"}
"""Alerts without an instance, and whose fault they are."""

Fired = Mapping[str, frozenset[str]]


def _fleet(faults: Sequence[Fault], course: Course, *, target: bool = True) -> dict[str, Any]:
    """A test of rules that asks which alerts fired while the faults lasted."""
    lasted = course.fault * course.minutes
    fired = f'last_over_time(ALERTS{{alertstate="firing"}}[{lasted}m])'
    return {
        "interval": f"{course.minutes}m",
        "input_series": [
            {"series": name, "values": values}
            for fault in faults
            for name, values in series(fault, course, target=target)
        ],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname, instance) ({fired})",
                "eval_time": f"{course.end - course.minutes}m",
                "exp_samples": [{"labels": "nothing", "value": 0}],
            }
        ],
    }


def _run(directory: Path, fleet: dict[str, Any]) -> Fired:
    """Alerts that fired by machine, as Prometheus' own rule engine says."""
    path = directory / "fleet.yml"
    text = {
        "rule_files": [str(rules) for rules in RULES],
        "evaluation_interval": "10m" if fleet["interval"] == "10m" else "3m",
        "tests": [fleet],
    }
    path.write_text(json.dumps(text), encoding="utf-8")  # which is YAML too, and quick to write
    ran = subprocess.run([tool("promtool"), "test", "rules", path], capture_output=True, text=True)
    said = ran.stdout + ran.stderr
    assert "got:" in said, said[-2000:]
    found: dict[str, set[str]] = {}
    for labels in re.findall(r"\{(alertname=[^}]*)\}", said.split("got:")[1]):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = pairs["alertname"].removeprefix("Tailscope")
        found.setdefault(pairs.get("instance") or OF_NO_MACHINE[name], set()).add(name)
    return {machine: frozenset(names) for machine, names in found.items()}


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> Fired:
    directory = tmp_path_factory.mktemp("faults")
    return {
        **_run(directory, _fleet(FAULTS, QUICK)),
        **_run(directory, _fleet(SLOW_FAULTS, SLOW)),
        **_run(directory, _fleet([ABSENT], QUICK, target=False)),
    }


EVERY = (*FAULTS, *SLOW_FAULTS, ABSENT)


@pytest.mark.parametrize("fault", EVERY, ids=lambda fault: fault.name)
def test_a_fault_fires_its_alerts_and_no_others(fault: Fault, fired: Fired) -> None:
    assert fired.get(fault.name, frozenset()) == fault.alerts
    COUNTS["faults"] += 1


def test_every_alert_has_a_fault_that_fires_it() -> None:
    named = {f"Tailscope{name}" for fault in EVERY for name in fault.alerts}
    assert named == {alert.name for group in groups() for alert in group.alerts}
