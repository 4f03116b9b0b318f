"""Metrics of requests, and the counting of records on their way in."""

from __future__ import annotations

import gc
import itertools
import math
import re
import threading
import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tailscope.catalogue import STAGES
from tailscope.exporter.exposition import render
from tailscope.exporter.intake import Intake
from tailscope.exporter.matcher import Matcher
from tailscope.exporter.requestmetrics import OTHER, RequestMetrics
from tailscope.records.record import (
    COLUMNS,
    OUTCOMES,
    UNKNOWN_TENANT,
    RequestRecord,
    complete,
    from_mapping,
)
from tests.otlp import trace_id

NOW_NS = 1_796_000_000_000_000_000
BASE = {"engine": "vllm", "server": "a:1", "model": "m"}


class Page:
    """Samples of a rendered page, as a scraper reads them."""

    def __init__(self, metrics: RequestMetrics) -> None:
        text = render([metrics.lines()], None, True).decode()
        self.samples = [
            sample
            for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
            for sample in family.samples
        ]

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self.samples
            if sample.name == f"tailscope_{name}" and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        found = self.values(name, **labels)
        assert len(found) <= 1
        return found[0] if found else None

    def labels(self, name: str, label: str) -> set[str]:
        return {
            sample.labels[label] for sample in self.samples if sample.name == f"tailscope_{name}"
        }


def engine(number: int = 1, **values: Any) -> RequestRecord:
    given = {
        **BASE,
        "trace_id": trace_id(number),
        "parent_span_id": f"{number:016x}",
        "frontend_seconds": 0.125,
        "queue_seconds": 0.25,
        "prefill_seconds": 0.125,
        "decode_seconds": 1.0,
        "ttft_seconds": 0.5,
        "total_seconds": 1.5,
        "input_tokens": 100,
        "output_tokens": 11,
        "outcome": "ok",
        **values,
    }
    return RequestRecord("vllm", "engine", NOW_NS + number, span_id=f"e{number:015x}", **given)


def gateway(number: int = 1, **values: Any) -> RequestRecord:
    given = {"trace_id": trace_id(number), "tenant": "acme", "outcome": "ok", **values}
    return RequestRecord("file", "gateway", NOW_NS + number, span_id=f"{number:016x}", **given)


def page(*pairs: tuple[RequestRecord | None, RequestRecord | None], tenants: int = 50) -> Page:
    metrics = RequestMetrics(tenants)
    for mine, theirs in pairs:
        metrics.observe([(mine, theirs)])
    return Page(metrics)


def test_a_request_of_both_sides() -> None:
    found = page((engine(), gateway(cached_tokens=40)))
    tenant = {**BASE, "tenant": "acme"}
    assert found.value("requests_total", **tenant, outcome="ok") == 1
    assert found.value("request_seconds_sum", **tenant) == 1.5
    assert found.value("request_seconds_count", **tenant) == 1
    assert found.value("request_time_to_first_token_seconds_sum", **tenant) == 0.5
    stages = {"frontend": 0.125, "queue": 0.25, "prefill": 0.125, "decode": 1.0}
    for stage, seconds in stages.items():
        assert found.value("request_stage_seconds_sum", **BASE, stage=stage) == seconds
    assert sum(found.values("request_stage_seconds_sum")) == 1.5, "the stages add up"
    assert found.value("request_time_per_output_token_seconds_sum", **BASE) == pytest.approx(0.1)
    assert found.value("request_input_tokens_sum", **BASE) == 100
    assert found.value("request_output_tokens_sum", **BASE) == 11
    assert found.value("tenant_input_tokens_total", **tenant, cached="yes") == 40
    assert found.value("tenant_input_tokens_total", **tenant, cached="no") == 60
    assert found.value("tenant_output_tokens_total", **tenant) == 11
    assert found.value("tenant_slot_seconds_total", **tenant) == 1.125
    assert found.value("request_retries_total", **tenant) is None


def test_a_request_that_only_the_engine_saw() -> None:
    found = page((engine(), None))
    assert found.value("requests_total", **BASE, tenant="unknown", outcome="ok") == 1
    assert found.value("tenant_input_tokens_total", tenant="unknown", cached="unknown") == 100


def test_a_request_that_only_the_gateway_saw() -> None:
    found = page((None, gateway(total_seconds=9.0, outcome="aborted")))
    nowhere = {"engine": "", "server": "", "model": "", "tenant": "acme"}
    assert found.value("requests_total", **nowhere, outcome="aborted") == 1
    assert found.value("request_seconds_sum", **nowhere) == 9.0
    for name in ("request_stage_seconds_count", "request_input_tokens_count"):
        assert found.values(name) == [], "what is unknown is absent"
    assert found.values("tenant_slot_seconds_total") == []


def test_nothing_is_no_request() -> None:
    assert page((None, None)).samples == []


@pytest.mark.parametrize(
    ("mine", "theirs", "outcome"),
    [("ok", "aborted", "aborted"), ("error", "ok", "error"), (None, None, "unknown")],
)
def test_the_client_is_right_about_giving_up(
    mine: str | None, theirs: str | None, outcome: str
) -> None:
    found = page((engine(outcome=mine), gateway(outcome=theirs)))
    assert found.labels("requests_total", "outcome") == {outcome}


@pytest.mark.parametrize(("attempt", "retries"), [(None, None), (1, None), (2, 1)])
def test_retries(attempt: int | None, retries: float | None) -> None:
    assert page((engine(), gateway(attempt=attempt))).value("request_retries_total") == retries


@pytest.mark.parametrize("made", [None, 0, 1])
def test_a_request_without_a_second_token_has_no_time_per_token(made: int | None) -> None:
    found = page((engine(output_tokens=made), None))
    assert found.values("request_time_per_output_token_seconds_count") == []


def test_more_cached_than_sent_is_not_less_than_nothing() -> None:
    found = page((engine(input_tokens=10, cached_tokens=16), None))
    assert found.value("tenant_input_tokens_total", cached="no") == 0


def test_tenants_are_bounded() -> None:
    pairs = [(engine(n), gateway(n, tenant=f"t{n % 100}")) for n in range(300)]
    found = page(*pairs, tenants=20)
    names = {f"t{n}" for n in range(20)} | {OTHER}
    assert found.labels("requests_total", "tenant") == names
    assert sum(found.values("requests_total")) == 300
    assert found.value("requests_total", tenant=OTHER) == 240


@pytest.mark.parametrize("name", ["model", "server", "engine"])
def test_no_label_is_unbounded(name: str) -> None:
    metrics = RequestMetrics()
    for number in range(200):
        metrics.observe([(engine(number, **{name: f"x{number}"}), None)])
    lines = metrics.lines()["tailscope_requests_total"]
    values = {re.findall(f'{name}="(\\w+)"', line.series)[0] for line in lines}
    assert values == {f"x{number}" for number in range(50)} | {OTHER}
    assert sum(line.value for line in lines) == 200


def test_exemplars_lead_to_a_trace_in_the_bucket() -> None:
    slow, fast = engine(1, ttft_seconds=9.0), engine(2, ttft_seconds=0.001)
    found = page((slow, None), (fast, None))
    exemplars = {
        sample.labels["le"]: sample.exemplar.labels["trace_id"]
        for sample in found.samples
        if sample.name == "tailscope_request_time_to_first_token_seconds_bucket" and sample.exemplar
    }
    assert exemplars == {"10.0": trace_id(1), "0.005": trace_id(2)}


# In what order they come


def counted(rows: list[RequestRecord], *, expect_gateway: bool = True) -> Page:
    metrics = RequestMetrics()
    clock = [0.0]
    matcher = Matcher(metrics.observe, expect_gateway=expect_gateway, now=lambda: clock[0])
    for row in rows:
        matcher.add([row])
        clock[0] += 0.1
    clock[0] += 1000
    matcher.expire()
    return Page(metrics)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_each_request_counts_once_whatever_comes_first(order: tuple[int, ...]) -> None:
    rows = [engine(1), gateway(1), engine(2), gateway(2, tenant="globex")]
    found = counted([rows[index] for index in order])
    assert sum(found.values("requests_total")) == 2
    assert found.value("requests_total", tenant="acme") == 1
    assert found.value("requests_total", tenant="globex") == 1
    assert sum(found.values("request_seconds_count")) == 2


def test_the_first_rows_count_once_even_if_no_gateway_was_known() -> None:
    found = counted([engine(1), gateway(1), engine(2), gateway(2)], expect_gateway=False)
    assert sum(found.values("requests_total")) == 2
    assert found.value("requests_total", tenant="unknown") == 1


def test_two_parts_of_one_call_are_two_requests_of_the_engine() -> None:
    parts = [engine(1), engine(1)]
    parts[1].span_id = "f" * 16
    found = counted([*parts, gateway(1)])
    assert found.values("requests_total") == [2]
    assert found.labels("requests_total", "tenant") == {"acme"}


def test_threads_lose_nothing() -> None:
    metrics = RequestMetrics()
    matcher = Matcher(metrics.observe, expect_gateway=True)

    def work(first: int) -> None:
        for number in range(first, first + 250):
            matcher.add([engine(number), gateway(number)])

    threads = [threading.Thread(target=work, args=(n * 1000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Page(metrics).values("requests_total") == [1000]


# The way in


def intake(server: str | None = None, model: str | None = None) -> tuple[Intake, RequestMetrics]:
    metrics = RequestMetrics()
    matcher = Matcher(metrics.observe, expect_gateway=False)
    return Intake(None, matcher, lambda: (server, model)), metrics


def test_records_are_counted_by_source() -> None:
    one, _ = intake()
    one.accept("otlp:http", [engine(1), engine(2)], Counter(range=1), 3)
    one.accept("otlp:http", [], Counter(range=1))
    found = {line.series: line.value for lines in one.lines().values() for line in lines}
    assert found == {
        'tailscope_records_total{source="otlp:http"}': 2,
        'tailscope_records_rejected_total{source="otlp:http",reason="range"}': 2,
        'tailscope_records_clamped_total{source="otlp:http"}': 3,
    }


def test_what_the_span_does_not_say_is_taken_from_the_engine_beside_and_marked() -> None:
    one, metrics = intake("a:1", "m")
    told, untold, theirs = engine(1), engine(2, server="uuid", model=None), gateway(3)
    one.accept("otlp:http", [told, untold, theirs])
    assert (told.server, told.model, told.inferred) == ("a:1", "m", None)
    assert (untold.server, untold.model, untold.inferred) == ("a:1", "m", "server,model")
    assert (theirs.server, theirs.model, theirs.inferred) == (None, None, None)
    assert Page(metrics).labels("requests_total", "server") == {"a:1"}


def test_of_several_engines_none_is_guessed() -> None:
    one, _ = intake()
    record = engine(1, server=None, model=None)
    one.accept("otlp:http", [record])
    assert (record.server, record.model, record.inferred) == (None, None, None)


# Bounds and sums


def test_the_fifty_first_tenant_is_other() -> None:
    pairs = [(engine(n), gateway(n, tenant=f"t{n}")) for n in range(60)]
    metrics = RequestMetrics()
    for mine, theirs in pairs:
        metrics.observe([(mine, theirs)])
    found = Page(metrics)
    assert found.labels("requests_total", "tenant") == {f"t{n}" for n in range(50)} | {OTHER}
    assert found.value("requests_total", tenant=OTHER) == 10
    assert found.value("request_seconds_count", tenant=OTHER) == 10
    metrics.observe([pairs[49]])
    again = [line.value for line in metrics.lines()["tailscope_requests_total"] if "t49" in line[0]]
    assert again == [2], "it stays one of the first"


BATCH = 50


def test_tenants_without_end_take_no_memory_and_no_series() -> None:
    """Whoever sends a new name with each request gains nothing by it."""
    metrics, record, number = RequestMetrics(), engine(), 0

    def observe(most: int) -> int:
        nonlocal number
        for first in range(number, most, BATCH):
            names = (f"tenant-{one}" for one in range(first, first + BATCH))
            metrics.observe([(replace(record, tenant=name), None) for name in names])
        number = most
        return sum(map(len, metrics.lines().values()))

    series = observe(1_000)
    assert observe(90_000) == series
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert observe(100_000) == series
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A set that remembered every name would have grown by 1 MB.
    assert after - before < 100_000
    assert sum(line.value for line in metrics.lines()["tailscope_requests_total"]) == 100_000


DURATION = st.none() | st.floats(-10, 1e9)
COUNT = st.none() | st.integers(-10, 2**40)
NAME = st.none() | st.sampled_from(["", "a", 'x"y\\z', "日本"])
MEASURED = {
    name: DURATION if kind is float else COUNT
    for name, kind in COLUMNS.items()
    if name.endswith(("_seconds", "_tokens")) or name == "attempt"
}
ROWS = st.fixed_dictionaries(
    {
        **MEASURED,
        **{name: NAME for name in ("tenant", "model", "server", "engine")},
        "trace_id": st.none() | st.sampled_from([trace_id(1), trace_id(2)]),
        "outcome": st.none() | st.sampled_from(OUTCOMES),
    }
)


def accepted(role: str, row: dict[str, Any] | None) -> RequestRecord | None:
    """The record that comes of a row on its way in."""
    if row is None:
        return None
    record = from_mapping({"arrived_ns": NOW_NS, "role": role, **row})
    complete(record)
    return record


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.none() | ROWS, st.none() | ROWS), max_size=4))
def test_sums_are_those_of_the_records(
    rows: list[tuple[dict[str, Any] | None, dict[str, Any] | None]],
) -> None:
    """Whatever the rows say: nothing is made up, negative, not a number, or counted twice."""
    pairs = [
        pair
        for mine, theirs in rows
        if (pair := (accepted("engine", mine), accepted("gateway", theirs))) != (None, None)
    ]
    found = page(*pairs)
    assert all(0 <= sample.value < math.inf for sample in found.samples)

    told = [mine or theirs for mine, theirs in pairs]
    told_or_else = [(mine or theirs, theirs or mine) for mine, theirs in pairs]
    slots = [(one.prefill_seconds, one.decode_seconds) for one in told if one]

    def first_of(name: str) -> list[Any]:
        both = [[getattr(one, name) for one in pair] for pair in told_or_else]
        return [mine if mine is not None else theirs for mine, theirs in both]

    def of_told(name: str) -> list[Any]:
        return [getattr(one, name) for one in told]

    def agree(metric: str, values: list[Any], **labels: str) -> None:
        known = [value for value in values if value is not None]
        assert sum(found.values(f"{metric}_count", **labels)) == len(known)
        assert sum(found.values(f"{metric}_sum", **labels)) == pytest.approx(math.fsum(known))
        if not known:
            assert found.values(f"{metric}_sum", **labels) == [], "unknown is absent"

    assert sum(found.values("requests_total")) == len(pairs)
    agree("request_seconds", of_told("total_seconds"))
    agree("request_time_to_first_token_seconds", of_told("ttft_seconds"))
    for stage in STAGES:
        agree("request_stage_seconds", of_told(f"{stage}_seconds"), stage=stage)
    agree("request_input_tokens", of_told("input_tokens"))
    agree("request_output_tokens", of_told("output_tokens"))
    assert sum(found.values("tenant_output_tokens_total")) == sum(
        made for made in first_of("output_tokens") if made is not None
    )
    assert sum(found.values("tenant_slot_seconds_total")) == pytest.approx(
        math.fsum(one + two for one, two in slots if one is not None and two is not None)
    )
    sent = list(zip(first_of("input_tokens"), first_of("cached_tokens"), strict=True))
    assert sum(found.values("tenant_input_tokens_total", cached="unknown")) == sum(
        tokens for tokens, cached in sent if tokens is not None and cached is None
    )
    assert sum(found.values("tenant_input_tokens_total", cached="yes")) == sum(
        cached for tokens, cached in sent if tokens is not None and cached is not None
    )
    tried = [max(one.attempt or 1, two.attempt or 1) for one, two in told_or_else if one and two]
    assert sum(found.values("request_retries_total")) == sum(one > 1 for one in tried)
    names = {one or UNKNOWN_TENANT for one in first_of("tenant")}
    assert found.labels("requests_total", "tenant") == names


@pytest.mark.parametrize("trace", [None, "", "x" * 65])
def test_what_is_no_trace_is_no_exemplar(trace: str | None) -> None:
    found = page((engine(trace_id=trace), None))
    assert found.value("request_seconds_count") == 1
    assert not any(sample.exemplar for sample in found.samples)


def test_of_equally_slow_requests_the_latest_is_the_exemplar() -> None:
    found = page((engine(1), None), (engine(2), None), (engine(3, trace_id=None), None))
    exemplars = {
        sample.exemplar.labels["trace_id"]: sample.exemplar.value
        for sample in found.samples
        if sample.name == "tailscope_request_seconds_bucket" and sample.exemplar
    }
    assert exemplars == {trace_id(2): 1.5}
