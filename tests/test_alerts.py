"""The alerts: as committed, sound, each with a runbook, a panel and unit tests of Prometheus."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tailscope.alerts import thresholds
from tailscope.alerts.groups import groups
from tailscope.alerts.model import Alert, AlertError, PanelLink, Severity
from tailscope.cli import main
from tests import boards
from tests.expression import faults, labels_of, nodes
from tests.tools import ROOT, tool

RULES = sorted((ROOT / "alerts" / "rules").glob("*.yml"))
CASES = ROOT / "tests" / "rules"
RUNBOOKS = ROOT / "docs" / "runbooks"

ALERTS = [alert for group in groups() for alert in group.alerts]
RECORDED = {
    recording.name: ("job", "instance", "server", "model", "tenant")
    for group in groups()
    for recording in group.recordings
}
EACH = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def build(*flags: str) -> int:
    return main(["alerts", "build", *flags])


def test_the_committed_rules_are_what_the_code_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert build("--check", "--output", str(ROOT / "alerts" / "rules")) == 0, (
        capsys.readouterr().out
    )


def test_a_check_tells_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build("--output", str(tmp_path)) == 0
    rules = tmp_path / "tailscope-queue.yml"
    rules.write_text(rules.read_text().replace("for: 3m", "for: 3h"))
    capsys.readouterr()
    assert build("--check", "--output", str(tmp_path)) == 1
    out = capsys.readouterr().out
    assert "-    for: 3h" in out
    assert "+    for: 3m" in out


def test_links_go_where_they_are_told(tmp_path: Path) -> None:
    flags = ["--grafana-url", "https://g.example/", "--runbook-url", "https://w.example/runbooks"]
    assert build("--output", str(tmp_path), *flags) == 0
    for alert in ALERTS:
        notes = _rule(tmp_path, alert)["annotations"]
        assert notes["runbook_url"] == f"https://w.example/runbooks/{alert.name}.md"
        assert notes["dashboard_url"].startswith(f"https://g.example/d/{alert.panel.board}?")


def _rule(directory: Path, alert: Alert) -> Any:
    for path in directory.glob("*.yml"):
        for rule in yaml.safe_load(path.read_text())["groups"][0]["rules"]:
            if rule.get("alert") == alert.name:
                return rule
    raise AssertionError(alert.name)


def test_prometheus_takes_the_rules() -> None:
    ran = subprocess.run(
        [tool("promtool"), "check", "rules", *RULES], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yml")), ids=lambda path: path.stem)
def test_the_rules_do_what_their_cases_say(path: Path) -> None:
    ran = subprocess.run([tool("promtool"), "test", "rules", path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@EACH
def test_its_cases_fire_rest_resolve_and_know_absence(alert: Alert) -> None:
    groups_of_cases = yaml.safe_load((CASES / f"{alert.name}.test.yml").read_text())["tests"]
    main_case, absence = groups_of_cases[0], groups_of_cases[-1]
    fired = [
        bool(case["exp_alerts"])
        for case in main_case["alert_rule_test"]
        if case["alertname"] == alert.name
    ]
    assert fired == [False, True, False], "rests, fires, resolves"
    assert absence["input_series"] == []
    assert absence["alert_rule_test"][0]["alertname"] == alert.name
    # What does not fire beside it: another server, source or exporter with something near.
    assert len(main_case["input_series"]) > 1 or not alert.labels


@EACH
def test_its_expression_is_sound(alert: Alert) -> None:
    assert faults(alert.expr, RECORDED) == []


@EACH
def test_its_labels_are_those_of_its_series(alert: Alert) -> None:
    """The links and texts use them, so they must be there."""
    case = yaml.safe_load((CASES / f"{alert.name}.test.yml").read_text())["tests"][0]
    for expected in case["alert_rule_test"][1]["exp_alerts"]:
        assert set(expected["exp_labels"]) == {*alert.labels, "severity", "cause"}


@EACH
def test_its_runbook_says_how_to_go_on(alert: Alert) -> None:
    text = (RUNBOOKS / f"{alert.name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {alert.name}\n")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["What it means", "How to confirm", "What to do", "How to silence"]
    assert re.search(r"^1\. ", text, re.MULTILINE), "fixes in order"
    assert f'alertname="{alert.name}"' in text


def test_no_runbook_is_left_over() -> None:
    names = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert names == {alert.name for alert in ALERTS}
    assert {path.name for path in CASES.glob("*.yml")} == {f"{n}.test.yml" for n in names}


@EACH
def test_its_panel_is_on_its_board(alert: Alert) -> None:
    board = boards.load(ROOT / "dashboards" / "json" / f"{alert.panel.board}.json")
    panel = {p["id"]: p for p in boards.panels(board)}[alert.panel.panel]
    variables = {variable["name"] for variable in board["templating"]["list"]}
    link = _rule(ROOT / "alerts" / "rules", alert)["annotations"]["dashboard_url"]
    assert set(re.findall(r"var-(\w+)=", link)) <= variables
    assert panel["targets"]


def test_the_readme_lists_every_alert() -> None:
    text = (ROOT / "alerts" / "README.md").read_text(encoding="utf-8")
    for alert in ALERTS:
        assert re.search(rf"`{alert.name}`.*\| {alert.severity} \|", text), alert.name


def test_every_threshold_is_used_and_has_a_reason() -> None:
    code = "".join(p.read_text() for p in (ROOT / "alerts/tailscope/alerts/groups").glob("*.py"))
    for name, value in vars(thresholds).items():
        if isinstance(value, thresholds.Threshold):
            assert f"thresholds.{name}" in code
            assert len(value.why) > 20


def test_numbers_in_expressions_are_thresholds() -> None:
    known = {v.value for v in vars(thresholds).values() if isinstance(v, thresholds.Threshold)}
    for alert in ALERTS:
        for found, _ in nodes(promql_parser.parse(alert.expr)):
            if type(found).__name__ == "NumberLiteral":
                assert found.val in known | {0, 1}, f"{alert.name}: {found.val}"


VALID = Alert(
    name="TailscopeTest",
    severity=Severity.INFO,
    cause="test",
    expr="up",
    lasts="1m",
    labels=("job",),
    summary="{{ .Labels.job }}",
    description="text",
    panel=PanelLink("board", 1),
)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "QueueSaturated"},
        {"cause": "Two Words"},
        {"lasts": "soon"},
        {"lingers": "a while"},
        {"summary": "{{ .Labels.server }}"},
    ],
    ids=str,
)
def test_an_alert_that_contradicts_itself_cannot_be_written(change: dict[str, Any]) -> None:
    with pytest.raises(AlertError):
        dataclasses.replace(VALID, **change)


def test_a_recording_keeps_the_labels_that_are_asked_of_it() -> None:
    for name, labels in RECORDED.items():
        assert labels_of(name, RECORDED) == labels
        expr = next(r.expr for g in groups() for r in g.recordings if r.name == name)
        assert faults(expr) == []
        assert f"sum by ({', '.join(labels)})" in expr
