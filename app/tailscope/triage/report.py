"""The diagnosis as plain data for JSON. What was not computed has no key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tailscope.triage.accusation import LEDGER, LIFT, REMOVAL
from tailscope.triage.capacity import Capacity
from tailscope.triage.cause import Explanation
from tailscope.triage.comparison import Comparison
from tailscope.triage.diagnosis import Diagnosis, Graded, Offline
from tailscope.triage.finding import Finding, SlowRequest
from tailscope.triage.fixes import Quantiles as Tail
from tailscope.triage.gpureport import gpu, gpu_evidence
from tailscope.triage.lift import Change
from tailscope.triage.loads import TenantLoad
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import CONFIDENCE, LEVELS, Quantiles
from tailscope.triage.statement import GRADES
from tailscope.triage.study import Study
from tailscope.triage.verdict import Suspect
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
    "lift": "its work in the stretch in which it stands out most, over its usual work",
    "accused": f"removal share from {REMOVAL:g} on, ledger share from {LEDGER:g} on, lift from "
    f"{LIFT:g} on, at the time of the slow seconds, unlikely by chance, and a healthy engine",
    "grade": "; ".join(f"{grade}: {text}" for grade, text in GRADES.items()),
}

_PLACES = 6


def report(found: Diagnosis) -> dict[str, Any]:
    """Lay a diagnosis out for machines; durations are seconds, shares 0-1, times ISO 8601 in UTC.

    Everything that was not computed yet is computed.
    """
    finding = found.finding
    found.attribution  # noqa: B018 - the replay comes first: all that follows builds on it
    return _present(
        {
            "sentence": found.sentence,
            "verdict": {"text": found.verdict, "grade": found.best.grade},
            "window": _window(finding),
            "latency": _latency(finding),
            "slow": _slow(finding),
            "suspects": _suspects(found),
            "cause": _cause(found.cause),
            "fixes": [_fix(one) for one in found.fixes],
            "not_helping": [
                {"name": one.fix.name, "gain": _round(one.fix.gain)}
                for one in found.tried
                if not one.fix.helps
            ],
            "capacity": _capacity(found.capacity()),
            "engines": [_engine(one, found.reckoning.origin_ns) for one in found.best.studies],
            "ledger": _ledger(found),
            "associations": [dataclasses.asdict(one) for one in found.associations if one.found],
            "retries": dataclasses.asdict(found.retries) if found.retries.any else None,
            "offline": _offline(found.offline),
            "comparison": _comparison(found.comparison),
            "tenants": [_tenant(load) for load in finding.tenants],
            "gpus": [gpu(one) for one in finding.gpus] or None,
            "data_quality": _quality(finding),
            "method": METHOD,
        }
    )


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _round(value: float) -> float:
    """Without the digits that are noise of the arithmetic."""
    return round(value, _PLACES)


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
        "at_least": [name for name, level in levels.items() if not level.bounded],
    }


def _latency(finding: Finding) -> dict[str, Any]:
    latency = finding.latency
    return _present(
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
    return _present(
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
    return _present({**values, "arrived": arrived, "stages": dict(request.stages)})


def _suspects(found: Diagnosis) -> list[dict[str, Any]]:
    origin = found.reckoning.origin_ns
    gpus = {one.name: one for one in found.finding.gpus}
    shapes = []
    for one in found.suspects:
        shape = _suspect(one, origin)
        if one.kind == "tenant" and one.name in found.correlations:
            shape["correlation"] = dataclasses.asdict(found.correlations[one.name])
        if one.kind == "gpu":
            board = gpus[one.name]
            shape |= {"uuid": board.uuid} if board.uuid else {}
            shape["evidence"] = gpu_evidence(board)
        shapes.append(shape)
    return shapes


def _suspect(one: Suspect, origin_ns: int) -> dict[str, Any]:
    by = {"tenant": "replay" if one.replayed else "admission"}.get(one.kind)
    return {
        "name": one.name,
        "kind": one.kind,
        "ledger_share": _round(one.ledger_share),
        "removal_share": _round(one.removal_share),
        "removal_seconds": _round(one.removal_seconds),
        "lift": None if one.lift is None else _round(one.lift),
        "accused": one.accused,
        "grade": one.grade,
        **_present(
            {
                "not_accused_because": one.spared or None,
                "by": by,
                "ledger_seconds": _round(one.ledger_seconds),
                "victims": one.victims,
                "change": None if one.change is None else _change(one.change, origin_ns),
            }
        ),
    }


def _change(found: Change, origin_ns: int) -> dict[str, Any]:
    begin, end = (iso(origin_ns + int(at * 1e9)) for at in (found.begin, found.end))
    shares = ("lift", "others", "requests", "input", "output", "cached")
    return {
        "from": begin,
        "to": end,
        **{name: _round(getattr(found, name)) for name in shares},
    }


def _cause(found: Explanation | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "name": found.cause.value,
        "share": _round(found.share),
        "evidence": [dataclasses.asdict(one) for one in found.evidence],
    }


def _fix(found: Graded) -> dict[str, Any]:
    fix = found.fix
    return {
        "name": fix.name,
        "change": fix.change,
        "predicted": {
            **_tails("p99", fix.before, fix.after),
            **_tails("p95", fix.before, fix.after),
            **_tails("p50", fix.before, fix.after),
        },
        "others": _present(
            {
                "who": fix.payers,
                **(_tails("p99", fix.payers_before, fix.payers_after)),
                "lost_requests": fix.lost,
            }
        ),
        "grade": found.grade,
        "server": found.server,
        "config": dict(found.config),
    }


def _tails(name: str, before: Tail | None, after: Tail | None) -> dict[str, Any]:
    return _present(
        {
            f"{name}_before": None if before is None else _round(getattr(before, name)),
            f"{name}_after": None if after is None else _round(getattr(after, name)),
        }
    )


def _capacity(found: Capacity | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return _present(
        {
            "points": [dataclasses.asdict(point) for point in found.points],
            "knee": found.knee,
            "headroom": found.headroom,
        }
    )


def _engine(one: Study, origin_ns: int) -> dict[str, Any]:
    """How well the models of one engine fit."""
    cost, near, engine = one.costing.cost, one.fidelity, one.engine
    first, last = (one.work.arrived[one.window[at]] for at in (0, -1))
    return _present(
        {
            "server": one.work.server,
            "model": one.work.model or None,
            "requests": len(one.work),
            "stages": str(one.work.stages),
            "cost_fit": _round(cost.fit),
            "seconds_per_step": cost.step,
            "seconds_per_prompt_token": cost.own_token,
            "slowest_ratio": _round(one.residual.worst) if one.residual.found else None,
            "replay": None
            if near is None or engine is None
            else {
                "from": iso(origin_ns + int(first * 1e9)),
                "to": iso(origin_ns + int(last * 1e9)),
                "requests": len(one.window),
                "loss": _round(near.loss),
                "slow_ratio": _round(near.ratio),
                "passed": near.passed,
                "scheduler": str(engine.limits.scheduler),
            },
            "admission": None
            if one.admission is None
            else {
                "limiter": one.admission.limiter,
                "fidelity": _round(one.admission.fidelity),
            },
        }
    )


def _ledger(found: Diagnosis) -> dict[str, Any]:
    best = found.best
    return {
        "excess_seconds": _round(best.excess_seconds),
        "mechanisms": {name: _round(value) for name, value in best.mechanisms.items()},
        "engine_seconds": _round(best.engine_seconds),
        "unexplained_seconds": _round(best.unexplained_seconds),
    }


def _offline(found: Offline | None) -> dict[str, Any] | None:
    if found is None:
        return None
    outliers = [
        {
            "tenant": one.tenant,
            "seconds": one.seconds,
            "usual_seconds": one.usual,
            "reason": one.reason,
        }
        for one in found.outliers
    ]
    return {"outliers": outliers, "removal_share": dict(found.relief)}


def _comparison(found: Comparison | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "outcome": found.outcome.value,
        "reasons": list(found.reasons),
        "shifts": [dataclasses.asdict(one) for one in found.shifts],
    }


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
