"""The rules of Grafana's dashboard-linter in our own words, over syntax trees.

Not the linter itself: it is a program in Go that links modules under the AGPL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import promql_parser as promql

from tests.boards import panels, substitute
from tests.expression import nodes, selectors

Board = Mapping[str, Any]
Rule = Callable[[Board], Iterator[str]]

_MACROS = {"__rate_interval": "4m", "__range": "1h", "offset": "1h", "first": "1", "within": "1"}
_GROWTH = ("rate", "irate", "increase")


def _variables(board: Board) -> Mapping[str, Any]:
    return {each["name"]: each for each in board["templating"]["list"]}


def template_datasource(board: Board) -> Iterator[str]:
    """Exactly one variable of data sources, with the usual name and label."""
    found = [v for v in _variables(board).values() if v["type"] == "datasource"]
    if [v["name"] for v in found] != ["datasource"]:
        yield "one variable for the data source, named datasource"
    elif found[0]["label"].lower() != "data source":
        yield "the data source's variable is labelled Data source"


def _template(board: Board, name: str) -> Iterator[str]:
    found = _variables(board).get(name)
    if found is None:
        yield f"no variable {name}"
        return
    if not (found["type"] == "query" and found["multi"] and found["includeAll"]):
        yield f"{name} offers several values and All"
    if found.get("allValue") != ".+":
        yield f"All of {name} is .+"
    if found["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
        yield f"{name} asks the chosen data source"


def template_job(board: Board) -> Iterator[str]:
    """There is a variable for the job, in the usual shape."""
    return _template(board, "job")


def template_instance(board: Board) -> Iterator[str]:
    """There is a variable for the instance, in the usual shape."""
    return _template(board, "instance")


def template_label_promql(board: Board) -> Iterator[str]:
    """What a variable asks can be parsed."""
    for name, variable in _variables(board).items():
        if variable["type"] == "query":
            selector = variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
            try:
                promql.parse(selector)
            except ValueError as error:
                yield f"{name}: {error}"


def template_reload(board: Board) -> Iterator[str]:
    """Variables look again when the time range changes."""
    for name, variable in _variables(board).items():
        if variable["type"] == "query" and variable["refresh"] != 2:
            yield f"{name} does not look again when the time range changes"


def panel_datasource(board: Board) -> Iterator[str]:
    """Panels and their queries ask the chosen data source."""
    for panel in panels(board):
        for asked in (panel, *panel["targets"]):
            if asked.get("datasource", {}).get("uid") != "${datasource}":
                yield f"{panel['title']}: not the chosen data source"


def panel_texts(board: Board) -> Iterator[str]:
    """Panels have a title and a description."""
    for panel in panels(board):
        if not panel.get("title") or not panel.get("description"):
            yield f"panel {panel['id']}: no title or no description"


def panel_units(board: Board) -> Iterator[str]:
    """Panels have a unit; those of a table belong to its columns."""
    for panel in panels(board):
        config = panel["fieldConfig"]
        if panel["type"] != "table" and not config["defaults"].get("unit"):
            yield f"{panel['title']}: no unit"


def panel_targets(board: Board) -> Iterator[str]:
    """Panels ask something."""
    for panel in panels(board):
        if not panel["targets"]:
            yield f"{panel['title']}: asks nothing"


def _expressions(board: Board) -> Iterator[tuple[str, str]]:
    for panel in panels(board):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def _trees(board: Board) -> Iterator[tuple[str, Any]]:
    for title, expr in _expressions(board):
        yield title, promql.parse(substitute(expr, _MACROS))


def target_logql(board: Board) -> Iterator[str]:
    """No query asks for logs, so there is nothing in LogQL that could be wrong."""
    for panel in panels(board):
        for target in panel["targets"]:
            if target["datasource"]["type"] != "prometheus":
                yield f"{panel['title']}: asks a {target['datasource']['type']}"


def target_logql_auto(board: Board) -> Iterator[str]:
    """No query has the window of a query for logs."""
    for title, expr in _expressions(board):
        if "$__auto" in expr:
            yield f"{title}: $__auto is of LogQL"


def target_promql(board: Board) -> Iterator[str]:
    """Queries can be parsed."""
    for title, expr in _expressions(board):
        try:
            promql.parse(substitute(expr, _MACROS))
        except ValueError as error:
            yield f"{title}: {error}"


def target_rate_interval(board: Board) -> Iterator[str]:
    """Series over time look back over $__rate_interval, single values over $__range."""
    for panel in panels(board):
        for target in panel["targets"]:
            wanted = "$__range" if target["instant"] else "$__rate_interval"
            marked = target["expr"].replace(f"[{wanted}]", "[7m]")
            for node, _ in nodes(promql.parse(substitute(marked, _MACROS))):
                if isinstance(node, promql.MatrixSelector) and node.range.total_seconds() != 420:
                    yield f"{panel['title']}: a fixed window"


def _matched(board: Board, label: str) -> Iterator[str]:
    for title, tree in _trees(board):
        for series in selectors(tree):
            given = {m.name: (str(m.op), m.value) for m in series.matchers.matchers}
            if given.get(label, ("", ""))[1] != f"${label}":
                yield f"{title}: {series.name} is not of the chosen {label}"


def target_job(board: Board) -> Iterator[str]:
    """Every selector follows the variable of the job."""
    return _matched(board, "job")


def target_instance(board: Board) -> Iterator[str]:
    """Every selector follows the variable of the instance."""
    return _matched(board, "instance")


def target_counter(board: Board) -> Iterator[str]:
    """Counters are never shown as they are."""
    for title, tree in _trees(board):
        for node, within in nodes(tree):
            counts = isinstance(node, promql.VectorSelector) and str(node.name).endswith(
                ("_total", "_count", "_sum", "_bucket")
            )
            grown = any(isinstance(n, promql.Call) and n.func.name in _GROWTH for n in within)
            if counts and not grown:
                yield f"{title}: {node.name} without a rate"


def uneditable(board: Board) -> Iterator[str]:
    """Boards that code makes are not edited by hand."""
    if board["editable"] is not False:
        yield "the board can be edited"


RULES: tuple[Rule, ...] = (
    template_datasource, template_job, template_instance, template_label_promql, template_reload,
    panel_datasource, panel_texts, panel_units, panel_targets, target_logql, target_logql_auto,
    target_promql, target_rate_interval, target_job, target_instance, target_counter, uneditable,
)  # fmt: skip
