"""A fit that a long slowdown has not bent.

A robust fit forgives a slow stretch as long as most requests ran outside of it. An engine that is
slow for half of the time, or does not recover, makes a fit of neither state: too dear for the one,
too cheap for the other. So where a fit is poor, slow zones of all positions and lengths are tried:
the cost is fitted outside of the zone, and the zone must then be slower by one factor, whatever its
load. Load alone does not do that: it makes some requests slower than others. The zone that leaves
least unexplained is taken, if it leaves far less than none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tailscope.triage.cost import Cost, expected_decode, fit
from tailscope.triage.exposure import Curve
from tailscope.triage.work import Flags, Floats, Ints, Stages, Work

POOR = 0.9
"""A fit that explains more than this needs no other."""

SLOWER = 1.3
"""Factor from which a zone counts as slow."""

_PARTS = 12
_ROWS = 3000
_FEWEST = 20
_LEAST_OUTSIDE = 0.12
_BETTER = 0.6
_ONE_FACTOR = 0.12


@dataclass(frozen=True, slots=True)
class _Zone:
    cost: Cost
    left: float


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
    first, done = part.first, part.done
    edges = np.linspace(float(first.min()), float(done.max()), _PARTS + 1)
    plain = _spread(_logs(part, prompts, decodes, cost))
    best = _Zone(cost, _BETTER * plain)
    width = float(edges[1] - edges[0])
    for low, high in combinations(range(_PARTS + 1), 2):
        begin, end = float(edges[low]), float(edges[high])
        # The slowdown begins and ends somewhere in the parts at the edges of the zone.
        inside = (first >= (begin + width if low else begin)) & (
            done <= (end - width if high < _PARTS else end)
        )
        outside = (done <= begin) | (first >= end)
        found = _tried(part, prompts, decodes, inside, outside)
        if found is not None and found.left < best.left:
            best = found
    return best.cost


def _usable(work: Work) -> Ints:
    rows = np.flatnonzero((work.steps >= 4) & (work.decode > 0))
    if len(rows) <= _ROWS:
        return rows
    kept: Ints = rows[np.linspace(0, len(rows) - 1, _ROWS).astype(np.int64)]
    return kept


def _tried(
    part: Work, prompts: Curve, decodes: Curve, inside: Flags, outside: Flags
) -> _Zone | None:
    """Fit outside of a zone; None if the zone is not slower by one factor."""
    least = max(_FEWEST, _LEAST_OUTSIDE * len(part))
    if inside.sum() < _FEWEST or outside.sum() < least:
        return None
    cost = fit(part.take(outside), prompts, decodes)
    if cost.fit < POOR:
        return None
    logs = _logs(part, prompts, decodes, cost)
    slow, usual = logs[inside], logs[outside]
    factor = float(np.median(slow))
    if factor < np.log(SLOWER) or _spread(slow) > _ONE_FACTOR:
        return None
    both = np.concatenate([slow - factor, usual])
    return _Zone(cost, float(np.abs(both).sum()) / len(both))


def _logs(part: Work, prompts: Curve, decodes: Curve, cost: Cost) -> Floats:
    expected = expected_decode(part, cost, prompts, decodes)
    found: Floats = np.log(part.decode / np.maximum(expected, 1e-9))
    return found


def _spread(logs: Floats) -> float:
    return float(np.abs(logs - np.median(logs)).mean())
