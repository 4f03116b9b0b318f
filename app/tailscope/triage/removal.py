"""What a tenant's absence would give, from the order of admission alone: the quick estimate.

Requests are let in in the order of their arrival, each as soon as it is its turn and there is room:

    t = max(arrival, start before, prompts before computed, room in the batch, room in the cache)
    prompts before computed = t + kappa * (own prefill alone),   leaves at t + residence

Which of the limits holds is found by fit: the one whose waits are nearest to the measured ones.
Without tenant X the rest is replayed with shorter residence, by what the ledger owes to X:

    saved = (W^ - W^(-X))+ + prefill and decode seconds owed to X

It is not additive, and must not be: two tenants may each be enough to cause a queue. It says little
where its own waits are far from the measured ones (``fidelity``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from tailscope.triage.calibration import most, most_tokens
from tailscope.triage.cost import Cost
from tailscope.triage.work import Flags, Floats, Ints, Work

_KAPPA = (0.0, 0.5, 0.75, 1.0, 1.25)
_CACHE = (0.9, 1.0, 1.15)
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits of admission that fit best.

    Attributes:
        limiter: What holds requests back: ``slots``, ``cache`` or ``budget``.
        slots: Requests in the batch at most.
        cache: Tokens in the cache at most.
        kappa: Part of its own prefill during which a request keeps the next one out.
        fidelity: 1 - sum |replayed - measured wait| / sum of measured waits.
    """

    limiter: str
    slots: float
    cache: float
    kappa: float
    fidelity: float


def admission(work: Work, cost: Cost) -> Admission:
    """Find the limits of admission whose waits are nearest to the measured ones."""
    slots, tokens = float(most(work)), most_tokens(work)
    choices = [("slots", slots, math.inf)]
    choices += [("cache", math.inf, tokens * part) for part in _CACHE]
    choices += [("budget", math.inf, math.inf)]
    best = Admission("budget", math.inf, math.inf, 0.0, -math.inf)
    measured = work.wait
    total = max(float(measured.sum()), 1e-9)
    residence = work.prefill + work.decode
    for limiter, slot, cache in choices:
        for kappa in _KAPPA:
            tried = Admission(limiter, slot, cache, kappa, 0.0)
            error = float(np.abs(waits(work, cost, tried, residence) - measured).sum())
            if 1.0 - error / total > best.fidelity:
                best = Admission(limiter, slot, cache, kappa, 1.0 - error / total)
    return best


def waits(work: Work, cost: Cost, found: Admission, residence: Floats) -> Floats:
    """Seconds that each request waits under these limits.

    Args:
        work: Requests by arrival.
        cost: Fitted cost.
        found: Limits of admission.
        residence: Seconds from each one's first step to its last, shape (n,).
    """
    busy = found.kappa * (cost.own_token * work.computed + cost.own_pair * work.attention)
    size = work.context + 0.5 * work.output
    alone = _in_turn(work.arrived, busy)
    if not _binding(alone, residence, size, found):
        return alone - work.arrived
    leaving: list[tuple[float, float]] = []
    last = free = held = 0.0
    starts = []
    rows = zip(work.arrived.tolist(), busy.tolist(), residence.tolist(), size.tolist(), strict=True)
    slots, cache = found.slots, found.cache
    # A million turns: comparisons take a third of the time of ``max``.
    for arrived, own, stay, tokens in rows:
        at = arrived if arrived > last else last
        if free > at:
            at = free
        while leaving:
            end = leaving[0][0]
            if end > at:
                if len(leaving) < slots and held + tokens <= cache:
                    break
                at = end
            held -= heappop(leaving)[1]
        heappush(leaving, (at + stay, tokens))
        held += tokens
        last, free = at, at + own
        starts.append(at)
    return np.array(starts) - work.arrived


def _in_turn(arrived: Floats, busy: Floats) -> Floats:
    """When each starts, if it waits for the prompts before it alone."""
    before = np.concatenate([[0.0], np.cumsum(busy[:-1])])
    found: Floats = np.maximum(np.maximum.accumulate(arrived - before) + before, arrived)
    return found


def _binding(starts: Floats, residence: Floats, size: Floats, found: Admission) -> bool:
    """Whether there is ever no room, if all start when it is their turn."""
    stay = starts + residence > starts
    begin, held = starts[stay], np.concatenate([[0.0], np.cumsum(size[stay])])
    end = begin + residence[stay]
    order = np.argsort(end, kind="stable")
    gone = np.searchsorted(end[order], starts, side="right")
    freed = np.concatenate([[0.0], np.cumsum(size[stay][order])])
    number: Ints = np.cumsum(stay) - stay
    inside = held[number] - freed[gone]
    full = inside + size > found.cache * (1.0 - _ROUNDING)
    return bool((number - gone >= found.slots).any() or full.any())


def saved_waits(
    work: Work, cost: Cost, found: Admission, removed: Flags, shorter: Floats
) -> Floats:
    """Seconds that each request would wait less; 0 for the removed ones.

    Args:
        work: Requests by arrival.
        cost: Fitted cost.
        found: Limits of admission.
        removed: Which requests are taken away.
        shorter: Seconds by which each one's residence is shorter then, shape (n,).
    """
    residence = work.prefill + work.decode
    before = waits(work, cost, found, residence)
    kept = np.flatnonzero(~removed)
    part = work.take(kept)
    after = waits(part, cost, found, np.maximum(residence[kept] - shorter[kept], 0.0))
    gain = np.zeros(len(work))
    gain[kept] = np.maximum(before[kept] - after, 0.0)
    return gain
