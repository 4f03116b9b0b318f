from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tailscope.catalogue import (
    METRICS,
    Across,
    CatalogueError,
    Engine,
    Kind,
    Metric,
    Unit,
    metric,
)
from tailscope.catalogue.engines import engines
from tailscope.catalogue.inference import ENGINE
from tailscope.catalogue.upstream import Operation
from tailscope.records.record import COLUMNS

LABELS = {
    *ENGINE,
    *("reason", "origin", "tier", "tenant", "outcome", "stage", "cached"),
    *("source", "version", "python"),
    *("gpu", "uuid", "model_name", "gi", "profile", "sensor", "domain", "type", "xid", "action"),
    *("pci_bus_id", "driver", "mig", "readings", "call", "code"),
}
"""All label names: each is bounded by the engine's code, by a limit of ours or by the settings."""

PROMISED = (
    "engine_up",
    "engine_requests_running",
    "engine_requests_waiting",
    "engine_waiting_request_seconds_total",
    "engine_kv_cache_usage_ratio",
    "engine_prefix_cache_query_tokens_total",
    "engine_prefix_cache_hit_tokens_total",
    "engine_preemptions_total",
    "engine_prompt_tokens_total",
    "engine_generation_tokens_total",
    "engine_step_tokens",
    "engine_requests_finished_total",
    "engine_time_to_first_token_seconds",
    "engine_inter_token_latency_seconds",
    "engine_request_seconds",
    "engine_queue_seconds",
    "engine_prefill_seconds",
    "engine_decode_seconds",
    "request_seconds",
    "request_time_to_first_token_seconds",
    "request_time_per_output_token_seconds",
    "request_stage_seconds",
    "request_input_tokens",
    "request_output_tokens",
    "requests_total",
    "request_retries_total",
    "tenant_input_tokens_total",
    "tenant_output_tokens_total",
    "tenant_slot_seconds_total",
    "source_up",
    "source_state",
    "source_last_success_timestamp_seconds",
    "source_read_seconds",
    "source_errors_total",
    "records_total",
    "records_rejected_total",
    "build_info",
)
"""Names that users, dashboards and alerts rely on."""


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names_are_there(name: str) -> None:
    assert metric(name) is METRICS[f"tailscope_{name}"]


@pytest.mark.parametrize("entry", METRICS.values(), ids=METRICS)
def test_every_metric_keeps_the_rules(entry: Metric) -> None:
    assert re.fullmatch(r"tailscope_[a-z][a-z0-9_]*[a-z0-9]", entry.name)
    assert set(entry.labels) <= LABELS
    assert len(set(entry.labels)) == len(entry.labels)
    # Written as it is into both text formats.
    assert not set('\\"\n') & set(entry.help)
    assert entry.help.endswith(".")
    assert list(entry.buckets) == sorted(set(entry.buckets))
    assert entry.kind is Kind.HISTOGRAM or not entry.buckets
    if entry.unit is Unit.RATIO and entry.kind is Kind.GAUGE:
        assert entry.across is not Across.SUM, "a sum of ratios is no ratio"


@pytest.mark.parametrize(
    "entry",
    [entry for entry in METRICS.values() if entry.integral_of or entry.distribution_of],
    ids=lambda entry: entry.name,
)
def test_what_is_sampled_is_a_gauge_with_the_same_labels(entry: Metric) -> None:
    sampled = METRICS[entry.integral_of or entry.distribution_of]
    assert sampled.kind is Kind.GAUGE
    assert sampled.labels == entry.labels
    if entry.integral_of:
        assert entry.kind is Kind.COUNTER
        assert entry.unit is Unit.SECONDS
        assert entry.across is sampled.across
    else:
        assert entry.kind is Kind.HISTOGRAM
        assert entry.unit is sampled.unit
        assert entry.buckets


def test_a_rank_metric_says_how_ranks_meet() -> None:
    assert metric("engine_kv_cache_usage_ratio").across is Across.MEAN
    assert metric("engine_requests_running").across is Across.SUM
    assert metric("engine_sleeping").across is Across.MAX


@pytest.mark.parametrize("engine", engines().values(), ids=engines())
def test_an_engine_maps_onto_the_catalogue(engine: Engine) -> None:
    terms = {term.name for term in engine.terms}
    seen: set[tuple[str, ...]] = set()
    families: set[str] = set()
    for upstream in engine.upstream:
        assert not any(family.endswith("_total") for family in upstream.families)
        families |= set(upstream.families)
        fixed = [f"{name}={text}" for name, text in upstream.fixed.items()]
        for family in upstream.families:
            only = [f"{name}={texts}" for name, texts in upstream.only.items()]
            one = (upstream.metric, family, *sorted(fixed + only))
            assert one not in seen, "a family is mapped twice onto one metric"
            seen.add(one)
        if upstream.metric in terms:
            assert not (upstream.labels or upstream.fixed)
            continue
        target = METRICS[upstream.metric]
        assert target.name.startswith(("tailscope_engine_", "tailscope_gateway_"))
        more = set(target.labels) - set(ENGINE)
        assert more == {*upstream.labels.values(), *upstream.fixed}, target.name
        assert not target.integral_of
        assert not target.distribution_of
    names = {mark.family for mark in engine.recognise} - families
    assert all(_ignored(engine, name) for name in names - {"num_request_max"})
    assert all(entry.reason for entry in engine.ignored)
    assert engine.ports
    if engine.spans is not None:
        assert set(engine.spans.attributes.values()) <= COLUMNS.keys()


def _ignored(engine: Engine, family: str) -> bool:
    return any(entry.pattern.fullmatch(engine.prefixes[0] + family) for entry in engine.ignored)


@pytest.mark.parametrize("engine", engines().values(), ids=engines())
def test_what_is_derived_can_be(engine: Engine) -> None:
    mapped = {upstream.metric for upstream in engine.upstream}
    terms = {term.name: term.kind for term in engine.terms}
    assert terms.keys() <= mapped
    made = {entry.metric for entry in engine.derived}
    for entry in engine.derived:
        target = METRICS[entry.metric]
        assert set(target.labels) - set(ENGINE) == entry.fixed.keys()
        for name in (*entry.operands, *entry.optional):
            metric = f"tailscope_engine_{name}"
            assert name in terms or metric in mapped | made, f"{engine.name}: no {name}"
            kind = terms[name] if name in terms else METRICS[metric].kind
            assert kind is target.kind
        if target.kind is Kind.COUNTER or entry.optional:
            assert entry.operation is Operation.SUM, "only a sum of counters is a counter"
        if entry.operation is Operation.RATIO:
            assert len(entry.operands) == 2


@pytest.mark.parametrize("engine", engines().values(), ids=engines())
def test_an_ignored_pattern_hides_no_mapped_family(engine: Engine) -> None:
    hidden = {
        family
        for upstream in engine.upstream
        for family in upstream.families
        for entry in engine.ignored
        if entry.pattern.fullmatch(engine.prefixes[0] + family)
    }
    read = {field.family for document in engine.documents for field in document.fields}
    # Its sister of the CPU is ignored by the same pattern; what is mapped comes first.
    assert hidden - read <= {"gpu_cache_usage_perc"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "engine_up"}, "starts with"),
        ({"name": "tailscope_ups_total"}, "_total is for counters"),
        ({"kind": Kind.COUNTER}, "_total is for counters"),
        ({"unit": Unit.SECONDS}, "does not end in its unit"),
        ({"help": "no sentence"}, "is a sentence"),
    ],
)
def test_a_bad_declaration_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(CatalogueError, match=words):
        replace(metric("engine_up"), **change)  # type: ignore[arg-type]


def test_an_unknown_metric_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="tailscope_nothing"):
        metric("nothing")
