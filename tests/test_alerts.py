"""The alerts: as committed, sound, each with a runbook, a panel and unit tests of Prometheus."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tailscope.alerts import thresholds
from tailscope.alerts.grafana import uid
from tailscope.alerts.groups import groups
from tailscope.alerts.model import Alert, AlertError, PanelLink, Recording, Severity
from tailscope.cli import main
from tests import boards
from tests.counts import COUNTS
from tests.expression import faults, labels_of, nodes, selectors
from tests.tools import ROOT, tool

RULES = sorted((ROOT / "alerts" / "rules").glob("*.yml"))
CASES = ROOT / "tests" / "rules"
RUNBOOKS = ROOT / "docs" / "runbooks"

ALERTS = [alert for group in groups() for alert in group.alerts]
RECORDED = {
    recording.name: (*recording.by, *recording.labels)
    for group in groups()
    for recording in group.recordings
}
LIMITS = thresholds.limits()
EACH = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def build(*flags: str) -> int:
    return main(["alerts", "build", *flags])


def test_the_committed_rules_are_what_the_code_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert build("--check", "--output", str(ROOT / "alerts")) == 0, capsys.readouterr().out


def test_a_check_tells_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build("--output", str(tmp_path)) == 0
    rules = tmp_path / "rules" / "tailscope-queue.yml"
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
        notes = _rule(tmp_path / "rules", alert)["annotations"]
        assert notes["runbook_url"] == f"https://w.example/runbooks/{alert.name}.md"
        assert notes["dashboard_url"].startswith(f"https://g.example/d/{alert.panel.board}?")


@cache
def _rules(directory: Path) -> dict[str, Any]:
    """Alert rules of a folder by name."""
    return {
        rule["alert"]: rule
        for path in directory.glob("*.yml")
        for rule in yaml.safe_load(path.read_text())["groups"][0]["rules"]
        if "alert" in rule
    }


def _rule(directory: Path, alert: Alert) -> Any:
    return _rules(directory)[alert.name]


def test_prometheus_takes_the_rules() -> None:
    ran = subprocess.run(
        [tool("promtool"), "check", "rules", *RULES], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yml")), ids=lambda path: path.stem)
def test_the_rules_do_what_their_cases_say(path: Path) -> None:
    ran = subprocess.run([tool("promtool"), "test", "rules", path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    asked = yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
    COUNTS["unit cases of alerts"] += sum(len(each["alert_rule_test"]) for each in asked)


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
    COUNTS["alerts"] += 1


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


@cache
def _board(uid: str) -> Any:
    return boards.load(ROOT / "dashboards" / "json" / f"{uid}.json")


@EACH
def test_its_panel_is_on_its_board(alert: Alert) -> None:
    board = _board(alert.panel.board)
    panel = {p["id"]: p for p in boards.panels(board)}[alert.panel.panel]
    variables = {variable["name"] for variable in board["templating"]["list"]}
    link = _rule(ROOT / "alerts" / "rules", alert)["annotations"]["dashboard_url"]
    assert set(re.findall(r"var-(\w+)=", link)) <= variables
    assert panel["targets"]


OF_RECORDS = re.compile(r"\btailscope_(request|tenant)")
"""Metrics that need request records, and what is recorded of them."""
SETTINGS = {"TailscopeTimeoutLayers": "compares settings; the panel shows what they cut off"}


@EACH
def test_an_alert_without_records_leads_to_a_panel_without_them(alert: Alert) -> None:
    found = boards.panels(_board(alert.panel.board))
    panel = next(each for each in found if each["id"] == alert.panel.panel)
    if alert.name not in SETTINGS and not OF_RECORDS.search(alert.expr):
        assert not all(OF_RECORDS.search(target["expr"]) for target in panel["targets"])


def test_the_readme_lists_every_alert() -> None:
    text = (ROOT / "alerts" / "README.md").read_text(encoding="utf-8")
    for alert in ALERTS:
        assert re.search(rf"`{alert.name}`.*\| {alert.severity} \|", text), alert.name


def test_every_threshold_is_used_and_has_a_reason() -> None:
    code = "".join(p.read_text() for p in (ROOT / "alerts/tailscope/alerts/groups").glob("*.py"))
    for field in dataclasses.fields(thresholds.Limits):
        value = getattr(LIMITS, field.name)
        if isinstance(value, thresholds.Threshold):
            assert f"limits.{field.name}" in code
            assert len(value.why) > 20


def test_what_is_said_in_per_cent_is_a_share() -> None:
    """So that nobody's 95 stands for 95 %; what counts more than once a request may go beyond."""
    code = "".join(p.read_text() for p in (ROOT / "alerts/tailscope/alerts/groups").glob("*.py"))
    said = set(re.findall(r"limits\.(\w+)\.percent", code))
    assert said - thresholds.SHARES == {"queue_depth", "preemptions", "preemption_storm", "retries"}
    assert all(getattr(LIMITS, name).value <= 1 for name in thresholds.SHARES)


QUANTILES = {0.5, 0.95, 0.99}


def test_numbers_in_expressions_are_thresholds() -> None:
    known = thresholds.numbers(LIMITS) | QUANTILES | {0, 1}
    for alert in ALERTS:
        for found, _ in nodes(promql_parser.parse(alert.expr)):
            if type(found).__name__ == "NumberLiteral":
                assert found.val in known, f"{alert.name}: {found.val}"


def test_thresholds_of_ones_own_reach_every_form(tmp_path: Path) -> None:
    ours = tmp_path / "ours.yaml"
    ours.write_text(
        "thresholds: {queue_wait: 7}\n"
        "timeouts: {client: 120, gateway: {value: 110, why: ours}}\n"
        "objectives: {first_token: {within: 5}}\n"
    )
    assert build("--output", str(tmp_path), "--thresholds", str(ours)) == 0
    for form in ("rules/tailscope-queue.yml", "operator/tailscope.yaml", "grafana/tailscope.yaml"):
        text = (tmp_path / form).read_text()
        assert "> 7)" in text and "(limit 7 s)" in text, form
    recorded = (tmp_path / "recordings" / "tailscope-recordings.yml").read_text()
    assert "vector(120)" in recorded and "vector(110)" in recorded and "vector(580)" in recorded
    bounds = {series.matchers.matchers[0].value for series in _selectors(recorded, "_bucket")}
    assert bounds == {r"5(\.0)?", r"30(\.0)?"}


def _selectors(rules: str, suffix: str) -> list[Any]:
    """Selectors of the rules on series whose name ends so."""
    return [
        series
        for group in yaml.safe_load(rules)["groups"]
        for rule in group["rules"]
        for series in selectors(rule["expr"])
        if series.name.endswith(suffix)
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("thresholds: {queue_weight: 1}", "there is no entry of thresholds 'queue_weight'"),
        ("threshold: {}", "there is no group 'threshold'"),
        ("thresholds: {queue_wait: soon}", "thresholds.queue_wait: value is 'soon'; give a number"),
        ("thresholds: {queue_wait: {limit: 2}}", "no key of thresholds.queue_wait 'limit'"),
        ("thresholds: {queue_wait: }", "thresholds.queue_wait: value is None; give a number"),
        ("thresholds: {queue_wait: -1}", "thresholds.queue_wait is -1; give a number that is 0 or"),
        ("thresholds: {queue_wait: .nan}", "thresholds.queue_wait is nan; give a number"),
        ("timeouts: {client: .inf}", "timeouts.client is inf; give a number"),
        ("thresholds: {cache_full: 95}", "thresholds.cache_full is 95, but it is a share"),
        ("thresholds: [1]", "thresholds holds [1]"),
        ("objectives: {first_token: {within: 7}}", "within is 7 s, which is no bound"),
        ("objectives: {first_token: {share: 99}}", "share is 99; give a part between 0 and 1"),
        ("a: [", "while parsing"),
    ],
)
def test_a_file_of_thresholds_that_is_wrong_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    ours = tmp_path / "ours.yaml"
    ours.write_text(text)
    assert build("--output", str(tmp_path), "--thresholds", str(ours)) == 2
    assert said in capsys.readouterr().err


# The other forms


def test_the_operators_form_holds_the_same_rules() -> None:
    form = yaml.safe_load((ROOT / "alerts/operator/tailscope.yaml").read_text())
    assert (form["apiVersion"], form["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    groups_of_files = [
        group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert form["spec"]["groups"] == groups_of_files


def test_the_recordings_alone_are_those_of_the_rules() -> None:
    path = ROOT / "alerts/recordings/tailscope-recordings.yml"
    ran = subprocess.run([tool("promtool"), "check", "rules", path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    alone = [
        rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]
    ]
    of_files = [
        rule
        for file in RULES
        for rule in yaml.safe_load(file.read_text())["groups"][0]["rules"]
        if "record" in rule
    ]
    assert alone == of_files


GRAFANA = yaml.safe_load((ROOT / "alerts/grafana/tailscope.yaml").read_text())
DURATION = re.compile(r"(\d+[smhd])+")


def test_grafanas_form_is_what_its_provisioner_takes() -> None:
    """Checked by the structs of pkg/services/provisioning/alerting/rules_types.go."""
    assert GRAFANA["apiVersion"] == 1
    rules = [rule for group in GRAFANA["groups"] for rule in group["rules"]]
    for group in GRAFANA["groups"]:
        assert set(group) == {"orgId", "name", "folder", "interval", "rules"}
        assert group["interval"] == "1m", "a multiple of 10 s"
    assert {rule["title"] for rule in rules} == {alert.name for alert in ALERTS}
    assert len({rule["uid"] for rule in rules}) == len(rules) == len(ALERTS)
    for rule in rules:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", rule["uid"]), rule["uid"]
        assert DURATION.fullmatch(rule["for"]) and rule["for"] != "0m", "0s is never left out"
        assert rule["noDataState"] in ("OK", "NoData", "Alerting", "KeepLast")
        assert rule["execErrState"] in ("OK", "Error", "Alerting", "KeepLast")
        assert [query["refId"] for query in rule["data"]] == ["A", "B"]
        assert rule["condition"] == "B", "apart from the query, or noDataState is ignored"
        assert not any("$" in value for value in rule["labels"].values()), "eaten"
        text = yaml.safe_dump(rule["data"])
        assert "$__" not in text, "macros of panels mean nothing here"
        for query in rule["data"]:
            assert set(query) == {"refId", "relativeTimeRange", "datasourceUid", "model"}


@EACH
def test_grafanas_rule_asks_the_same_and_links_to_the_same_panel(alert: Alert) -> None:
    rule = next(
        rule for group in GRAFANA["groups"] for rule in group["rules"] if rule["uid"] == uid(alert)
    )
    assert rule["data"][0]["model"]["expr"] == alert.expr
    assert (rule["dashboardUid"], rule["panelId"]) == (alert.panel.board, alert.panel.panel)
    notes = rule["annotations"]
    assert notes["__panelId__"] == str(alert.panel.panel)
    assert ".Value" not in notes["description"].replace("$values.A.Value", "")
    assert notes["description"].count(".Labels.") == alert.description.count(".Labels.")


# Routes

ROUTES = ROOT / "alerts" / "alertmanager" / "alertmanager.yml"


def test_alertmanager_takes_the_example() -> None:
    ran = subprocess.run([tool("amtool"), "check-config", ROUTES], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("severity", "receiver"), [("critical", "pager"), ("warning", "chat"), ("info", "board")]
)
def test_the_example_routes_by_severity(severity: str, receiver: str) -> None:
    ran = subprocess.run(
        [
            *(tool("amtool"), "config", "routes", "test", f"--config.file={ROUTES}"),
            *(f"--verify.receivers={receiver}", "alertname=TailscopeTest", f"severity={severity}"),
        ],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_example_inhibits_by_alerts_causes_and_labels_that_exist() -> None:
    causes = {alert.cause for alert in ALERTS}
    for rule in yaml.safe_load(ROUTES.read_text())["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            assert any(_matches(alert, matcher) for alert in ALERTS), f"{matcher} matches nothing"
            if matcher.startswith("cause=~"):
                assert set(matcher[8:-1].split("|")) <= causes, matcher
        sources = [
            alert
            for alert in ALERTS
            if all(_matches(alert, matcher) for matcher in rule["source_matchers"])
        ]
        assert sources
        for alert in sources:
            assert set(rule["equal"]) <= set(alert.labels), f"{alert.name} lacks {rule['equal']}"


def _matches(alert: Alert, matcher: str) -> bool:
    found = re.fullmatch(r'(\w+)(=~|!=|=)"(.+)"', matcher)
    assert found, matcher
    label, operator, value = found.groups()
    own = {"alertname": alert.name, "cause": alert.cause, "severity": alert.severity}[label]
    hit = bool(re.fullmatch(value, own)) if operator == "=~" else own == value
    return hit != (operator == "!=")


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


RECORDINGS = [recording for group in groups() for recording in group.recordings]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: f"{one.name} {dict(one.labels)}")
def test_a_recording_keeps_the_labels_that_are_asked_of_it(recording: Recording) -> None:
    assert labels_of(recording.name, RECORDED) == (*recording.by, *recording.labels)
    assert faults(recording.expr, RECORDED) == []
    if recording.by:
        assert f"by ({', '.join(recording.by)})" in recording.expr
