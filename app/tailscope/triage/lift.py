"""Did a tenant change its load, or is it merely large?

Near saturation the removal of any large tenant would end the queue, so removal alone accuses the
innocent. What tells them apart is a change against their own past. Work is counted where it
arrives and by its size alone, in engine seconds: a saturated engine executes everybody's work at a
steady rate, whoever floods it. ``scan`` finds the stretch in which it stands out most.

    lift = rate of the tenant's work within its stretch / rate outside of it

A surge of everybody lifts everybody: ``others`` is the lift of the other tenants in the same
stretch, and what goes beyond it is the tenant's own. So chance is asked twice: whether a shuffled
load stands out as much, and whether it does when the stretch is given the share of the work that it
would have if the tenant had only followed the others (a standard error of their lift included,
and the time about a short stretch: what others did in a few seconds is mostly luck). A low lift has
to stand out clearly.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tailscope.records.record import UNKNOWN_TENANT
from tailscope.triage.cost import Cost
from tailscope.triage.scan import BINS, binned, chance, likelihood, scan, thinned
from tailscope.triage.work import Flags, Floats, Work

CACHE_DROP = -0.25
"""Change of the cached share from which the prefix cache was lost."""

_FEWEST = 4
"""Requests below which a tenant has no past and no burst."""

_TIDE = 18
"""Bins, at least, that tell how the load of all others rose about a stretch."""

_MOSTLY = 0.5
"""Share of the others' usual work by which those who are no suspects may speak for all."""

_ALL = 0.95
"""Share of its work in the stretch from which a tenant has no other time to compare with."""

_HIGH = 4.0
"""Lift from which it is enough to stand out more than any shuffled load; so many times that of the
others, and theirs, which is measured badly, is no matter, unless they surge for long."""

SURGE = 2.0
"""From this lift of the others on, the surge is everybody's."""

_LONG = 40
"""Bins of a stretch that is long enough to measure well what the others did in it."""

_CLEARLY = 1.5
"""A lower one has to stand out so many times as much: loads come in talks and batches, which the
shuffles tear apart, and a tenant is then somewhat livelier at one time than they are."""

_MAD = 1.4826

NEW = 20.0
"""Lift of a tenant that was not there before; a higher one is none."""


@dataclass(frozen=True, slots=True)
class Change:
    """The stretch in which a tenant's load stands out most.

    Attributes:
        begin: Seconds.
        end: Seconds.
        lift: Its rate of work within, over that outside.
        others: Weighted median of the other tenants' lifts in that stretch.
        p: Share of shuffled scans that stand out as much as the load does beyond the others'.
        requests: Its requests a second within, over those outside.
        input: Mean prompt tokens of a request within, over those outside.
        output: Mean generated tokens within, over those outside.
        cached: Share of the prompt tokens that came from the cache, within less outside.
        uncached: Share that did not come from it, within over outside.
    """

    begin: float
    end: float
    lift: float
    others: float
    p: float
    requests: float
    input: float
    output: float
    cached: float
    uncached: float

    @property
    def lost_cache(self) -> bool:
        """Whether lost cache hits made more work than anything else that the tenant changed."""
        others = max(self.requests, self.input, self.output, 1.0)
        return self.cached <= CACHE_DROP and self.uncached >= others

    @property
    def own(self) -> float:
        """Lift beyond that of everybody else."""
        return self.lift / max(self.others, 1.0)


def sizes(work: Work, cost: Cost) -> Floats:
    """Engine seconds that each request asks for, by its size alone; shape (n,).

    A decode step has a price that all who share it pay together: it is divided by the mean batch.
    """
    busy = float(np.ptp(np.concatenate([work.start, work.done]))) if len(work) else 1.0
    batch = max(float((work.prefill + work.decode).sum()) / max(busy, 1e-9), 1.0)
    return (
        cost.own_token * work.computed
        + cost.own_pair * work.attention
        + (cost.decode + cost.step / batch) * work.steps
        + cost.read * work.reads
        + cost.prompt / batch
    )


def change(
    work: Work,
    size: Floats,
    tenant: int,
    seed: int = 0,
    *,
    tested: bool = True,
    apart: Collection[int] = (),
) -> Change | None:
    """Find the stretch in which a tenant's load stands out most.

    Args:
        work: Requests of one engine.
        size: Engine seconds that each asks for, shape (n,).
        tenant: Position of the tenant in the tenants of the work.
        seed: Of the shuffles.
        tested: Whether to compare with shuffled loads; without, p is 1.
        apart: Tenants that are suspects themselves: they do not say what the others did, unless
            most of the others' usual work is theirs.

    Returns:
        None if there is too little to compare.
    """
    mine = work.tenant == tenant
    begin, end = float(work.arrived.min()), float(work.arrived.max())
    if mine.sum() < _FEWEST or end <= begin:
        return None
    when, load = thinned(work.arrived[mine] - begin, size[mine])
    width = (end - begin) / BINS
    bins = binned(when, load, width)
    _, low, high = scan(bins)
    inside = (work.arrived >= begin + low * width) & (work.arrived < begin + high * width)
    part = (high - low) / BINS
    now, past = _cached(work, mine & inside), _cached(work, mine & ~inside)
    others, error = _others(work, size, {tenant, *apart}, tenant, inside, part)
    about, _ = _others(work, size, {tenant, *apart}, tenant, *_around(work, low, high))
    tide = max(others + error, about)
    share = float(bins[low:high].sum() / max(bins.sum(), 1e-300))
    lift = _ratio(size, mine, inside, part)
    surge = others >= SURGE and high - low >= _LONG
    usual = part if lift >= _HIGH * max(tide, 1.0) and not surge else _followed(part, tide)
    gain = float(likelihood(share, usual)) / (1.0 if lift >= _HIGH else _CLEARLY)
    return Change(
        begin=begin + low * width,
        end=begin + high * width,
        lift=lift,
        others=others,
        p=chance(gain, when, load, end - begin, seed, alone=share >= _ALL) if tested else 1.0,
        requests=_ratio(np.ones(len(work)), mine, inside, part),
        input=_mean_ratio(work.context, mine, inside),
        output=_mean_ratio(work.output, mine, inside),
        cached=now - past,
        uncached=(1.0 - now) / max(1.0 - past, 0.01),
    )


def _around(work: Work, low: int, high: int) -> tuple[Flags, float]:
    """A stretch, and for a short one the time about it; and its part of the whole.

    What the others did in a few seconds is mostly luck; the tide that they all went with is not.
    """
    reach = max(_TIDE - (high - low) + 1, 0) // 2
    low, high = max(low - reach, 0), min(high + reach, BINS)
    begin = float(work.arrived.min())
    width = (float(work.arrived.max()) - begin) / BINS
    inside = (work.arrived >= begin + low * width) & (work.arrived < begin + high * width)
    return inside, (high - low) / BINS


def _followed(part: float, others: float) -> float:
    """Share of its work that a tenant has in a part of the time if it only follows the others."""
    lifted = max(others, 1.0) * part
    return lifted / (lifted + 1.0 - part)


def _ratio(weight: Floats, who: Flags, inside: Flags, part: float) -> float:
    now = float(weight[who & inside].sum()) / part
    past = float(weight[who & ~inside].sum()) / (1.0 - part)
    if past <= 0.0:
        return NEW if now > 0.0 else 1.0
    return min(now / past, NEW)


def _others(
    work: Work, size: Floats, apart: set[int], tenant: int, inside: Flags, part: float
) -> tuple[float, float]:
    """Weighted median of the lifts of the others, and its standard error."""
    number = len(work.tenants)
    now = np.bincount(work.tenant[inside], weights=size[inside], minlength=number) / part
    past = np.bincount(work.tenant[~inside], weights=size[~inside], minlength=number) / (1.0 - part)
    # Rows without a tenant may be the tenant's own.
    told = np.array([name != UNKNOWN_TENANT for name in work.tenants])
    there = (now + past > 0) & told
    everyone = there & (np.arange(number) != tenant)
    other = there & ~np.isin(np.arange(number), list(apart))
    if past[other].sum() < _MOSTLY * past[everyone].sum() or not other.any():
        other = everyone
    if not other.any():
        return 1.0, 0.0
    lift = np.minimum(now[other] / np.maximum(past[other], 1e-12), NEW)
    middle = _middle(lift, past[other])
    spread = _MAD * _middle(np.abs(lift - middle), past[other])
    return middle, spread / math.sqrt(len(lift))


def _middle(values: Floats, weight: Floats) -> float:
    """Weighted median."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    if total[-1] <= 0.0:
        return float(np.median(values))
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])


def _mean_ratio(values: Floats, who: Flags, inside: Flags) -> float:
    now, past = values[who & inside], values[who & ~inside]
    if not len(now) or not len(past) or past.mean() <= 0.0:
        return 1.0
    return float(now.mean() / past.mean())


def _cached(work: Work, who: Flags) -> float:
    total = float(work.context[who].sum())
    return float(work.cached[who].sum()) / total if total > 0 else 0.0
