"""Which requests are slow, and in which stage their slow seconds lie.

By a percentile, slow means much longer than usual *for its size*: a long answer is long, not slow.
By a number of seconds, slow means a total time of at least that, as in an objective.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailscope.triage.excess import above_usual, excess
from tailscope.triage.stages import Flags, Floats, floats

FLOOR_SECONDS = 0.3
"""By a percentile, nothing is slow that took less than this longer than usual."""

MIN_REQUESTS = 20
"""With fewer requests than this nobody can say which are unusual."""

_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)?")


@dataclass(frozen=True, slots=True)
class SlowRule:
    """Which requests count as slow: by percentile or by seconds, the other is None."""

    percentile: float | None = 95.0
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> SlowRule:
        """Read ``p95``, ``2``, ``2.5 s`` or ``300ms``.

        Raises:
            ValueError: If the text is none of these.
        """
        if hit := _PERCENTILE.fullmatch(text.strip()):
            if (percentile := float(hit[1])) > 0:
                return cls(percentile, None)
        elif hit := _SECONDS.fullmatch(text.strip()):
            seconds = float(hit[1]) / (1000 if hit[2] == "ms" else 1)
            if seconds > 0:
                return cls(None, seconds)
        raise ValueError(f"{text!r} is neither a percentile such as p95 nor a time such as 2.5s")

    def __str__(self) -> str:
        return f"p{self.percentile:g}" if self.seconds is None else f"{self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Slowness:
    """The slow requests of a frame.

    Attributes:
        mask: Which rows are slow.
        excess: Seconds above the usual by stage, for every row.
        above: Seconds above the usual, for every row.
        threshold: What the rule came to, in seconds: above the usual for a percentile, total for
            seconds. None if there are too few requests for a percentile.
    """

    mask: Flags
    excess: pd.DataFrame
    above: Floats
    threshold: float | None

    def of(self, rows: Flags) -> Slowness:
        """The same for some of the rows."""
        return Slowness(self.mask[rows], self.excess[rows], self.above[rows], self.threshold)


def slowness(frame: pd.DataFrame, mine: Flags, rule: SlowRule) -> Slowness:
    """Find the slow requests and their excess over the ordinary ones.

    Args:
        frame: Requests with a latency. All of them say what is usual.
        mine: Which of them are judged.
        rule: What slow means.
    """
    ordinary, threshold = np.ones(len(frame), np.bool_), rule.seconds
    if rule.seconds is not None:
        # What is over the limit is no ordinary request, whoever sent it.
        ordinary = ~(floats(frame, "total_seconds") >= rule.seconds)
        mask = mine & ~ordinary
    else:
        # At first all count as ordinary: a median does not mind a few slow ones.
        above = above_usual(frame, excess(frame, ordinary), ordinary)
        threshold = _limit(above[mine], rule.percentile or 0.0)
        mask = mine & (above >= (np.inf if threshold is None else threshold))
        ordinary = ~mask
    stages = excess(frame, ordinary)
    return Slowness(mask, stages, above_usual(frame, stages, ordinary), threshold)


def _limit(above: Floats, percentile: float) -> float | None:
    known = above[~np.isnan(above)]
    if len(known) < MIN_REQUESTS:
        return None
    return max(float(np.percentile(known, percentile)), FLOOR_SECONDS)
