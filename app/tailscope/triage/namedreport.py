"""What is said of suspects, cause, fixes and engines, as plain data for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tailscope.triage.capacity import Capacity
from tailscope.triage.cause import Explanation
from tailscope.triage.comparison import Comparison
from tailscope.triage.diagnosis import Diagnosis, Graded, Matrix, Offline
from tailscope.triage.fixes import Quantiles as Tail
from tailscope.triage.gpureport import gpu_evidence
from tailscope.triage.lift import Change
from tailscope.triage.study import Study
from tailscope.triage.verdict import Suspect
from tailscope.triage.words import iso

_PLACES = 6
_MOST_TENANTS = 40
"""Tenants of a matrix: those whose requests lost most."""


def named(found: Diagnosis) -> dict[str, Any]:
    """Everything that names somebody, or something to change; what was not computed is None."""
    return {
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
        "matrices": [_matrix(one) for one in found.matrices],
        "associations": [dataclasses.asdict(one) for one in found.associations if one.found],
        "retries": dataclasses.asdict(found.retries) if found.retries.any else None,
        "offline": _offline(found.offline),
        "comparison": _comparison(found.comparison),
    }


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known."""
    return {name: value for name, value in values.items() if value is not None}


def _round(value: float) -> float:
    """Without the digits that are noise of the arithmetic."""
    return round(value, _PLACES)


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
        **present(
            {
                "not_accused_because": one.spared or None,
                "by": by,
                "ledger_seconds": _round(one.ledger_seconds),
                "removal_range": (
                    [_round(bound) for bound in one.removal_range] if one.kind == "tenant" else None
                ),
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
        "others": present(
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
    return present(
        {
            f"{name}_before": None if before is None else _round(getattr(before, name)),
            f"{name}_after": None if after is None else _round(getattr(after, name)),
        }
    )


def _capacity(found: Capacity | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return present(
        {
            "points": [dataclasses.asdict(point) for point in found.points],
            "knee": found.knee,
            "saturated": found.saturated,
            "seen": found.seen,
            "headroom": found.headroom,
        }
    )


def _engine(one: Study, origin_ns: int) -> dict[str, Any]:
    """How well the models of one engine fit."""
    cost, near, engine = one.costing.cost, one.fidelity, one.engine
    first, last = (one.work.arrived[one.window[at]] for at in (0, -1))
    return present(
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


def _matrix(found: Matrix) -> dict[str, Any]:
    """Seconds lost by the tenants of the rows while those of the columns were worked on."""
    order = np.argsort(-found.seconds.sum(axis=1), kind="stable")[:_MOST_TENANTS]
    kept = np.concatenate([order, [len(found.tenants)]])
    return {
        "server": found.server,
        "tenants": [found.tenants[at] for at in order],
        "seconds": found.seconds[np.ix_(order, kept)].round(_PLACES).tolist(),
    }


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
