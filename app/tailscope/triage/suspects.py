"""Tenants, engines, GPUs and what lies outside of the engine, ranked as one list of suspects."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tailscope.triage.hardware import Gpu, Trouble
from tailscope.triage.outside import Outside
from tailscope.triage.phrase import tell
from tailscope.triage.study import Study
from tailscope.triage.verdict import Attribution, Suspect
from tailscope.triage.words import percent
from tailscope.triage.work import Floats

OUTSIDE = tell("outside of the engine")

_HALF = 0.5
_WORTH_A_WORD = 0.05


def ranked(
    found: Attribution, origin_ns: int, gpus: Iterable[Gpu], outside: Outside | None
) -> tuple[Suspect, ...]:
    """All suspects, accused ones first, then by what their absence would give.

    Args:
        found: The attribution: tenants and engines.
        origin_ns: Time 0 of the attribution.
        gpus: GPUs, compared with the slow requests.
        outside: What was lost outside of the engine, if that is known.
    """
    more = [_gpu(found, origin_ns, gpu) for gpu in gpus if any(one.suspect for one in gpu.beside)]
    if outside is not None and outside.share >= _WORTH_A_WORD:
        more.append(_outside(outside))
    return tuple(
        sorted(
            [*found.suspects, *more],
            key=lambda one: (not one.accused, -(one.removal_share + one.ledger_share)),
        )
    )


def _gpu(found: Attribution, origin_ns: int, gpu: Gpu) -> Suspect:
    """A GPU that was in trouble: it is owed what its engines lost meanwhile by being slow."""
    spans = _spans(gpu, origin_ns)
    lost = [_lost(one) * _during(one, spans) for one in found.studies]
    engines = [one for one in found.suspects if one.kind == "engine" and one.accused]
    share = sum(lost) / found.excess_seconds if found.excess_seconds > 0 else 0.0
    whole = sum(_lost(one) for one in found.studies)
    guilty = bool(engines) and sum(lost) >= _HALF * whole
    spared = (
        ""
        if guilty
        else tell("no engine was slower than its load explains while it was in trouble")
    )
    return Suspect(
        name=gpu.name,
        kind="gpu",
        ledger_seconds=sum(lost),
        ledger_share=share,
        removal_seconds=sum(lost),
        removal_share=share,
        replayed=False,
        victims=found.slow,
        change=None,
        overlap=sum(lost) / whole if whole > 0 else 0.0,
        accused=guilty,
        spared=spared,
        grade="C" if guilty else "D",
    )


def _lost(one: Study) -> float:
    return float(one.book.engine[one.booked(one.slow)].sum())


def _spans(gpu: Gpu, origin_ns: int) -> Floats:
    """When a GPU was in a trouble that may matter, seconds after the origin; shape (n, 2)."""
    causes = {one.cause for one in gpu.beside if one.suspect and one.trouble is Trouble.THROTTLED}
    codes = {one.cause for one in gpu.beside if one.suspect and one.trouble is Trouble.XID}
    found = [(span.start_ns, span.end_ns) for span in gpu.lost]
    if gpu.bandwidth and any(
        one.suspect and one.trouble is Trouble.BANDWIDTH for one in gpu.beside
    ):
        found += [(span.start_ns, span.end_ns) for span in gpu.bandwidth.spans]
    for throttle in gpu.throttles:
        if throttle.cause.name in causes:
            found += [(span.start_ns, span.end_ns) for span in throttle.spans]
    found += [(event.start_ns, event.time_ns) for event in gpu.xids if event.code in codes]
    return (np.array(found, dtype=np.float64).reshape(-1, 2) - origin_ns) / 1e9


def _during(one: Study, spans: Floats) -> float:
    """Part of the time in which an engine was slow that touches one of these times."""
    slow = np.flatnonzero(one.residual.slow)
    if not len(slow) or not len(spans):
        return 0.0
    begin = one.residual.begin + slow[:, None] * one.residual.length
    end = begin + one.residual.length
    return float(((begin <= spans[:, 1]) & (end >= spans[:, 0])).any(axis=1).mean())


def _outside(found: Outside) -> Suspect:
    guilty = found.share >= _HALF
    return Suspect(
        name=OUTSIDE,
        kind="outside",
        ledger_seconds=found.seconds,
        ledger_share=found.share,
        removal_seconds=found.seconds,
        removal_share=found.share,
        replayed=False,
        victims=found.requests,
        change=None,
        overlap=0.0,
        accused=guilty,
        spared=""
        if guilty
        else tell("it explains only {share} of what clients lost", share=percent(found.share)),
        grade="B",
    )
