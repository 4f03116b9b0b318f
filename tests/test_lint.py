"""The boards by the rules of dashboard-linter, and each rule by a board that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import boards, linter
from tests.tools import ROOT

SAMPLE = ROOT / "dashboards" / "json" / "tailscope-queue.json"

# Rules that a board may break, and why. None does.
EXCLUDED: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("rule", linter.RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", boards.BOARDS, ids=lambda path: path.stem)
def test_a_board_keeps_a_rule(path: Path, rule: linter.Rule) -> None:
    if (path.stem, rule.__name__) not in EXCLUDED:
        assert list(rule(boards.load(path))) == []


def _panel(board: Any) -> Any:
    return next(boards.panels(board))


def _variable(board: Any, name: str) -> Any:
    return next(each for each in board["templating"]["list"] if each["name"] == name)


def _expr(change: Callable[[str], str]) -> Callable[[Any], None]:
    def break_it(board: Any) -> None:
        target = _panel(board)["targets"][0]
        target["expr"] = change(target["expr"])

    return break_it


def _without(name: str) -> Callable[[Any], None]:
    return lambda board: board["templating"]["list"].remove(_variable(board, name))


BREAKS: dict[linter.Rule, Callable[[Any], Any]] = {
    linter.template_datasource: _without("datasource"),
    linter.template_job: _without("job"),
    linter.template_instance: lambda b: _variable(b, "instance").update(multi=False),
    linter.template_label_promql: lambda b: _variable(b, "job")["query"].update(
        query="label_values(up{, job)"
    ),
    linter.template_reload: lambda b: _variable(b, "job").update(refresh=1),
    linter.panel_datasource: lambda b: _panel(b)["targets"][0].update(
        datasource={"type": "prometheus", "uid": "ddyfngn31dg5cf"}
    ),
    linter.panel_texts: lambda b: _panel(b).update(description=""),
    linter.panel_units: lambda b: _panel(b)["fieldConfig"]["defaults"].pop("unit"),
    linter.panel_targets: lambda b: _panel(b).update(targets=[]),
    linter.target_logql: lambda b: _panel(b)["targets"][0]["datasource"].update(type="loki"),
    linter.target_logql_auto: _expr(lambda expr: expr.replace("$__rate_interval", "$__auto")),
    linter.target_promql: _expr(lambda expr: expr + ")"),
    linter.target_rate_interval: _expr(lambda expr: expr.replace("$__rate_interval", "5m")),
    linter.target_job: _expr(lambda expr: expr.replace('job=~"$job", ', "")),
    linter.target_instance: _expr(lambda expr: expr.replace("$instance", "a:9836")),
    linter.target_counter: _expr(
        lambda expr: expr.replace("rate(", "(").replace("[$__rate_interval]", "")
    ),
    linter.uneditable: lambda b: b.update(editable=True),
}


@pytest.mark.parametrize("rule", linter.RULES, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_breaks_it(rule: linter.Rule) -> None:
    board = boards.load(SAMPLE)
    assert list(rule(board)) == []
    BREAKS[rule](board)
    assert list(rule(board)) != []
