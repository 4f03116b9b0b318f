"""Who, or what, made the slow requests slow; stated only as far as the numbers carry it.

The rule of accusation is in ``accusation``, that of the grades in ``grade``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.accusation import Held, spared_by
from tailscope.triage.grade import WIDTH, confirmed, grade
from tailscope.triage.ledger import MECHANISMS
from tailscope.triage.lift import Change
from tailscope.triage.moved import came_over
from tailscope.triage.phrase import tell
from tailscope.triage.reckoning import VICTIMS, Reckoning, in_parallel, reckon
from tailscope.triage.slow import SlowRule
from tailscope.triage.stages import STAGES
from tailscope.triage.step import Limits
from tailscope.triage.study import (
    Costing,
    Study,
    changed,
    healthy,
    overlap,
    removed,
    replayed,
    study,
)
from tailscope.triage.words import percent

NOTICEABLE = 0.3
"""Seconds of excess that a client notices."""

ENGINE = 0.35

MOVED = 0.5
"""Part of a rise that came over from other servers, from which it is no change of the tenant's."""

_SUSPECTS = 12
"""Tenants that are looked at closely, by their ledger."""

_WORTH_A_LOOK = 0.02

_REPLAYED = 2
"""Engines that are calibrated: those with the most slow seconds."""

_CLOSELY = 4
"""Engines of which the limits of admission are looked for."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One tenant, or the engine, as a possible cause; shares are of the others' slow excess.

    Attributes:
        name: Tenant, or name of the engine instance.
        kind: ``tenant`` or ``engine``.
        ledger_seconds: Seconds of excess that its work held the engine.
        ledger_share: The same as a share.
        removal_seconds: Seconds that its absence would have saved.
        removal_share: The same as a share.
        replayed: Whether a replay says so, rather than the order of admission.
        victims: Slow requests of others.
        change: The stretch in which its load stands out; None if there is too little to compare.
        overlap: Share of the others' slow seconds in that stretch.
        accused: Whether all conditions of an accusation hold.
        spared: The first condition that does not hold, in words; empty if accused.
        grade: How well the numbers carry it, ``A`` to ``D``.
    """

    name: str
    kind: str
    ledger_seconds: float
    ledger_share: float
    removal_seconds: float
    removal_share: float
    replayed: bool
    victims: int
    change: Change | None
    overlap: float
    accused: bool
    spared: str
    grade: str

    @property
    def removal_range(self) -> tuple[float, float]:
        """Between which shares the true one lies in nine of ten cases, by its grade."""
        width = WIDTH[self.grade]
        return max(self.removal_share - width, 0.0), min(self.removal_share + width, 1.0)

    @property
    def lift(self) -> float | None:
        """Rate of its work in its stretch over its own usual rate."""
        return None if self.change is None else self.change.lift


@dataclass(frozen=True, slots=True)
class Attribution:
    """The verdict for a window.

    Attributes:
        costings: Costs of every engine.
        studies: One for each engine with slow requests, the one with the most slow seconds first.
        suspects: Accused ones first, then by removal.
        requests: Requests that were looked at.
        slow: Slow requests.
        excess_seconds: Their excess.
        stages: Their excess by stage: frontend, queue, prefill, decode.
        mechanisms: Their excess by how work of others costs time.
        engine_seconds: Seconds lost because an engine was slow.
        unexplained_seconds: Seconds that nothing accounts for.
        grade: Of the verdict on the engine with the most slow seconds.
    """

    costings: tuple[Costing, ...]
    studies: tuple[Study, ...]
    suspects: tuple[Suspect, ...]
    requests: int
    slow: int
    excess_seconds: float
    stages: dict[str, float]
    mechanisms: dict[str, float]
    engine_seconds: float
    unexplained_seconds: float
    grade: str

    @property
    def accused(self) -> tuple[Suspect, ...]:
        """The suspects that are accused."""
        return tuple(one for one in self.suspects if one.accused)


def attribute(
    frame: pd.DataFrame,
    *,
    quantile: float = 0.95,
    seconds: float | None = None,
    limits: Mapping[str, Limits] | None = None,
    replay: bool = True,
) -> Attribution:
    """Find who made the slow requests of a frame slow.

    Args:
        frame: Requests with the record's columns.
        quantile: Requests from this quantile of the excess on are slow.
        seconds: Requests that took at least this long are slow, instead.
        limits: Known limits by server.
        replay: Whether to calibrate engines for replays.
    """
    rule = SlowRule(100.0 * quantile, None) if seconds is None else SlowRule(None, seconds)
    found = judge(reckon(frame, rule))
    return checked(found, limits) if replay else found


def judge(found: Reckoning) -> Attribution:
    """Find who made the slow requests slow, from the ledger and the order of admission."""

    def look(place: int) -> Study:
        part = found.parts[place]
        return study(part.costing, part.slow, part.slowest, closely=place < _CLOSELY)

    return _attribution(found.costings, in_parallel(look, range(len(found.parts))))


def checked(found: Attribution, limits: Mapping[str, Limits] | None = None) -> Attribution:
    """The same, with the engines that have most of the slow seconds replayed.

    Args:
        found: The attribution.
        limits: Known limits by server.
    """

    def look(place: int) -> Study:
        one = found.studies[place]
        return replayed(one, (limits or {}).get(one.work.server)) if place < _REPLAYED else one

    return _attribution(found.costings, in_parallel(look, range(len(found.studies))))


def _attribution(costings: tuple[Costing, ...], studies: list[Study]) -> Attribution:
    books = [(one.book, one.booked(one.slow)) for one in studies]
    excess = sum(float(book.excess[rows].sum()) for book, rows in books)
    stages = sum((book.stages[rows].sum(axis=0) for book, rows in books), np.zeros(len(STAGES)))
    owed = sum(
        (book.owed[rows].sum(axis=(0, 1)) for book, rows in books), np.zeros(len(MECHANISMS))
    )
    engine = sum(float(book.engine[rows].sum()) for book, rows in books)
    ill = [_engine(one) for one in studies if one.residual.found]
    sick = any(one.accused for one in ill)
    tenants = _tenants(studies)
    agreed = _agree(tenants)
    heavy = [held.main[1] for held in tenants if held.heavy]
    suspects = [_tenant(held, costings, heavy, sick, agreed) for held in tenants]
    ranked = sorted([*ill, *suspects], key=lambda one: (not one.accused, -_weight(one)))
    return Attribution(
        costings=costings,
        studies=tuple(studies),
        suspects=tuple(ranked),
        requests=sum(len(found.work) for found in costings),
        slow=sum(len(rows) for _, rows in books),
        excess_seconds=excess,
        stages=dict(zip(STAGES, stages.tolist(), strict=True)),
        mechanisms=dict(zip(MECHANISMS, owed.tolist(), strict=True)),
        engine_seconds=engine,
        unexplained_seconds=sum(float(book.unexplained[rows].sum()) for book, rows in books),
        grade=grade(studies[0], agreed=agreed) if studies else "D",
    )


def _tenants(studies: list[Study]) -> list[Held]:
    """Seconds of the tenants that matter, those with the most in the ledger first."""
    if not studies:
        return []
    names = studies[0].work.tenants
    ledgers = {tenant: _ledger(studies, tenant) for tenant in _present(studies)}
    ranked = sorted(ledgers, key=lambda tenant: -ledgers[tenant][0])
    found = []
    for place, tenant in enumerate(ranked[:_SUSPECTS]):
        held, excess, victims, main = ledgers[tenant]
        if held <= 0.0 or (place and held < _WORTH_A_LOOK * excess):
            break
        gains = [removed(one, tenant) for one in studies]
        found.append(
            Held(
                names[tenant],
                held,
                excess,
                sum(gain.seconds for gain in gains),
                sum(gain.excess for gain in gains),
                all(gain.replayed for gain in gains),
                victims,
                (main, tenant),
            )
        )
    return found


def _present(studies: list[Study]) -> list[int]:
    """Tenants with a column of their own in some ledger."""
    return sorted(
        {
            int(tenant)
            for one in studies
            for tenant in np.unique(one.work.tenant)
            if one.book.tenants[one.book.column[tenant]] == one.work.tenants[int(tenant)]
        }
    )


def _ledger(studies: list[Study], tenant: int) -> tuple[float, float, int, Study]:
    """Seconds owed to a tenant by others, their excess and number, and where most of it was."""
    owed, excess, victims = [], 0.0, 0
    for one in studies:
        others = one.booked(one.victims(tenant))
        column = one.book.column[tenant]
        inside = column < len(one.book.tenants)
        owed.append(float(one.book.owed[others, column].sum()) if inside else 0.0)
        excess += float(one.book.excess[others].sum())
        victims += len(others)
    return sum(owed), excess, victims, studies[int(np.argmax(owed))]


def _tenant(
    held: Held, costings: tuple[Costing, ...], heavy: list[int], sick: bool, agreed: bool
) -> Suspect:
    one, tenant = held.main
    found = changed(one, tenant, tested=held.heavy, apart=heavy)
    during = overlap(one, tenant, found) if found else 0.0
    spared = spared_by(held, found, during, sick)
    if not spared and _slowed(one, tenant) < VICTIMS:
        spared = tell("fewer than {n} requests of others were noticeably slowed", n=VICTIMS)
    if not spared and found and came_over(costings, one, tenant, found) >= MOVED:
        spared = tell("its load came over from another server")
    return Suspect(
        name=held.name,
        kind="tenant",
        ledger_seconds=held.ledger,
        ledger_share=held.ledger_share,
        removal_seconds=held.removal,
        removal_share=held.removal_share,
        replayed=held.replayed,
        victims=held.victims,
        change=found,
        overlap=during,
        accused=not spared,
        spared=spared,
        grade=grade(one, agreed=agreed and confirmed(one, held)),
    )


def _slowed(one: Study, tenant: int) -> int:
    """Requests of others that were noticeably slowed."""
    others = one.work.tenant != tenant
    return int((one.costing.excess[others] >= NOTICEABLE).sum())


def _engine(one: Study) -> Suspect:
    rows = one.booked(one.slow)
    excess = float(one.book.excess[rows].sum())
    lost = float(one.book.engine[rows].sum())
    gain = healthy(one)
    share = lost / excess if excess > 0 else 0.0
    saved = gain.seconds / gain.excess if gain.excess > 0 else 0.0
    spared = (
        ""
        if max(share, saved) >= ENGINE
        else tell("it explains only {share} of the slow seconds", share=percent(max(share, saved)))
    )
    return Suspect(
        name=one.work.server or "engine",
        kind="engine",
        ledger_seconds=lost,
        ledger_share=share,
        removal_seconds=gain.seconds,
        removal_share=saved,
        replayed=gain.replayed,
        victims=len(rows),
        change=None,
        overlap=0.0,
        accused=not spared,
        spared=spared,
        grade=grade(one, agreed=True),
    )


def _agree(tenants: list[Held]) -> bool:
    """Whether ledger and removal have the same first suspect, or nearly."""
    if not tenants:
        return False
    best = max(held.removal_share for held in tenants)
    return tenants[0].removal_share >= best - 0.1


def _weight(one: Suspect) -> float:
    """Rank of a suspect: what its absence gives and what it held, counted alike."""
    return one.removal_share + one.ledger_share
