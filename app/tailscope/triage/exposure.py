"""Exact interval accounting: how much work was done in any interval, by whom.

A request does its work at a constant rate within a phase. The work done until time t is then
piecewise linear in t, with two knots for each phase, and the work in an interval [u, v] is a
difference of two look-ups: one sort for all requests, O(log n) for each question.

    G(t) = sum over requests of work * clip((t - begin) / (end - begin), 0, 1)

Works for several kinds of work at once; G then has one column for each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailscope.triage.work import Floats, Ints

SHORTEST = 1e-4
"""A phase is taken to last at least this many seconds, so that its rate stays finite."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Cumulated work of a group of requests over time.

    Attributes:
        knots: Seconds, ascending, shape (2n,).
        level: Work done until each knot, shape (2n, kinds).
        slope: Work per second from each knot on, shape (2n, kinds).
    """

    knots: Floats
    level: Floats
    slope: Floats

    def until(self, when: Floats) -> Floats:
        """Work done until each time; shape (len(when), kinds)."""
        if not len(self.knots):
            return np.zeros((len(when), self.level.shape[1]))
        at = np.searchsorted(self.knots, when, side="right") - 1
        inside = at >= 0
        at = np.maximum(at, 0)
        after = np.where(inside, when - self.knots[at], 0.0)
        found: Floats = self.level[at] + self.slope[at] * after[:, None]
        found[~inside] = 0.0
        return found

    def between(self, begin: Floats, end: Floats) -> Floats:
        """Work done in each interval, never negative; shape (len(begin), kinds)."""
        return np.maximum(self.until(end) - self.until(begin), 0.0)


def curve(begin: Floats, end: Floats, work: Floats) -> Curve:
    """Cumulate work that is done evenly between two times.

    Args:
        begin: Seconds, shape (n,).
        end: Seconds, shape (n,).
        work: Shape (n, kinds).
    """
    length = np.maximum(end - begin, SHORTEST)
    rate = work / length[:, None]
    times = np.concatenate([begin, begin + length])
    # Requests come by arrival, so that most of it is in order: this sort takes half of the time.
    order = np.argsort(times, kind="stable")
    knots = times[order]
    level = np.empty((len(knots), work.shape[1]))
    slope = np.empty_like(level)
    for kind in range(work.shape[1]):
        change = np.concatenate([rate[:, kind], -rate[:, kind]])[order]
        np.cumsum(change, out=slope[:, kind])
        # Rounding must not leave a rate behind that nobody works at.
        np.maximum(slope[:, kind], 0.0, out=slope[:, kind])
        level[:1, kind] = 0.0
        np.cumsum(slope[:-1, kind] * np.diff(knots), out=level[1:, kind])
    return Curve(knots, level, slope)


def running(begin: Floats, end: Floats) -> tuple[Floats, Ints]:
    """How many intervals are open, as a step function.

    An interval that ends when another begins makes room for it first.

    Returns:
        Times of change, ascending, and the number that is open from each on.
    """
    times = np.concatenate([end, begin])
    change = np.concatenate([np.full(len(end), -1), np.full(len(begin), 1)])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(change[order])
