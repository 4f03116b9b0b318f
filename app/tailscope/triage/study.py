"""Everything that is known of one engine in a window: fit, ledger, removal, replay.

A :class:`Study` is made once for each engine instance; the verdict adds the studies of all engines
up by seconds. The replay is dear, so it is done on the part of the window that holds most of the
slow seconds, ``MOST_REPLAYED`` requests at most.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tailscope.triage.calibration import Engine
from tailscope.triage.cost import Alone, Cost, activity, alone, expected_decode, fit
from tailscope.triage.ledger import Accounts, Ledger, accounts, ledger
from tailscope.triage.lift import Change, change, sizes
from tailscope.triage.removal import Admission, admission, saved_waits
from tailscope.triage.replay import Fidelity, fidelity, mended, saving, without
from tailscope.triage.residual import Residual, residual
from tailscope.triage.slowdown import unbent
from tailscope.triage.step import Limits
from tailscope.triage.unmeasured import calibrated
from tailscope.triage.work import Flags, Floats, Ints, Work

MOST_ROWS = 100_000
"""Slow requests that get a ledger of their own: those with the most excess."""

MOST_REPLAYED = 4_000
"""Requests of a replay."""

FEWEST_REPLAYED = 50

_GUESSED = 0.3
"""Below this fidelity, the order of admission is a guess."""


@dataclass(frozen=True, slots=True)
class Costing:
    """An engine's requests with their costs.

    Attributes:
        work: The requests.
        cost: Fitted cost.
        alone: What each would take alone.
        excess: Seconds above that, shape (n,).
    """

    work: Work
    cost: Cost
    alone: Alone
    excess: Floats


@dataclass(frozen=True, slots=True)
class Study:
    """What is known of one engine; see the parts for their meaning.

    Attributes:
        costing: Requests and costs.
        slow: Positions of the slow requests.
        slowest: For a tenant whose own requests fill the slow ones: those of the others that were
            slowed most, by tenant.
        residual: When the engine itself was slow.
        accounts: Work of every tenant.
        book: Ledger of all these requests.
        window: Positions of the requests of the replay, consecutive.
        admission: Limits of admission, for the window; None where they were not looked for.
        engine: The calibrated engine; None before a replay, or if there were too few requests.
        fidelity: How near its play is; None without one.
        owed: Seconds of each request of the window that are owed to each tenant of the accounts,
            by mechanism.
    """

    costing: Costing
    slow: Ints
    slowest: Mapping[int, Ints]
    residual: Residual
    accounts: Accounts
    book: Ledger
    window: Ints
    admission: Admission | None
    owed: Floats
    engine: Engine | None = None
    fidelity: Fidelity | None = None

    @property
    def work(self) -> Work:
        """The requests."""
        return self.costing.work

    def victims(self, tenant: int) -> Ints:
        """Positions of the slow requests of the others."""
        if tenant in self.slowest:
            return self.slowest[tenant]
        others: Ints = self.slow[self.work.tenant[self.slow] != tenant]
        return others

    def booked(self, positions: Ints) -> Ints:
        """Rows of the ledger of some of its requests; both are in order."""
        at = np.searchsorted(self.book.rows, positions)
        at = np.minimum(at, max(len(self.book.rows) - 1, 0))
        found: Ints = at[self.book.rows[at] == positions]
        return found


@dataclass(frozen=True, slots=True)
class Removed:
    """What the absence of a tenant gives the slow requests of the others.

    Attributes:
        seconds: Seconds of excess that go away.
        excess: Seconds of excess that there are, by the same reckoning.
        replayed: Whether a replay that passed its gate says so; else the order of admission does.
    """

    seconds: float
    excess: float
    replayed: bool


def costing(work: Work) -> Costing:
    """Fit the cost of an engine and the excess of its requests."""
    prompts, decodes = activity(work)
    cost = unbent(work, prompts, decodes, fit(work, prompts, decodes))
    base = alone(work, cost)
    return Costing(work, cost, base, np.maximum(work.total - base.total, 0.0))


def slowdown(found: Costing) -> Residual:
    """When the engine was slower than the work of its requests explains."""
    prompts, decodes = activity(found.work)
    return residual(found.work, expected_decode(found.work, found.cost, prompts, decodes))


def study(
    found: Costing, slow: Ints, slowest: Mapping[int, Ints], *, closely: bool = True
) -> Study:
    """Study one engine, without a replay.

    Args:
        found: Its requests with their costs.
        slow: Positions of the slow ones.
        slowest: For tenants that fill these: the slowest of the others.
        closely: Whether to look for the limits of admission.
    """
    work, cost = found.work, found.cost
    unusual = slowdown(found)
    books = accounts(work, cost)
    if len(slow) > MOST_ROWS:
        slow = np.sort(slow[np.argsort(-found.excess[slow], kind="stable")[:MOST_ROWS]])
    rows = np.unique(np.concatenate([slow, *slowest.values()]))
    book = ledger(work, cost, found.alone, books, unusual, rows)
    window = _window(work, found.excess, rows)
    owed = ledger(work, cost, found.alone, books, unusual, window).owed
    limits = admission(work.take(window), cost) if closely else None
    return Study(found, slow, slowest, unusual, books, book, window, limits, owed)


def replayed(one: Study, known: Limits | None = None) -> Study:
    """The same with an engine that was calibrated on its window, if that has enough requests.

    Args:
        one: The study.
        known: Limits of the engine, where they are known.
    """
    if len(one.window) < FEWEST_REPLAYED:
        return one
    part = one.work.take(one.window)
    engine = calibrated(part, one.costing.cost, one.residual.speed, known)
    near = fidelity(part, engine, _flags(one.slow, one.window))
    return replace(one, engine=engine, fidelity=near)


def removed(one: Study, tenant: int) -> Removed:
    """What the absence of a tenant would have given the slow requests of the others."""
    if one.engine is None or one.fidelity is None or not one.fidelity.passed:
        return admitted(one, tenant)
    part = one.work.take(one.window)
    victims = _flags(one.victims(tenant), one.window)
    changed_play = without(part, one.engine, part.tenant == tenant)
    found = saving(part, one.engine, changed_play, victims)
    return Removed(found.seconds, found.excess, replayed=True)


def admitted(one: Study, tenant: int) -> Removed:
    """The same by the order of admission alone, without a replay."""
    part = one.work.take(one.window)
    victims = _flags(one.victims(tenant), one.window)
    excess = one.costing.excess[one.window]
    seconds = np.minimum(_saved(one, part, tenant, part.tenant == tenant), excess)[victims]
    return Removed(float(seconds.sum()), float(excess[victims].sum()), replayed=False)


def _saved(one: Study, part: Work, tenant: int, gone: Flags) -> Floats:
    """Seconds that each request of the window saves, by the order of admission.

    Where that order explains little of the waits, what the ledger owes to the tenant stands in: it
    says less than the truth, since a queue ends before all that made it has gone.
    """
    column = one.accounts.column[tenant]
    if column >= one.owed.shape[1]:
        return np.zeros(len(part))
    owed: Floats = one.owed[:, column]
    if one.admission is None or one.admission.fidelity < _GUESSED:
        return np.asarray(owed.sum(axis=1))
    service: Floats = owed[:, 1:].sum(axis=1)
    return saved_waits(part, one.costing.cost, one.admission, gone, service) + service


def healthy(one: Study) -> Removed:
    """What an engine that is never slow would have given the slow requests."""
    part = one.work.take(one.window)
    victims = _flags(one.slow, one.window)
    if one.engine is not None and one.fidelity is not None and one.fidelity.passed:
        found = saving(part, one.engine, mended(part, one.engine), victims)
        return Removed(found.seconds, found.excess, replayed=True)
    rows = one.booked(one.slow)
    book = one.book
    return Removed(float(book.engine[rows].sum()), float(book.excess[rows].sum()), replayed=False)


def changed(
    one: Study, tenant: int, *, tested: bool = True, apart: Collection[int] = ()
) -> Change | None:
    """The stretch in which a tenant's load stands out most, around the slow requests.

    Args:
        one: The study.
        tenant: The tenant.
        tested: Whether to test that against chance.
        apart: Tenants that are suspects themselves, and no measure of what the others did.
    """
    part = one.work.take(context(one))
    return change(part, sizes(part, one.costing.cost), tenant, tested=tested, apart=apart)


def context(one: Study) -> Ints:
    """Positions of the requests from well before the slow ones to well after them."""
    work, slow = one.work, one.book.rows
    begin, end = float(work.arrived[slow].min()), float(work.done[slow].max())
    margin = max(5.0 * (end - begin), 300.0)
    return np.flatnonzero((work.arrived >= begin - margin) & (work.arrived <= end + margin))


def overlap(one: Study, tenant: int, found: Change) -> float:
    """Share of the others' slow seconds that fall into a stretch, or into the queue that it left.

    A victim counts if it was there while the stretch lasted, or came within its own wait, or within
    the length of the stretch, after it.
    """
    victims = one.victims(tenant)
    part = one.work.take(victims)
    reach = found.end + np.maximum(part.wait, found.end - found.begin)
    hit = (part.done >= found.begin) & (part.arrived <= reach)
    excess = one.costing.excess[victims]
    total = float(excess.sum())
    return float(excess[hit].sum()) / total if total > 0 else 0.0


def _window(work: Work, excess: Floats, slow: Ints) -> Ints:
    """Consecutive requests around most of the slow seconds."""
    if len(work) <= MOST_REPLAYED:
        return np.arange(len(work))
    weight = np.zeros(len(work))
    weight[slow] = excess[slow]
    total = np.cumsum(np.concatenate([[0.0], weight]))
    size = MOST_REPLAYED * 3 // 4
    begin = int(np.argmax(total[size:] - total[:-size]))
    begin = max(min(begin - MOST_REPLAYED // 4, len(work) - MOST_REPLAYED), 0)
    return np.arange(begin, begin + MOST_REPLAYED)


def _flags(positions: Ints, window: Ints) -> Flags:
    """Which requests of a window are at some positions."""
    return np.isin(window, positions)
