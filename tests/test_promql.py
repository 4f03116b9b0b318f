"""PromQL from catalogue objects: what may not be written, and what the written computes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import promql_parser
import pytest
import yaml

from tailscope.catalogue import METRICS, CatalogueError, Kind, Metric
from tailscope.catalogue.promql import (
    Query,
    compare,
    difference,
    every,
    filled,
    largest,
    ratio,
    share,
    times,
)
from tests.expression import faults
from tests.tools import tool

Q = Query("5m")
SCOPED = Query("5m", {"job": "~$job", "tenant": "~$tenant"})


@pytest.mark.parametrize(
    "write",
    [
        lambda: Q.rate("no_such_metric_total"),
        lambda: Q.rate("requests_total", ("colour",)),
        lambda: Q.rate("requests_total", (), {"colour": "red"}),
        lambda: Query("5m", {"colour": "red"}),
        lambda: Query("five minutes"),
        lambda: Query("5m", offset="$__range_ago"),
        lambda: Q.rate("engine_requests_running"),
        lambda: Q.gauge("requests_total"),
        lambda: Q.quantile(0.99, "requests_total"),
        lambda: Q.quantile(0.99, "engine_up"),
        lambda: Q.quantile(0.99, "engine_queue_seconds", ("server",)),
        lambda: Q.buckets("engine_queue_seconds"),
        lambda: Q.time_mean("engine_up"),
        lambda: Q.share_above(7, "request_seconds"),
        lambda: Q.vector("request_seconds"),
        lambda: Q.vector("requests_total", suffix="_sum"),
        lambda: Q.vector("requests_total", {"le": "1"}),
        lambda: compare("a", "=", 1),
    ],
)
def test_what_the_catalogue_does_not_know_cannot_be_written(write: Callable[[], str]) -> None:
    with pytest.raises((CatalogueError, KeyError)):
        write()


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_every_metric_can_be_asked_for_without_a_fault(metric: Metric) -> None:
    query = Query("5m", by=metric.labels)
    match metric.kind:
        case Kind.COUNTER:
            written = [query.rate(metric), query.increase(metric)]
        case Kind.GAUGE:
            written = [query.gauge(metric), query.last(metric)]
        case _:
            written = [query.mean(metric), query.quantile(0.9, metric), query.buckets(metric)]
    assert [fault for expr in written for fault in faults(expr)] == []


def test_matchers_hold_where_the_metric_has_the_label() -> None:
    assert SCOPED.rate("requests_total") == (
        'sum (rate(tailscope_requests_total{job=~"$job", tenant=~"$tenant"}[5m]))'
    )
    assert SCOPED.gauge("source_up", ("source",)) == (
        'sum by (source) (tailscope_source_up{job=~"$job"})'
    )


def test_a_matcher_of_the_call_wins_and_is_quoted() -> None:
    assert SCOPED.vector("requests_total", {"tenant": '!~a"b|\\d', "job": "x"}) == (
        'tailscope_requests_total{job="x", tenant!~"a\\"b|\\\\d"}'
    )


def test_a_gauge_is_combined_as_the_catalogue_says() -> None:
    assert Q.gauge("engine_kv_cache_usage_ratio").startswith("avg (")
    assert Q.time_mean("engine_kv_cache_usage_ratio", ("server",)) == (
        "avg by (server) (rate(tailscope_engine_kv_cache_usage_seconds_total[5m]))"
    )


def test_an_offset_shifts_everything() -> None:
    past = replace(Q, offset="1h").mean("request_seconds")
    assert past.count("[5m] offset 1h") == 2
    assert replace(Q, offset="1h").vector("engine_up") == "tailscope_engine_up offset 1h"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (ratio("a - b", "c"), "(a - b) / (c > 0)"),
        (ratio("sum (a)", "sum (b - c)"), "sum (a) / (sum (b - c) > 0)"),
        (difference("a", "b - c"), "a - (b - c)"),
        (compare("a or b", ">", 0.5), "(a or b) > 0.5"),
        (compare('a{x="b - c"}', ">", 1), 'a{x="b - c"} > 1'),
        (filled("a", "b"), "a or 0 * b"),
        (times(2, "a > b"), "2 * (a > b)"),
        (every("a > 1", "b > 2", on=("x",)), "(a > 1)\nand on (x) (b > 2)"),
    ],
)
def test_parts_are_joined_with_the_brackets_that_they_need(written: str, meant: str) -> None:
    assert written == meant
    promql_parser.parse(written)


STAGES = [
    ("queue", 100, 60),  # seconds and requests, a minute
    ("prefill", 120, 60),
    ("decode", 200, 40),  # a third of the requests never got so far
]
MOST = largest(Q.rate("request_stage_seconds", ("stage",), suffix="_count"))
MEANS = [
    ratio(Q.rate("request_stage_seconds", (), {"stage": stage}, "_sum"), MOST)
    for stage, _, _ in STAGES
]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        # 420 s in all over 60 requests: what a request spends on average, wherever it ended.
        (" + ".join(MEANS), 7.0),
        (share("vector(2)", "vector(8)"), 0.25),
        (Q.mean("request_stage_seconds", (), {"stage": "decode"}), 5.0),
        # 59 of 60 within the last bucket.
        (Q.share_above(480, "request_seconds"), 1 / 60),
        (Q.quantile(0.5, "request_seconds"), 0.5 * 60 / 59 * 480),
        (
            ratio(
                filled(Q.rate("requests_total", (), {"outcome": "!ok"}), Q.rate("requests_total")),
                Q.rate("requests_total"),
            ),
            0.0,
        ),
        # Nothing was observed: nothing, not NaN and not 0.
        (Q.quantile(0.5, "request_time_to_first_token_seconds"), None),
        (Q.mean("request_time_to_first_token_seconds"), None),
        (ratio(Q.rate("engine_preemptions_total"), Q.rate("engine_requests_finished_total")), None),
    ],
)
def test_prometheus_computes_what_is_meant(
    expr: str, expected: float | None, tmp_path: Path
) -> None:
    series = {
        **{f'tailscope_request_stage_seconds_sum{{stage="{s}"}}': v for s, v, _ in STAGES},
        **{f'tailscope_request_stage_seconds_count{{stage="{s}"}}': v for s, _, v in STAGES},
        'tailscope_request_seconds_bucket{le="480.0"}': 59,
        'tailscope_request_seconds_bucket{le="+Inf"}': 60,
        "tailscope_request_seconds_count": 60,
        'tailscope_requests_total{outcome="ok"}': 60,
        'tailscope_request_time_to_first_token_seconds_bucket{le="+Inf"}': 0,
        "tailscope_request_time_to_first_token_seconds_sum": 0,
        "tailscope_request_time_to_first_token_seconds_count": 0,
        "tailscope_engine_requests_finished_total": 0,
        "tailscope_engine_preemptions_total": 0,
    }  # fmt: skip
    test = {
        "interval": "1m",
        "input_series": [{"series": k, "values": f"0+{v}x10"} for k, v in series.items()],
        "promql_expr_test": [
            {
                # Rounded, as promtool compares exactly.
                "expr": f"round({expr}, 0.0001)",
                "eval_time": "10m",
                "exp_samples": []
                if expected is None
                else [{"labels": "{}", "value": round(expected, 4)}],
            }
        ],
    }
    path = tmp_path / "expression.test.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    ran = subprocess.run([tool("promtool"), "test", "rules", path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
