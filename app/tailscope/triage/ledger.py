"""Who the excess of each slow request is owed to: the conserving ledger.

While a request waits, the engine works for others. The wait is shared out by engine time: each
tenant's own work at its fitted price, and what is left of the interval, the part of every step that
has no price, by the places in the batch that it held. While a request runs, what others did in the
same steps has a price too; the sum of these prices is kept below the measured excess, and the
remainder is the engine's, or unexplained.

    wait     q_X = (W' - M)+ * slots_X / slots + c_X * min(1, W' / M)     M = sum of c_X in [a, s]
    prefill  r_X = c_X[s, f] * min(1, (F - bF)+ / sum of c)
    decode   g_X = c_X[f, d] * min(1, (D - bD)+ / sum of c)
    engine   lost seconds of slow stretches, taken first
    sum over X of (q + r + g) + engine + unexplained = excess, for every request

The request's own tenant is one of the tenants: its siblings, without the request itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tailscope.triage.cost import Alone, Cost
from tailscope.triage.exposure import Curve, curve
from tailscope.triage.phrase import OTHERS
from tailscope.triage.residual import Residual
from tailscope.triage.work import Floats, Ints, Work

MECHANISMS = ("queue", "contention", "interference", "batch")
"""How work of others costs time: while one waits; beside one's prefill; prompts beside one's
decode; decodes beside one's decode."""

MOST_TENANTS = 200
"""Tenants that are kept apart; the rest, by engine time, is summed as one."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Seconds of excess by who they are owed to.

    Attributes:
        rows: Requests, as positions in the :class:`Work`, shape (n,).
        tenants: Names of the columns, T of them.
        owed: Seconds, shape (n, T, mechanisms).
        engine: Seconds lost because the engine was slow, shape (n,).
        unexplained: Seconds that nothing accounts for, shape (n,).
        excess: Seconds above what each would take alone, shape (n,).
        stages: The excess by stage (frontend, queue, prefill, decode), shape (n, 4).
        column: Column of each tenant of the work; shape (number of tenants,).
    """

    rows: Ints
    tenants: tuple[str, ...]
    owed: Floats
    engine: Floats
    unexplained: Floats
    excess: Floats
    stages: Floats
    column: Ints


@dataclass(frozen=True, slots=True)
class Accounts:
    """What every tenant's requests did over time, ready for any number of questions.

    Attributes:
        tenants: Names of the columns.
        column: Column of each tenant of the work.
        prompts: Price of prompt work, one curve a column.
        decodes: Price of decode work, one curve a column.
        slots: Time by places in the batch, in warped time, one curve a column.
        times: Knots of the warp, seconds.
        warped: Warped time at each knot: the integral of 1 / (requests in the batch).
    """

    tenants: tuple[str, ...]
    column: Ints
    prompts: list[Curve]
    decodes: list[Curve]
    slots: list[Curve]
    times: Floats
    warped: Floats

    def warp(self, when: Floats) -> Floats:
        """Warped time: it runs the slower, the more requests share the engine."""
        found: Floats = np.interp(when, self.times, self.warped)
        return found


def accounts(work: Work, cost: Cost) -> Accounts:
    """Cumulate the work of every tenant."""
    prompt = cost.token * work.computed + cost.pair * work.attention
    decode = cost.decode * work.steps + cost.read * work.reads
    times, warped = _warp(work)
    begin, end = np.interp(work.start, times, warped), np.interp(work.done, times, warped)
    column, tenants = _columns(work, prompt + decode + (end - begin))
    mine = column[work.tenant]
    order = np.argsort(mine, kind="stable")
    cuts = np.searchsorted(mine[order], np.arange(len(tenants) + 1))
    prompts, decodes, slots = [], [], []
    start, first, done = work.start, work.first, work.done
    for low, high in pairwise(cuts.tolist()):
        at = order[low:high]
        prompts.append(curve(start[at], first[at], prompt[at, None]))
        decodes.append(curve(first[at], done[at], decode[at, None]))
        slots.append(curve(begin[at], end[at], (end - begin)[at, None]))
    return Accounts(tenants, column, prompts, decodes, slots, times, warped)


def ledger(
    work: Work, cost: Cost, alone: Alone, found: Accounts, slow: Residual, rows: Ints
) -> Ledger:
    """Share out the excess of some requests.

    Args:
        work: All requests of the engine.
        cost: Its fitted cost.
        alone: What each request would take alone.
        found: The work of every tenant.
        slow: When the engine itself was slow.
        rows: The requests to account for.
    """
    part = work.take(rows)
    stages = np.column_stack(
        [
            part.frontend - alone.frontend[rows],
            part.queue,
            part.prefill - alone.prefill[rows],
            part.decode - alone.decode[rows],
        ]
    )
    owed = np.zeros((len(rows), len(found.tenants), len(MECHANISMS)))
    own = found.column[part.tenant]
    arrived, start, first, done = part.arrived, part.start, part.first, part.done
    engine = np.zeros(len(rows))
    wait = stages[:, 0] + stages[:, 1]
    lost = np.minimum(slow.lost(arrived, start), wait)
    engine += lost
    owed[:, :, 0] = _waiting(found, arrived, start, wait - lost)
    lost = np.minimum(slow.lost(start, first), stages[:, 2])
    engine += lost
    beside = _price(found.prompts, start, first)
    line = np.arange(len(rows))
    mine = cost.token * part.computed + cost.pair * part.attention
    beside[line, own] = np.maximum(beside[line, own] - mine, 0.0)
    beside += _price(found.decodes, start, first)
    owed[:, :, 1] = _at_most(beside, stages[:, 2] - lost)
    lost = np.minimum(slow.lost(first, done), stages[:, 3])
    engine += lost
    prompts, decodes = _price(found.prompts, first, done), _price(found.decodes, first, done)
    mine = cost.decode * part.steps + cost.read * part.reads
    decodes[line, own] = np.maximum(decodes[line, own] - mine, 0.0)
    both = _at_most(np.concatenate([prompts, decodes], axis=1), stages[:, 3] - lost)
    owed[:, :, 2], owed[:, :, 3] = np.split(both, 2, axis=1)
    excess = stages.sum(axis=1)
    rest = excess - owed.sum(axis=(1, 2)) - engine
    return Ledger(
        rows, found.tenants, owed, engine, np.maximum(rest, 0.0), excess, stages, found.column
    )


def matrix(work: Work, book: Ledger) -> Floats:
    """Seconds that the rows' tenants (first axis) owe to the columns' tenants (second axis)."""
    found = np.zeros((len(book.tenants), len(book.tenants)))
    np.add.at(found, book.column[work.tenant[book.rows]], book.owed.sum(axis=2))
    return found


def _waiting(found: Accounts, arrived: Floats, start: Floats, wait: Floats) -> Floats:
    """Waits by engine time of each tenant; shape (n, T)."""
    price = _price(found.prompts, arrived, start) + _price(found.decodes, arrived, start)
    total = price.sum(axis=1)
    scale = np.minimum(1.0, wait / np.maximum(total, 1e-12))
    shared: Floats = price * scale[:, None]
    fixed = np.maximum(wait - total, 0.0)
    slots = _price(found.slots, found.warp(arrived), found.warp(start))
    places = slots.sum(axis=1)
    share = np.where(places > 1e-12, fixed / np.maximum(places, 1e-12), 0.0)
    shared += slots * share[:, None]
    return shared


def _price(curves: list[Curve], begin: Floats, end: Floats) -> Floats:
    """Work of each tenant in each interval; shape (n, T)."""
    found = np.empty((len(begin), len(curves)))
    for column, one in enumerate(curves):
        found[:, column] = one.between(begin, end)[:, 0]
    return found


def _at_most(price: Floats, limit: Floats) -> Floats:
    """Prices, scaled down so that their sum stays within the limit of each row."""
    total = price.sum(axis=1)
    scale = np.minimum(1.0, np.maximum(limit, 0.0) / np.maximum(total, 1e-12))
    found: Floats = price * scale[:, None]
    return found


def _warp(work: Work) -> tuple[Floats, Floats]:
    times = np.concatenate([work.start, work.done])
    change = np.concatenate([np.ones(len(work)), -np.ones(len(work))])
    order = np.argsort(times, kind="stable")
    times = times[order]
    open_ = np.maximum(np.cumsum(change[order]), 0.0)
    pace = np.divide(1.0, open_, out=np.zeros_like(open_), where=open_ > 0.5)
    warped = np.concatenate([[0.0], np.cumsum(pace[:-1] * np.diff(times))])
    return times, warped


def _columns(work: Work, weight: Floats) -> tuple[Ints, tuple[str, ...]]:
    """Columns of the tenants with the most engine time; the others share the last one."""
    number = len(work.tenants)
    total = np.bincount(work.tenant, weights=weight, minlength=number)
    present = np.bincount(work.tenant, minlength=number) > 0
    if present.sum() <= MOST_TENANTS:
        kept = np.flatnonzero(present)
    else:
        kept = np.sort(np.argsort(-total, kind="stable")[: MOST_TENANTS - 1])
    column = np.full(number, len(kept), dtype=np.int64)
    column[kept] = np.arange(len(kept))
    names = tuple(work.tenants[tenant] for tenant in kept)
    return column, names if len(kept) == present.sum() else (*names, OTHERS)
