"""The diagnosis as plain data for JSON. What was not computed has no key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tailscope.triage.accusation import LEDGER, LIFT, REMOVAL
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.finding import Finding, SlowRequest
from tailscope.triage.gpureport import gpu
from tailscope.triage.loads import TenantLoad
from tailscope.triage.namedreport import named, present
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import CONFIDENCE, LEVELS, Quantiles
from tailscope.triage.statement import GRADES
from tailscope.triage.words import iso

METHOD = {
    "percentiles": "exact, interpolated linearly between the two nearest requests; requests that "
    "were given up count as longer than they were seen (Kaplan-Meier)",
    "interval": f"{CONFIDENCE:.0%} by order statistics; null where there are too few requests",
    "excess": "seconds above what the request would take alone on the same engine, by a fitted "
    "cost of prompt and generated tokens",
    "ledger_share": "part of the slow seconds of the other tenants in which its work held the "
    "engine; all shares, the engine's and the unexplained part sum to the whole",
    "removal_share": "part of the slow seconds of the others that would go away without it, by "
    "replay where one passed its check; these do not sum to 1",
    "removal_range": "where the true share lies in nine of ten cases, by the grade: the error is "
    "the model's, not one of chance",
    "lift": "its work in the stretch in which it stands out most, over its usual work",
    "accused": f"removal share from {REMOVAL:g} on, ledger share from {LEDGER:g} on, lift from "
    f"{LIFT:g} on, at the time of the slow seconds, unlikely by chance, and a healthy engine",
    "grade": "; ".join(f"{grade}: {text}" for grade, text in GRADES.items()),
}


def report(found: Diagnosis) -> dict[str, Any]:
    """Lay a diagnosis out for machines; durations are seconds, shares 0-1, times ISO 8601 in UTC.

    Everything that was not computed yet is computed.
    """
    finding = found.finding
    found.attribution  # noqa: B018 - the replay comes first: all that follows builds on it
    return present(
        {
            "sentence": found.sentence,
            "verdict": {"text": found.verdict, "grade": found.best.grade},
            "window": _window(finding),
            "latency": _latency(finding),
            "slow": _slow(finding),
            **named(found),
            "tenants": [_tenant(load) for load in finding.tenants],
            "gpus": [gpu(one) for one in finding.gpus] or None,
            "data_quality": _quality(finding),
            "method": METHOD,
        }
    )


def _window(finding: Finding) -> dict[str, Any]:
    window = finding.window
    return present(
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
        "at_least": [name for name, level in levels.items() if not level.bounded],
    }


def _latency(finding: Finding) -> dict[str, Any]:
    latency = finding.latency
    return present(
        {
            "total": _quantiles(latency.total),
            "ttft": _quantiles(latency.ttft),
            "client": _quantiles(latency.client),
            "stages": {name: _quantiles(values) for name, values in latency.stages.items()},
            "cut": None if latency.cut is None else dataclasses.asdict(latency.cut),
        }
    )


def _slow(finding: Finding) -> dict[str, Any]:
    slow = finding.slow
    return present(
        {
            "rule": str(slow.rule),
            "threshold_seconds": slow.threshold,
            "requests": slow.requests,
            "seconds": slow.seconds,
            "excess_seconds": slow.excess_seconds,
            "by_stage": dict(slow.by_stage),
            "inferred": slow.inferred,
            "slowest": [_slow_request(request) for request in slow.slowest],
        }
    )


def _slow_request(request: SlowRequest) -> dict[str, Any]:
    values = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    arrived = iso(values.pop("arrived_ns"))
    return present({**values, "arrived": arrived, "stages": dict(request.stages)})


def _tenant(load: TenantLoad) -> dict[str, Any]:
    return present(
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
    epochs = [
        {
            "server": one.server,
            "model": one.model,
            "from": iso(finding.origin_ns + int(one.begin * 1e9)),
            "pause_seconds": one.pause,
            "slower": one.slower,
        }
        for one in finding.epochs
    ]
    return {**plain, "epochs": epochs, "notes": list(notes(finding))}
