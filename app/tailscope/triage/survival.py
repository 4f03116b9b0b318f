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

from tailscope.triage.quantiles import LEVELS, Quantile, Quantiles, ranks
from tailscope.triage.quantiles import quantiles as plain
from tailscope.triage.stages import Flags, Floats

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
    return _at(*_estimate(seconds, censored), level) if len(seconds) else None


def _estimate(seconds: Floats, censored: Flags) -> tuple[Floats, Floats, float]:
    """Times, the part of the requests that is done by each, and the longest time seen."""
    longest = float(seconds.max())
    if censored.all():
        return np.zeros(0), np.zeros(0), longest
    found = ecdf(CensoredData(uncensored=seconds[~censored], right=seconds[censored])).cdf
    return found.quantiles, found.probabilities, longest


def _at(times: Floats, done: Floats, longest: float, level: float) -> Percentile:
    at = int(np.searchsorted(done, level - 1e-12))
    if at >= len(done):
        return Percentile(longest, bounded=False)
    return Percentile(float(times[at]), bounded=True)


def quantiles(seconds: Floats, censored: Flags) -> Quantiles | None:
    """Percentiles with intervals, where some times are only lower bounds.

    Without such times these are the plain ones. With them the interval takes the ranks that order
    statistics give, as levels of the estimate.
    """
    known = np.isfinite(seconds)
    seconds, censored = seconds[known], censored[known]
    if not censored.any():
        return plain(seconds)
    count = len(seconds)
    estimate = _estimate(seconds, censored)
    found = {}
    for name, level in LEVELS.items():
        value = _at(*estimate, level)
        low, high = ranks(count, level)
        lower = None if low is None else _at(*estimate, low / count)
        upper = None if high is None else _at(*estimate, high / count)
        found[name] = Quantile(
            value.seconds,
            None if lower is None else lower.seconds,
            upper.seconds if upper is not None and upper.bounded else None,
            bounded=value.bounded,
        )
    return Quantiles(count, **found)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where somebody gave up waiting, so that no longer time is seen.

    Attributes:
        seconds: The timeout.
        requests: Given up there.
        share: Part of the requests that end there.
        level: Lowest of the usual percentiles that is cut, for example ``p99``; None if none is.
    """

    seconds: float
    requests: int
    share: float
    level: str | None


def cut(seconds: Floats, censored: Flags) -> Cut | None:
    """The client timeout that cuts the tail, and how many requests end there; None if none shows.

    Args:
        seconds: Times seen, shape (n,).
        censored: Which of them were given up, shape (n,).
    """
    known = np.isfinite(seconds)
    seconds, censored = seconds[known], censored[known]
    if (at := timeout(seconds, censored)) is None:
        return None
    near = censored & (np.abs(seconds - at) <= _NEAR * at)
    reached = np.quantile(seconds, list(LEVELS.values())) >= at * (1.0 - _NEAR)
    level = next((name for name, cut in zip(LEVELS, reached, strict=True) if cut), None)
    return Cut(at, int(near.sum()), float(near.mean()), level)


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
