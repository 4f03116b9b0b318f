"""When a tenant may be accused.

A tenant is accused if all of this holds:

    removal share >= 0.35    without it, that part of the others' excess would not have been
    ledger share  >= 0.20    its work did hold the engine while they waited or ran
    a change                 its load rose by half or more, in a stretch that an unchanged tenant
                             of its burstiness would show once in two hundred times at most
    of its own               beyond what the load of the others did in that stretch, and not what
                             came over from another server
    at the right time        at least half of the others' slow seconds fall into it
    victims                  at least 8 requests of others that were noticeably slowed
    a healthy engine         the engine itself explains less than 0.35 of the excess

The first two alone would accuse the largest tenant of every full engine; the change alone would
accuse whoever had a lively minute. What is large and steady is a question of capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailscope.records.record import UNKNOWN_TENANT
from tailscope.triage.lift import SURGE, Change
from tailscope.triage.phrase import tell
from tailscope.triage.study import Study
from tailscope.triage.words import percent

REMOVAL = 0.35
LEDGER = 0.20
LIFT = 1.5
CHANCE = 0.005
"""No shuffled load stands out as much."""

OWN_IN_SURGE = 3.0
OVERLAP = 0.5


@dataclass(frozen=True, slots=True)
class Held:
    """Seconds of one tenant, summed over the engines.

    Attributes:
        name: The tenant.
        ledger: Seconds of the others' excess that its work held the engine.
        excess: Seconds of the others' excess.
        removal: Seconds that its absence saves.
        removal_excess: Seconds of excess by the reckoning of the removal.
        replayed: Whether replays say so.
        victims: Slow requests of others.
        main: The engine where most of it was, and the tenant's number.
    """

    name: str
    ledger: float
    excess: float
    removal: float
    removal_excess: float
    replayed: bool
    victims: int
    main: tuple[Study, int]

    @property
    def heavy(self) -> bool:
        """Whether ledger and removal carry enough for an accusation."""
        return self.removal_share >= REMOVAL and self.ledger_share >= LEDGER

    @property
    def ledger_share(self) -> float:
        """Seconds of the ledger as a share of the others' excess."""
        return self.ledger / self.excess if self.excess > 0 else 0.0

    @property
    def removal_share(self) -> float:
        """Seconds that its absence saves as a share of the others' excess."""
        return self.removal / self.removal_excess if self.removal_excess > 0 else 0.0


def spared_by(held: Held, found: Change | None, during: float, sick: bool) -> str:
    """The first condition of an accusation that does not hold, in words."""
    if held.name == UNKNOWN_TENANT:
        return tell("these requests do not say whose they are")
    if held.removal_share < REMOVAL:
        return tell(
            "without it only {share} of the slow seconds would go away",
            share=percent(held.removal_share),
        )
    if held.ledger_share < LEDGER:
        return tell(
            "its work held the engine for only {share} of the slow seconds",
            share=percent(held.ledger_share),
        )
    if found is None:
        return tell("it has too few requests to compare its load with its own past")
    if found.lift < LIFT:
        return tell("its load was as usual: it is large, not new")
    if found.p > CHANCE:
        lift = f"{found.lift:.1f}"
        return tell("bursts of {lift} times its usual work are a habit of its own", lift=lift)
    if found.others >= SURGE and found.lift < OWN_IN_SURGE * found.others:
        return tell("the load of most others rose as well")
    if found.own < LIFT:
        return tell("its load rose no more than that of the others")
    if during < OVERLAP:
        return tell("its load rose at another time")
    if sick:
        return tell("the engine itself was slow")
    return ""
