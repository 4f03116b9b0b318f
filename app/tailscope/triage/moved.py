"""Did a tenant send more, or did what it always sends come over from another server?

Where a server is gone, or its router sends elsewhere, the load of a tenant rises on one engine as
it falls on the others of the same model. That is a change of the servers, and not the tenant's.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailscope.triage.lift import Change, sizes
from tailscope.triage.study import Costing, Study, context


def came_over(costings: Iterable[Costing], one: Study, tenant: int, found: Change) -> float:
    """Part of a rise on one engine by which the same tenant's load fell on the others.

    Args:
        costings: All engines.
        one: The engine where it rose.
        tenant: Position of the tenant in the tenants of the work.
        found: The stretch in which it rose.
    """
    arrived = one.work.arrived[context(one)]
    window = float(arrived.min()), float(arrived.max())
    rise = _rise(one.costing, tenant, found, window)
    elsewhere = sum(
        _rise(other, tenant, found, window)
        for other in costings
        if other is not one.costing and other.work.model == one.work.model
    )
    return max(-elsewhere, 0.0) / rise if rise > 0 else 0.0


def _rise(one: Costing, tenant: int, found: Change, window: tuple[float, float]) -> float:
    """Engine seconds a second within a stretch, less those in the rest of a window."""
    work = one.work
    begin, end = window
    length = found.end - found.begin
    rest = end - begin - length
    mine = (work.tenant == tenant) & (work.arrived >= begin) & (work.arrived <= end)
    if rest <= 0 or not mine.any():
        return 0.0
    inside = (work.arrived >= found.begin) & (work.arrived < found.end)
    size = sizes(work, one.cost)
    return float(size[mine & inside].sum()) / length - float(size[mine & ~inside].sum()) / rest
