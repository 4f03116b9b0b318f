"""The boards: as committed, without the usual mistakes, and with data in every panel."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from grafanalib import core

from tailscope.app.timespan import instant
from tailscope.catalogue import METRICS
from tailscope.catalogue.promql import ALERTS
from tailscope.cli import main
from tailscope.dashboards.boards import boards
from tailscope.dashboards.grid import pack
from tailscope.dashboards.links import APP
from tailscope.dashboards.panels import timeseries
from tailscope.dashboards.query import NOW, Series
from tailscope.dashboards.style import SCHEMA_VERSION, TAG, Unit
from tests import boards as asked
from tests.counts import COUNTS
from tests.expression import faults, labels_of, metrics_of, selectors
from tests.prometheus import Prometheus, backfill, running
from tests.synthetic import still
from tests.tools import ROOT

BOARDS = pytest.mark.parametrize("path", asked.BOARDS, ids=lambda path: path.stem)
SCOPE = ("job", "instance", "model", "server")
PANEL_TYPES = {"stat", "timeseries", "heatmap", "table"}

EMPTY_IS_RIGHT: Mapping[str, str] = {
    "Configuration changes": "nothing changes in these series",
    "Firing alerts": "no rules are loaded",
}
"""Titles of queries that have no data here, and why that is right."""

MAY_BE_NEGATIVE = {
    "Share now less share before",
    "First token within ${first:text}, change in points",
    "Degrees left to the slowdown",
    "Computed and cached tokens",
}
"""Titles of panels that show a difference."""


def build(*flags: str) -> int:
    return main(["dashboards", "build", *flags])


def test_the_committed_boards_are_what_the_code_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert build("--check", "--output", str(ROOT / "dashboards" / "json")) == 0, (
        capsys.readouterr().out
    )


def test_a_check_tells_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build("--check", "--output", str(tmp_path)) == 1
    assert "tailscope-triage.json: missing" in capsys.readouterr().out
    assert build("--output", str(tmp_path)) == 0
    assert build("--check", "--output", str(tmp_path)) == 0
    capsys.readouterr()

    board = tmp_path / "tailscope-triage.json"
    board.write_text(board.read_text().replace('"refresh": "30s"', '"refresh": "1s"'))
    (tmp_path / "old.json").write_text("{}")
    assert build("--check", "--output", str(tmp_path)) == 1
    out = capsys.readouterr().out
    assert '-  "refresh": "1s"' in out
    assert '+  "refresh": "30s"' in out
    assert "old.json: not made by this command any more" in out
    assert f"run: tailscope dashboards build --output {tmp_path}" in out


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert build("--output", str(tmp_path / "file")) == 2
    assert f"--output {tmp_path / 'file'}" in capsys.readouterr().err


def test_the_uids_are_those_that_links_go_by() -> None:
    names = [
        *("triage", "queue", "prefill", "decode", "gpu", "tenants"),
        *("compare", "exporter", "reference"),
    ]
    assert [board.uid for board in boards()] == [f"tailscope-{name}" for name in names]
    assert [board.title.split()[2] for board in boards()] == list("123456789")


@BOARDS
def test_every_expression_is_sound(path: Path) -> None:
    wrong = [
        f"{query.title}: {fault} in {query.expr}"
        for query in asked.expressions(asked.load(path))
        for fault in faults(query.expr)
    ]
    assert wrong == []


@BOARDS
def test_every_selector_follows_the_variables(path: Path) -> None:
    board = asked.load(path)
    kept = {name: f"${name}" for name in (*SCOPE, "tenant", "gpu")}
    for query in asked.expressions(board, {**asked.EVERYTHING, **kept}):
        for series in selectors(query.expr):
            given = {m.name: m.value for m in series.matchers.matchers}
            carried = labels_of(series.name, {}) or ()
            if series.name == ALERTS:
                continue
            for label in (name for name in SCOPE if name in carried):
                assert given.get(label) == f"${label}", f"{query.title}: {series.name} {label}"


@BOARDS
def test_windows_are_those_of_the_board(path: Path) -> None:
    for panel in asked.panels(asked.load(path)):
        for target in panel["targets"]:
            window = "$__range" if target["instant"] else "$__rate_interval"
            assert set(re.findall(r"\[(.+?)\]", target["expr"])) <= {window}, panel["title"]
            offsets = set(re.findall(r"offset (\S+?)\)", target["expr"]))
            assert offsets <= {"$__range", "$offset"}, panel["title"]
            # Without it $__rate_interval trusts the data source to know the scrape interval.
            assert target["interval"] == "$scrape", panel["title"]


@BOARDS
def test_every_panel_says_what_it_is(path: Path) -> None:
    for panel in asked.panels(asked.load(path)):
        title = panel["title"]
        assert panel["type"] in PANEL_TYPES, title
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title
        assert all(t["datasource"] == panel["datasource"] for t in panel["targets"]), title
        assert len(panel["description"].split(". ")) >= 2, f"{title}: what it means, what to do"
        assert "maxDataPoints" not in panel, title
        if panel["type"] == "table":
            fields = panel["fieldConfig"]["overrides"]
            named = [t["legendFormat"] for t in panel["targets"] if t["legendFormat"]]
            units = [f for f in fields if f["properties"][0]["id"] == "unit"]
            assert [f["matcher"]["options"] for f in units] == named, title
            assert all(f["properties"][0]["id"] == "links" for f in fields if f not in units)
        else:
            assert panel["fieldConfig"]["defaults"]["unit"], title


@BOARDS
def test_no_share_goes_beyond_one_and_quantiles_are_never_stacked(path: Path) -> None:
    for panel in asked.panels(asked.load(path)):
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        if custom.get("stacking", {}).get("mode") == "normal":
            assert "histogram_quantile" not in json.dumps(panel["targets"]), panel["title"]
        if panel["fieldConfig"]["defaults"].get("unit") == "percentunit":
            assert panel["fieldConfig"]["defaults"].get("max", 1) == 1, panel["title"]


def test_exemplars_are_asked_for_once_a_panel_and_first() -> None:
    found = 0
    for panel in (panel for path in asked.BOARDS for panel in asked.panels(asked.load(path))):
        flags = [target["exemplar"] for target in panel["targets"]]
        assert not any(flags[1:]), panel["title"]
        if flags[0]:
            found += 1
            assert "_bucket" in panel["targets"][0]["expr"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs), panel["title"]
    assert found > 10


@BOARDS
def test_panels_do_not_overlap_and_rows_are_in_order(path: Path) -> None:
    board = asked.load(path)
    for row in (panel for panel in board["panels"] if panel.get("panels")):
        # Closed, so nothing of it lies on the board; opened, it pushes down what is below.
        _check_places([(p["title"], p["gridPos"]) for p in [row, *row["panels"]]])
    _check_places([(p["title"], p["gridPos"]) for p in board["panels"]])


def _check_places(places: list[tuple[str, dict[str, int]]]) -> None:
    for (one, a), (other, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, f"{one} lies on {other}"
    assert all(g["x"] >= 0 and g["x"] + g["w"] <= 24 for _, g in places)
    assert [g["y"] for _, g in places] == sorted(g["y"] for _, g in places)


@BOARDS
def test_numbers_are_unique_and_belong_to_their_row(path: Path) -> None:
    row = 0
    numbers = []
    for panel in asked.load(path)["panels"]:
        numbers += [panel["id"], *(each["id"] for each in panel.get("panels", ()))]
        if panel["type"] == "row":
            row = panel["id"]
            assert row % 100 == 0
        assert row <= panel["id"] < row + 100, panel["title"]
    assert len(set(numbers)) == len(numbers)


@BOARDS
def test_the_json_is_what_grafana_10_to_13_take(path: Path) -> None:
    board = asked.load(path)
    assert board["uid"] == path.stem
    assert board["schemaVersion"] == SCHEMA_VERSION
    assert board["tags"] == [TAG]
    assert board["editable"] is False
    assert not {"__inputs", "rows", "id", "version", "gnetId", "style"} & set(board)
    link = board["links"][0]
    assert (link["tags"], link["keepTime"], link["includeVars"]) == ([TAG], True, True)
    for where, value in _values(board):
        # The base of thresholds is the only null that Grafana's types allow.
        assert value is not None or where.endswith(".steps.value"), where
        assert value != "null", where


def _values(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _values(item, f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _values(item, where)
    else:
        yield where, value


@BOARDS
def test_variables_choose_from_what_is_left(path: Path) -> None:
    variables = {v["name"]: v for v in asked.load(path)["templating"]["list"]}
    common = ["datasource", "job", "instance", "model", "server", "tenant", "scrape"]
    assert list(variables)[:7] == common
    assert list(variables)[-1] == "triage"
    text = json.dumps([asked.load(path)["panels"], asked.load(path)["links"]])
    for name in list(variables)[7:]:
        assert f"${name}" in text or f"${{{name}}}" in text, f"{name} is chosen for nothing"
    chosen: list[str] = []
    for name in ("job", "instance", "model", "server", "tenant"):
        variable = variables[name]
        assert (variable["multi"], variable["includeAll"], variable["refresh"]) == (True, True, 2)
        query = variable["query"]["query"]
        selector = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert selector and selector[2] == name, query
        if name != "server":  # an engine that is down has a server, and no model
            assert all(f'{before}=~"${before}"' in query for before in chosen), query
        chosen.append(name)


@BOARDS
def test_every_panel_has_data_and_no_nonsense(
    path: Path, prometheus_of_everything: tuple[Prometheus, int]
) -> None:
    server, end = prometheus_of_everything
    board = asked.load(path)
    shares = {
        panel["title"]
        for panel in asked.panels(board)
        if panel["fieldConfig"]["defaults"].get("unit") == "percentunit"
    }
    empty = []
    for query in asked.expressions(board):
        assert "$" not in query.expr, f"{query.title}: a variable that no board has"
        if query.instant:
            found = [[series["value"]] for series in server.at(query.expr, end)]
        else:
            found = [s["values"] for s in server.over(query.expr, end - 600, end, 15)]
        values = [float(value) for series in found for _, value in series]
        if not values:
            empty.append(query.title)
        assert all(math.isfinite(value) for value in values), query
        if query.title not in MAY_BE_NEGATIVE:
            assert all(value >= 0 for value in values), query
        if query.title in shares:
            assert all(value <= 1 for value in values), query
    assert set(empty) <= set(EMPTY_IS_RIGHT)
    COUNTS["boards"] += 1
    COUNTS["panels"] += len(list(asked.panels(board)))
    COUNTS["expressions"] += len(asked.expressions(board))


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with 5 minutes of every metric in which nothing happens."""
    directory = tmp_path_factory.mktemp("quiet")
    text = directory / "series.txt"
    text.write_text("\n".join(still(QUIET, 21, 15)) + "\n", encoding="utf-8")
    backfill(text, directory / "data")
    with running(directory / "data") as server:
        yield server


QUIET = 1_760_000_000
WINDOWS = {**asked.EVERYTHING, "__range": "2m", "offset": "2m"}


@BOARDS
def test_where_nothing_happens_a_panel_is_empty_or_has_a_number(
    path: Path, quiet: Prometheus
) -> None:
    """What is divided by no requests is nothing: neither NaN nor infinite, and not 0 either."""
    end = QUIET + 300
    for query in asked.expressions(asked.load(path), WINDOWS):
        for series in quiet.at(query.expr, end):
            assert math.isfinite(float(series["value"][1])), query
    for title in ("Time to first token", "Servers, p95 of the time to first token"):
        shown = [q for q in asked.expressions(asked.load(path), WINDOWS) if q.title == title]
        assert not any(quiet.at(query.expr, end) for query in shown), title


@BOARDS
def test_every_variable_has_values(
    path: Path, prometheus_of_everything: tuple[Prometheus, int]
) -> None:
    server, end = prometheus_of_everything
    for variable in asked.load(path)["templating"]["list"]:
        if variable["type"] == "query":
            parts = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert parts
            expr = asked.substitute(f"group by ({parts[2]}) ({parts[1]})", asked.EVERYTHING)
            found = {series["metric"].get(parts[2]) for series in server.at(expr, end)}
            assert found and None not in found, variable["name"]


def _shown(path: Path) -> set[str]:
    """Names of the metrics that a board shows."""
    return {
        metric.name
        for query in asked.expressions(asked.load(path))
        for metric in metrics_of(query.expr)
    }


def test_the_reference_board_shows_every_metric_and_no_other() -> None:
    assert _shown(ROOT / "dashboards" / "json" / "tailscope-reference.json") == set(METRICS)


def test_the_boards_for_finding_out_show_what_matters() -> None:
    """Most of the catalogue, and of the requests and the sources all of it."""
    shown: set[str] = set()
    for path in asked.BOARDS:
        if path.stem != "tailscope-reference":
            shown |= _shown(path)
    unshown = {name for name in METRICS if name not in shown}
    assert len(unshown) < len(METRICS) / 3, sorted(unshown)
    assert not [name for name in unshown if name.startswith("tailscope_re")], sorted(unshown)


def test_a_panel_refuses_exemplars_behind_its_first_series() -> None:
    p50 = Series("p50", NOW.quantile(0.5, "request_seconds"))
    p99 = Series("p99", NOW.quantile(0.99, "request_seconds"), exemplars=True)
    with pytest.raises(ValueError, match="exemplars belong to the first series"):
        timeseries(1, "Total", "What. Do.", Unit.SECONDS, p50, p99)


def test_the_grid_refuses_what_does_not_fit() -> None:
    assert [(p.x, p.y) for p in pack([(24, 1), (12, 4), (8, 8), (8, 2)], 0)] == [
        (0, 0),
        (0, 1),
        (12, 1),
        (0, 9),
    ]
    with pytest.raises(ValueError, match="25"):
        list(pack([(25, 1)], 0))


def test_grafanalib_still_needs_the_mending() -> None:
    """If this fails, grafanalib has mended itself: look at what ``legacy`` still has to do."""
    assert core.SCHEMA_VERSION == 12
    assert core.Panel().maxDataPoints == 100


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("rate(tailscope_nothing_total[5m])", "no series"),
        ('rate(tailscope_requests_total{colour="red"}[5m])', "has no label colour"),
        ("sum by (stage) (rate(tailscope_requests_total[5m]))", "lacks"),
        ("tailscope_requests_total", "needs a rate"),
        ("rate(tailscope_engine_up[5m])", "is a gauge"),
        ("histogram_quantile(0.9, rate(tailscope_request_seconds_bucket[5m]))", "by le"),
        (
            "histogram_quantile(0.9, sum by (le)"
            " (rate(tailscope_engine_queue_seconds_bucket[5m])))",
            "keep engine",
        ),
        (
            "avg (histogram_quantile(0.9, sum by (le, model)"
            " (rate(tailscope_request_seconds_bucket[5m]))))",
            "over quantiles",
        ),
        ("rate(tailscope_requests_total[5m]) / rate(tailscope_requests_total[5m])", "NaN"),
        ('rate(tailscope_request_seconds_bucket{le="1"}[5m])', "match both"),
        ("sum (tailscope_engine_kv_cache_usage_ratio)", "never summed"),
        ("tailscope_engine_up and on (tenant) tailscope_engine_up", "lacks"),
        ("max_over_time(tailscope_engine_up[5m:1m])", "subquery"),
    ],
)  # fmt: skip
def test_the_rules_find_the_usual_mistakes(expr: str, fault: str) -> None:
    assert any(fault in found for found in faults(expr)), faults(expr)


def test_a_point_leads_to_the_triage_app_at_the_time_of_the_board() -> None:
    asked_for = parse_qs(urlsplit(APP["url"]).query)
    assert asked_for["window"] == ["between"]
    assert "`between` with `from` and `to`" in (ROOT / "docs" / "app.md").read_text()
    assert asked_for["from"] == ["${__from:date:iso}"]
    assert asked_for["to"] == ["${__to:date:iso}"]
    # What Grafana writes there.
    assert instant("2026-11-30T02:10:00.500Z") == 1_796_004_600_500_000_000


def test_an_exemplar_leads_to_its_request_in_the_triage_app() -> None:
    """The link belongs to the data source; the environment of Grafana's start eats a single $."""
    path = ROOT / "dashboards" / "provisioning" / "datasources" / "tailscope.yaml"
    (source,) = yaml.safe_load(path.read_text(encoding="utf-8"))["datasources"]
    (link,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert link["name"] == "trace_id"
    filled = link["url"].replace("${TRIAGE_URL}", "http://127.0.0.1:8501").replace("$$", "$")
    page, asked_for = urlsplit(filled).path, parse_qs(urlsplit(filled).query)
    assert (ROOT / "app/tailscope/app/views" / f"{page.strip('/')}.py").is_file()
    assert "| `request`" in (ROOT / "docs" / "app.md").read_text(encoding="utf-8")
    assert asked_for["request"] == ["${__value.raw}"]
    assert f"{urlsplit(filled).query}&".endswith(f"{urlsplit(APP['url']).query}&")
