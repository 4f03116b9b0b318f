"""How well the numbers carry a verdict, and how far a true share may be from the told one.

``A``: a replay that reproduces the records within 5 % says so, and the ledger agrees on the first
suspect. ``B``: a replay within its gate says so, or, where none was made, the ledger and the order
of admission agree and both fit well. ``C``: stage times are inferred, the replay is too far from
the records, a replay and the order of admission differ, a fit is poor, or many requests do not say
whose they are. ``D``: too little to fit, or only total times that no replay comes near to.
"""

from __future__ import annotations

from tailscope.records.record import UNKNOWN_TENANT
from tailscope.triage.accusation import Held
from tailscope.triage.stagetimes import Stages
from tailscope.triage.study import Study, admitted

WIDTH = {"A": 0.08, "B": 0.15, "C": 0.35, "D": 1.0}
"""How far a true removal share may be from the told one, by grade: nine of ten of those of
generated runs, and of real ones, are nearer. Not a confidence interval: the error is the model's,
and more requests do not make it smaller."""

_ENOUGH = 50
_GOOD_FIT = 0.9
_GOOD_ADMISSION = 0.6
_SAME = 0.15
"""Removal shares that are nearer to each other than this say the same."""

_MUCH_UNTOLD = 0.05


def grade(one: Study, *, agreed: bool) -> str:
    """Grade of what is said of one engine.

    Args:
        one: What is known of it.
        agreed: Whether ledger and removal agree on whom it is said of.
    """
    cost, near = one.costing.cost, one.fidelity
    if len(one.work) < _ENOUGH or cost.fit <= 0.0:
        return "D"
    if one.work.stages is Stages.TOTAL and (near is None or not near.passed):
        return "D"  # who held the batch when is a guess
    if one.work.stages is not Stages.MEASURED or _untold(one) > _MUCH_UNTOLD:
        return "C"
    if near is not None:
        if not near.passed:
            return "C"  # the engine does something that the replay does not know
        if near.near:
            return "A" if agreed else "B"
        return "B" if agreed else "C"
    limits = one.admission
    fits = cost.fit >= _GOOD_FIT and limits is not None and limits.fidelity >= _GOOD_ADMISSION
    return "B" if agreed and fits else "C"


def confirmed(one: Study, held: Held) -> bool:
    """Whether the order of admission says the same as a replay that is not quite near."""
    if not held.replayed or one.fidelity is None or one.fidelity.near:
        return True
    second = admitted(one, held.main[1])
    share = second.seconds / second.excess if second.excess > 0 else 0.0
    return abs(share - held.removal_share) <= _SAME


def _untold(one: Study) -> float:
    """Share of the requests that do not say whose they are."""
    names = one.work.tenants
    if UNKNOWN_TENANT not in names:
        return 0.0
    return float((one.work.tenant == names.index(UNKNOWN_TENANT)).mean())
