"""Percentiles where some requests were given up before they were done.

An aborted or timed-out request says that it would have taken at least as long. Dropping such rows,
or counting them as done, makes a client's timeout of 10 s look like a tail of 10 s. The estimate of
Kaplan and Meier counts them for as long as they were seen; beyond the last request that was done it
says nothing, and a percentile there is only known to be at least that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import CensoredData, ecdf

from tailscope.triage.work import Flags, Floats

_NEAR = 0.01
_PILE = 0.005
"""Share of all requests, within 1 % of one time, that no latency gives: somebody cut them there."""

_FEWEST = 5


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile with censoring.

    Attributes:
        seconds: Its value, or the longest time that it is known to exceed.
        bounded: Whether it is a value; if not, the true one is at least that.
    """

    seconds: float
    bounded: bool


def percentile(seconds: Floats, censored: Flags, level: float) -> Percentile | None:
    """A percentile of times of which some are only lower bounds; None without any time.

    Args:
        seconds: Times seen, shape (n,).
        censored: Which of them are lower bounds, shape (n,).
        level: Between 0 and 1.
    """
    if not len(seconds):
        return None
    if censored.all():
        return Percentile(float(seconds.max()), bounded=False)
    found = ecdf(CensoredData(uncensored=seconds[~censored], right=seconds[censored])).cdf
    reached = np.flatnonzero(found.probabilities >= level - 1e-12)
    if not len(reached):
        return Percentile(float(seconds.max()), bounded=False)
    return Percentile(float(found.quantiles[reached[0]]), bounded=True)


def timeout(seconds: Floats, censored: Flags) -> float | None:
    """The client timeout that cuts the tail, seconds; None if none shows.

    It shows as a pile of given-up requests at one time, with next to none beyond it.
    """
    given_up = np.sort(seconds[censored])
    if len(given_up) < max(_FEWEST, _PILE * len(seconds)):
        return None
    ends = np.searchsorted(given_up, given_up * (1.0 + _NEAR), side="right")
    sizes = ends - np.arange(len(given_up))
    at = int(np.argmax(sizes))
    middle = float(np.median(given_up[at : ends[at]]))
    if sizes[at] < max(_FEWEST, 0.5 * len(given_up)):
        return None
    return middle if (seconds > middle * (1.0 + _NEAR)).mean() < _PILE else None
