"""A fit that a long slowdown has not bent.

A robust fit forgives a slow stretch as long as most requests ran outside of it. An engine that is
slow for half of the time, or does not recover, makes a fit of neither state: too dear for the one,
too cheap for the other. So where a fit is poor, slow zones of all positions and lengths are tried:
the cost is fitted outside of the zone, and the zone must then be slower by one factor, whatever its
load. Load alone does not do that: it makes some requests slower than others. The zone that leaves
least unexplained is taken, if it leaves far less than none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tailscope.triage.cost import Cost, decode_prices, decode_work, fit
from tailscope.triage.exposure import Curve
from tailscope.triage.stagetimes import Stages
from tailscope.triage.work import Flags, Floats, Ints, Work

POOR = 0.9
"""A fit that explains more than this needs no other."""

SLOWER = 1.3
"""Factor from which a zone counts as slow."""

_PARTS = 12
_ROWS = 1500
_FEWEST = 20
_LEAST_OUTSIDE = 0.12
_BETTER = 0.6
_ONE_FACTOR = 0.12
_VARIES = 1.25
"""Slowest over fastest part of the time, below which there is no zone to look for."""

_FEW = 5


def unbent(work: Work, prompts: Curve, decodes: Curve, cost: Cost) -> Cost:
    """The cost of a healthy engine, where a long slowdown spoiled the fit; else the same cost.

    Args:
        work: Requests of one engine.
        prompts: Their prefill work.
        decodes: Their decode work.
        cost: The plain fit.
    """
    rows = _usable(work)
    if cost.fit >= POOR or work.stages is not Stages.MEASURED or len(rows) < 2 * _FEWEST:
        return cost
    part = work.take(rows)
    matrix, seconds = decode_work(part, prompts, decodes), part.decode
    logs = _logs(matrix, seconds, decode_prices(matrix, seconds)[0])
    edges = np.linspace(float(part.first.min()), float(part.done.max()), _PARTS + 1)
    if not _varies(logs, part.first, edges):
        return cost
    best, least = None, _BETTER * _spread(logs)
    for zone in _zones(part.first, part.done, edges):
        left = _left(matrix, seconds, zone)
        if left is not None and left < least:
            best, least = zone, left
    # The whole window's requests outside of the zone: prefill and frontend have a cost, too.
    return cost if best is None else fit(part.take(best.outside), prompts, decodes)


@dataclass(frozen=True, slots=True)
class _Zone:
    """Requests that ran within a zone, and outside of it; those at its edges are in neither."""

    inside: Flags
    outside: Flags


def _usable(work: Work) -> Ints:
    rows = np.flatnonzero((work.steps >= 4) & (work.decode > 0))
    if len(rows) <= _ROWS:
        return rows
    kept: Ints = rows[np.linspace(0, len(rows) - 1, _ROWS).astype(np.int64)]
    return kept


def _varies(logs: Floats, when: Floats, edges: Floats) -> bool:
    """Whether some part of the time was slower than another, as the median of its requests."""
    at = np.searchsorted(edges[1:-1], when)
    medians = [
        float(np.median(logs[at == one])) for one in range(_PARTS) if (at == one).sum() >= _FEW
    ]
    return bool(medians) and max(medians) - min(medians) >= np.log(_VARIES)


def _zones(first: Floats, done: Floats, edges: Floats) -> Iterator[_Zone]:
    width = float(edges[1] - edges[0])
    for low, high in combinations(range(_PARTS + 1), 2):
        begin, end = float(edges[low]), float(edges[high])
        # The slowdown begins and ends somewhere in the parts at the edges of the zone.
        inside = (first >= (begin + width if low else begin)) & (
            done <= (end - width if high < _PARTS else end)
        )
        yield _Zone(inside, (done <= begin) | (first >= end))


def _left(matrix: Floats, seconds: Floats, zone: _Zone) -> float | None:
    """What a zone that is slower by one factor leaves unexplained; None if it is not that."""
    least = max(_FEWEST, _LEAST_OUTSIDE * len(seconds))
    if zone.inside.sum() < _FEWEST or zone.outside.sum() < least:
        return None
    prices, explained = decode_prices(matrix[zone.outside], seconds[zone.outside])
    if explained < POOR:
        return None
    logs = _logs(matrix, seconds, prices)
    slow, usual = logs[zone.inside], logs[zone.outside]
    factor = float(np.median(slow))
    if factor < np.log(SLOWER) or _spread(slow) > _ONE_FACTOR:
        return None
    return float(np.abs(np.concatenate([slow - factor, usual])).mean())


def _logs(matrix: Floats, seconds: Floats, prices: Floats) -> Floats:
    found: Floats = np.log(seconds / np.maximum(matrix @ prices, 1e-9))
    return found


def _spread(logs: Floats) -> float:
    return float(np.abs(logs - np.median(logs)).mean())
