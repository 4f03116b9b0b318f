"""The finding as plain data for JSON. What was not computed has no key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tailscope.triage.finding import Finding, SlowRequest
from tailscope.triage.gpureport import gpu, gpu_suspects
from tailscope.triage.loads import TenantLoad
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import CONFIDENCE, LEVELS, Quantiles
from tailscope.triage.sentence import sentence
from tailscope.triage.words import iso

GRADE = "D"
"""Certainty of a suspect here: the load is associated in time, no more."""

METHOD = {
    "percentiles": "exact, interpolated linearly between the two nearest requests",
    "interval": f"{CONFIDENCE:.0%} by order statistics; null where there are too few requests",
    "excess": "seconds above the median of the ordinary requests of similar size, by stage",
    "slot_share": "part of the time in which places in the batch were held, on the same server",
}


def report(finding: Finding) -> dict[str, Any]:
    """Lay a finding out for machines; durations are seconds, shares 0-1, times ISO 8601 in UTC."""
    return _present(
        {
            "sentence": sentence(finding),
            "window": _window(finding),
            "latency": _latency(finding),
            "slow": _slow(finding),
            "suspects": [
                *(_suspect(load) for load in finding.tenants if load.slot_share_slow),
                *gpu_suspects(finding.gpus, GRADE),
            ],
            "cause": _cause(finding),
            "tenants": [_tenant(load) for load in finding.tenants],
            "gpus": [gpu(one) for one in finding.gpus] or None,
            "data_quality": _quality(finding),
            "method": METHOD,
        }
    )


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _window(finding: Finding) -> dict[str, Any]:
    window = finding.window
    return _present(
        {
            "from": None if window.start_ns is None else iso(window.start_ns),
            "to": None if window.end_ns is None else iso(window.end_ns),
            "requests": window.requests,
            "servers": list(window.servers),
            "models": list(window.models),
        }
    )


def _quantiles(values: Quantiles | None) -> dict[str, Any] | None:
    if values is None:
        return None
    levels = {name: getattr(values, name) for name in LEVELS}
    return {
        **{name: level.value for name, level in levels.items()},
        "count": values.count,
        "interval": {name: [level.low, level.high] for name, level in levels.items()},
    }


def _latency(finding: Finding) -> dict[str, Any]:
    latency = finding.latency
    return _present(
        {
            "total": _quantiles(latency.total),
            "ttft": _quantiles(latency.ttft),
            "client": _quantiles(latency.client),
            "stages": {name: _quantiles(values) for name, values in latency.stages.items()},
        }
    )


def _slow(finding: Finding) -> dict[str, Any]:
    slow = finding.slow
    return _present(
        {
            "rule": str(slow.rule),
            "threshold_seconds": slow.threshold,
            "requests": slow.requests,
            "seconds": slow.seconds,
            "excess_seconds": slow.excess_seconds,
            "by_stage": dict(slow.by_stage),
            "slowest": [_slow_request(request) for request in slow.slowest],
        }
    )


def _slow_request(request: SlowRequest) -> dict[str, Any]:
    values = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    arrived = iso(values.pop("arrived_ns"))
    return _present({**values, "arrived": arrived, "stages": dict(request.stages)})


def _suspect(load: TenantLoad) -> dict[str, Any]:
    return {
        "name": load.name,
        "kind": "tenant",
        "slot_share": load.slot_share_slow,
        "slot_share_window": load.slot_share,
        "grade": GRADE,
    }


def _cause(finding: Finding) -> dict[str, Any] | None:
    slow = finding.slow
    if slow.stage is None:
        return None
    evidence = [
        {
            "fact": f"median {stage} time of the {who} requests",
            "value": value,
            "unit": "seconds",
        }
        for stage, pair in slow.typical.items()
        if stage == slow.stage
        for who, value in zip(("slow", "other"), pair, strict=True)
    ]
    return {"stage": slow.stage, "share": slow.stage_share, "evidence": evidence}


def _tenant(load: TenantLoad) -> dict[str, Any]:
    return _present(
        {
            "name": load.name,
            "requests": load.requests,
            "slow": load.slow,
            "input_tokens": load.input_tokens,
            "output_tokens": load.output_tokens,
            "slot_seconds": load.slot_seconds,
            "slot_share": load.slot_share,
            "total": _quantiles(load.total),
            "ttft": _quantiles(load.ttft),
        }
    )


def _quality(finding: Finding) -> dict[str, Any]:
    data = finding.quality
    plain = {
        name: dict(value) if isinstance(value, Mapping) else value
        for field in dataclasses.fields(data)
        for name, value in [(field.name, getattr(data, field.name))]
    }
    return {**plain, "notes": list(notes(finding))}
