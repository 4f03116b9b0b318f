"""The stretch of time in which a load stands out most, and whether chance does as well.

It is found by a scan over all intervals,

    llr = n (y ln(y / f) + (1 - y) ln((1 - y) / (1 - f)))     if y > f, else 0

with y the share of the work in the interval, f the interval's share of the time, and n the number
of requests of equal size that would vary as much, (sum u)^2 / sum u^2 (Kulldorff's statistic). It
weighs short and long intervals alike; the same scan over the tenant's own requests in random order
(work and gaps between arrivals shuffled) says how far an unchanged tenant of that burstiness gets
by chance. So the best of many intervals is compared with the best of many: the choice is paid for.
"""

from __future__ import annotations

import numpy as np

from tailscope.triage.work import Floats, Ints

BINS = 120
"""Bins of the scan over the whole time."""

SHUFFLES = 199
"""Shuffled scans: a p-value of 0.005 is the smallest that they can give."""

_SHORTEST, _LONGEST = 2, 72
"""Bins of the stretches that are tried; a longer one leaves too little past to compare with."""

_MOST = 5_000
"""Requests of a tenant whose gaps are shuffled; of more, evenly spaced ones."""


def thinned(when: Floats, load: Floats) -> tuple[Floats, Floats]:
    """Times and loads of as many requests as are shuffled."""
    if len(when) <= _MOST:
        return when, load
    kept = np.linspace(0, len(when) - 1, _MOST).astype(np.int64)
    return when[kept], load[kept]


def binned(when: Floats, load: Floats, width: float) -> Floats:
    """Load in each bin of so many seconds."""
    at = np.minimum((when / width).astype(np.int64), BINS - 1)
    found: Floats = np.bincount(at, weights=load, minlength=BINS).astype(np.float64)
    return found


def scan(bins: Floats) -> tuple[float, int, int]:
    """Highest likelihood ratio over all intervals of bins, and the interval [low, high).

    The number of requests of equal size is the same for every order of them, and left out.
    """
    total = np.concatenate([[0.0], np.cumsum(bins)])
    low, high, part = _INTERVALS
    gain = likelihood((total[high] - total[low]) / max(float(total[-1]), 1e-300), part)
    best = int(np.argmax(gain))
    return float(gain[best]), int(low[best]), int(high[best])


def likelihood(share: Floats | float, part: Floats | float) -> Floats:
    """Likelihood ratio of a share of the work in a part of the time; 0 where it is no larger."""
    share = np.clip(share, 1e-12, 1 - 1e-12)
    gain = share * np.log(share / part) + (1.0 - share) * np.log((1.0 - share) / (1.0 - part))
    return np.where(share > part, gain, 0.0)


def _intervals() -> tuple[Ints, Ints, Floats]:
    low, length = np.meshgrid(np.arange(BINS), np.arange(_SHORTEST, _LONGEST + 1), indexing="ij")
    fits = low + length <= BINS
    return low[fits], (low + length)[fits], length[fits] / BINS


_INTERVALS = _intervals()


def chance(
    least: float, when: Floats, load: Floats, span: float, seed: int, *, alone: bool
) -> float:
    """Share of the shuffled loads of a tenant whose best stretch stands out as much.

    Args:
        least: Likelihood ratio that they are compared with.
        when: When its requests came, seconds from the beginning, shape (n,).
        load: Engine seconds that they asked for, shape (n,).
        span: Seconds of the whole time.
        seed: Of the shuffles.
        alone: Whether it was there in its stretch alone: it then has no habit that its gaps could
            tell of, and its requests are placed anywhere.
    """
    random = np.random.default_rng(seed)
    gaps = np.diff(np.concatenate([[0.0], when, [span]]))
    more = 0
    for _ in range(SHUFFLES):
        if alone:
            mixed = random.uniform(0.0, span, len(when))
        else:
            mixed = np.cumsum(random.permutation(gaps))[:-1]
        more += scan(binned(mixed, random.permutation(load), span / BINS))[0] >= least - 1e-12
    return (1 + more) / (1 + SHUFFLES)
