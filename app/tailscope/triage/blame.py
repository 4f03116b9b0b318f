"""Tenant by tenant: who made whom wait, over all requests, not only the slow ones.

The exact ledger asks for every request what every tenant did in its intervals; for millions of rows
that is too much. Here time is cut into bins. The excess of the victims is spread over the bins in
which it was spent (fractional at the edges, so that no second is lost), and shared out in each bin
by the engine time of the tenants there:

    blame = Q^T C      Q: excess seconds (bins x victims), C: shares of the work (bins x tenants)
"""

from __future__ import annotations

import numpy as np

from tailscope.triage.cost import Alone, Cost
from tailscope.triage.ledger import Accounts
from tailscope.triage.work import Floats, Ints, Work

MOST_CELLS = 100_000
"""Bins times tenants at most."""

SHORTEST_BIN = 0.25
_INSTANT = 1e-3


def matrix(work: Work, cost: Cost, alone: Alone, found: Accounts) -> Floats:
    """Excess seconds of each tenant's requests (rows) by who worked meanwhile (columns).

    A victim's own siblings stand on the diagonal, and with them its own work in the bin: for one
    request the exact ledger leaves it out.

    Args:
        work: Requests of one engine.
        cost: Fitted cost.
        alone: What each request would take alone.
        found: Work of every tenant.

    Returns:
        Shape (T, T + 1); the last column is what no tenant worked for.
    """
    number = len(found.tenants)
    begin = float(work.arrived.min())
    end = max(float(work.done.max()), begin + _INSTANT)
    bins = int(np.clip((end - begin) / SHORTEST_BIN, 1, MOST_CELLS // number))
    edges = np.linspace(begin, end, bins + 1)
    load = _work(work, cost, found, edges)
    total = load.sum(axis=1)
    share = load / np.maximum(total, 1e-300)[:, None]
    share[total <= 0] = 0.0
    victim = found.column[work.tenant]
    waits = np.maximum(work.wait - alone.frontend, 0.0)
    runs = np.maximum(work.prefill - alone.prefill + work.decode - alone.decode, 0.0)
    spent = _spread(work.arrived, work.start, waits, victim, edges, number)
    spent += _spread(work.start, work.done, runs, victim, edges, number)
    blame = np.empty((number, number + 1))
    blame[:, :number] = spent.T @ share
    blame[:, number] = spent.sum(axis=0) - blame[:, :number].sum(axis=1)
    return blame


def _work(work: Work, cost: Cost, found: Accounts, edges: Floats) -> Floats:
    """Engine time of each tenant in each bin; shape (bins, T)."""
    number, who = len(found.tenants), found.column[work.tenant]
    prompt = cost.token * work.computed + cost.pair * work.attention
    decode = cost.decode * work.steps + cost.read * work.reads
    start, first, done = work.start, work.first, work.done
    load = _spread(start, first, prompt, who, edges, number)
    load += _spread(first, done, decode, who, edges, number)
    # What has no price is shared by the places in the batch.
    fixed = _spread(start, done, done - start, who, edges, number)
    rest = np.maximum(np.diff(edges) - load.sum(axis=1), 0.0)
    load += fixed * (rest / np.maximum(fixed.sum(axis=1), 1e-300))[:, None]
    return load


def _spread(
    begin: Floats, end: Floats, seconds: Floats, who: Ints, edges: Floats, number: int
) -> Floats:
    """Seconds spread evenly over [begin, end), by bin and group; shape (bins, number).

    The mass of a request until each edge is piecewise linear: its second differences are put into
    the bins of its two ends, and summed up twice.
    """
    bins = len(edges) - 1
    width = (edges[-1] - edges[0]) / bins
    length = np.maximum(end - begin, _INSTANT)
    rate = seconds / length
    until = np.zeros((bins + 1) * number)
    slope = np.zeros((bins + 1) * number)
    for when, sign in ((begin, 1.0), (begin + length, -1.0)):
        at = np.clip(((when - edges[0]) / width).astype(np.int64), 0, bins - 1)
        after = edges[at + 1] - when
        cell = (at + 1) * number + who
        until += np.bincount(cell, weights=sign * rate * after, minlength=len(until))
        slope += np.bincount(cell, weights=sign * rate, minlength=len(slope))
    # until: jumps at the edges; slope: changes of the rate at the edges.
    rates = np.cumsum(slope.reshape(-1, number), axis=0)
    mass = np.cumsum(until.reshape(-1, number), axis=0)
    mass[1:] += np.cumsum(rates[:-1], axis=0) * width
    result: Floats = np.diff(mass, axis=0)
    return np.maximum(result, 0.0)
