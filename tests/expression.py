"""What is wrong with an expression: names and labels against the catalogue, and the usual mistakes.

The rules are those of Grafana's dashboard-linter and of public complaints, in our own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import promql_parser as promql

from tailscope.catalogue import METRICS, Across, Kind, Metric
from tailscope.catalogue.promql import ALERT_LABELS, ALERTS, LABELS, TARGET_LABELS, UP

Recorded = Mapping[str, tuple[str, ...]]
"""Labels of the series of a recording rule, by its name."""

_PARTS = ("_bucket", "_sum", "_count")
_GROWTH = ("rate", "increase")


class Node(NamedTuple):
    """A node of the tree and the nodes that it lies in, outermost first."""

    node: Any
    within: tuple[Any, ...]


def nodes(node: Any, within: tuple[Any, ...] = ()) -> Iterator[Node]:
    """All nodes of an expression."""
    yield Node(node, within)
    children = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")]
    for child in (*children, *getattr(node, "args", ())):
        if child is not None:
            yield from nodes(child, (*within, node))


def selectors(node: Any) -> list[Any]:
    """All vector selectors of an expression, given as text or as a tree."""
    tree = promql.parse(node) if isinstance(node, str) else node
    return [n.node for n in nodes(tree) if isinstance(n.node, promql.VectorSelector)]


def metric_of(name: str) -> Metric | None:
    """The metric that a series belongs to."""
    if name in METRICS and METRICS[name].kind is not Kind.HISTOGRAM:
        return METRICS[name]
    for part in _PARTS:
        found = METRICS.get(name.removesuffix(part))
        if name.endswith(part) and found and found.kind is Kind.HISTOGRAM:
            return found
    return None


def metrics_of(expr: str) -> set[Metric]:
    """The metrics of the catalogue that an expression asks for."""
    return {found for series in selectors(expr) if (found := metric_of(series.name))}


def labels_of(name: str, recorded: Recorded) -> tuple[str, ...] | None:
    """The labels of a series, or None if there is no such series."""
    if name == UP:
        return TARGET_LABELS
    if name == ALERTS:
        return (*ALERT_LABELS, "alertstate", *sorted(LABELS))
    if name in recorded:
        return recorded[name]
    metric = metric_of(name)
    if metric is None:
        return None
    return (*TARGET_LABELS, *metric.labels, *(("le",) if name.endswith("_bucket") else ()))


def faults(text: str, recorded: Recorded | None = None) -> list[str]:
    """Everything that is wrong with an expression; empty if nothing is."""
    recorded = recorded or {}
    found: list[str] = []
    for node, within in nodes(promql.parse(text)):
        match node:
            case promql.VectorSelector():
                found += _selector(node, within, recorded)
            case promql.AggregateExpr():
                found += _aggregation(node, recorded)
            case promql.BinaryExpr():
                found += _operation(node, recorded)
            case promql.Call() if node.func.name == "histogram_quantile":
                found += _quantile(node)
            case promql.SubqueryExpr():
                found.append("a subquery: use a recording rule")
    return found


def _selector(node: Any, within: tuple[Any, ...], recorded: Recorded) -> Iterator[str]:
    labels = labels_of(node.name, recorded)
    if labels is None:
        yield f"no series {node.name}"
        return
    for matcher in node.matchers.matchers:
        if matcher.name not in labels:
            yield f"{node.name} has no label {matcher.name}"
        if matcher.name == "le" and matcher.op == promql.MatchOp.Equal:
            yield 'le="1" is le="1.0" in Prometheus 3: match both'
    metric = metric_of(node.name)
    grown = any(isinstance(n, promql.Call) and n.func.name in _GROWTH for n in within)
    if metric and (metric.kind is Kind.GAUGE) == grown:
        yield f"{node.name} is a {metric.kind}" + ("" if grown else ": it needs a rate")


def _aggregation(node: Any, recorded: Recorded) -> Iterator[str]:
    below = [n.node for n in nodes(node.expr)]
    if any(isinstance(n, promql.Call) and n.func.name == "histogram_quantile" for n in below):
        yield f"{node.op} over quantiles: they cannot be combined"
    for series in selectors(node.expr):
        metric = metric_of(series.name)
        if str(node.op) == "sum" and metric and _averaged(metric):
            yield f"sum of {series.name}: a ratio is averaged, never summed"
        for label in node.modifier.labels if node.modifier else ():
            if label not in (labels_of(series.name, recorded) or (label,)):
                yield f"{node.op} by {label}, which {series.name} lacks"


def _averaged(metric: Metric) -> bool:
    return metric.across is Across.MEAN and metric.kind is not Kind.HISTOGRAM


def _operation(node: Any, recorded: Recorded) -> Iterator[str]:
    if str(node.op) == "/" and not _guarded(node.rhs):
        yield "a division by what may be 0: NaN"
    matching = node.modifier.matching if node.modifier else None
    for label in matching.labels if matching else ():
        for series in _labelled(node):
            if label not in (labels_of(series.name, recorded) or (label,)):
                yield f"on {label}, which {series.name} lacks"


def _labelled(node: Any) -> Iterator[Any]:
    """Selectors whose labels reach the node: a scalar has none."""
    for found, within in nodes(node):
        scalar = any(isinstance(n, promql.Call) and n.func.name == "scalar" for n in within)
        if isinstance(found, promql.VectorSelector) and not scalar:
            yield found


def _guarded(node: Any) -> bool:
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    if isinstance(node, promql.NumberLiteral):
        return True
    return isinstance(node, promql.BinaryExpr) and str(node.op) == ">"


def _quantile(node: Any) -> Iterator[str]:
    vector = node.args[1]
    by = (
        vector.modifier.labels
        if isinstance(vector, promql.AggregateExpr) and vector.modifier
        else ()
    )
    if "le" not in by:
        yield "a quantile without a sum by le"
    for series in selectors(vector):
        metric = metric_of(series.name)
        if not series.name.endswith("_bucket"):
            yield f"a quantile of {series.name}, which has no buckets"
        elif metric and not metric.buckets and "engine" not in by:
            yield f"{series.name} has the bounds of each engine: keep engine"
