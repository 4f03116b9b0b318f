"""Models that one server names, and that are one engine: adapters, and aliases, of one model.

Their requests share the steps, so that those of one model slow those of another. Whether it is so,
the decodes say: costs are fitted to the requests of all models together, and to those of each by
themselves. An engine that they share is explained by the former; engines that only have an address
in common, as behind a gateway, by the latter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tailscope.triage.cost import activity, expected_decode, fit
from tailscope.triage.work import UNKNOWN_SERVER, Floats, Work, merged

FEWEST = 50
"""Requests of a model from which its own costs are worth a comparison."""

MOST = 20_000
"""Consecutive requests of all models that are enough for it."""

BETTER = 0.9
"""Seconds left unexplained by costs of each model, over those by one for all, from which they are
engines apart: a fit to fewer requests is always a little nearer to them."""


def engines(parts: Iterable[Work]) -> list[Work]:
    """The requests of each engine, of whatever models; the one with the most requests first."""
    found: list[Work] = []
    for group in _beside(parts):
        found += [merged(group)] if len(group) > 1 and one_engine(group) else group
    return sorted(found, key=len, reverse=True)


def one_engine(parts: Sequence[Work]) -> bool:
    """Whether the decodes of several models are best explained by one engine."""
    parts = _enough(parts)
    whole = merged(parts)
    left = _unexplained(whole)
    together = apart = 0.0
    for part in parts:
        if len(part) >= FEWEST:
            together += float(left[np.isin(whole.rows, part.rows)].sum())
            apart += float(_unexplained(part).sum())
    return apart >= BETTER * together


def _enough(parts: Sequence[Work]) -> list[Work]:
    """The same for a shorter time in the middle, where there are very many requests."""
    arrived = np.sort(np.concatenate([part.arrived for part in parts]))
    before = max(len(arrived) - MOST, 0) // 2
    begin, end = arrived[before], arrived[min(before + MOST, len(arrived)) - 1]
    inside = [part.take((part.arrived >= begin) & (part.arrived <= end)) for part in parts]
    return [part for part in inside if len(part)]


def _beside(parts: Iterable[Work]) -> list[list[Work]]:
    """Groups of one server at one time; a model that came after another is no part of its group."""
    found: list[list[Work]] = []
    for part in sorted(parts, key=lambda one: (one.server, float(one.arrived[0]))):
        last = found[-1] if found else []
        shared = part.server != UNKNOWN_SERVER and any(
            one.server == part.server and part.arrived[0] <= one.arrived[-1] for one in last
        )
        if shared:
            last.append(part)
        else:
            found.append([part])
    return found


def _unexplained(work: Work) -> Floats:
    """Seconds by which each decode is away from what it should have taken, shape (n,)."""
    cost = fit(work, *activity(work))
    found: Floats = np.abs(work.decode - expected_decode(work, cost, *activity(work)))
    return found
