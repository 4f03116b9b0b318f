"""Does the others' excess rise and fall with a tenant's load? A second opinion, never the judge.

Time is cut into buckets. The mean excess of the others' requests, by the bucket of their arrival,
is compared with the engine seconds that the tenant asks for, over lags of up to ten seconds; the
strongest correlation is compared with those of the same load shifted in time (circularly), so that
bursts stay bursts. Load that everybody shares correlates, too: this cannot tell load from guilt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailscope.triage.exposure import curve
from tailscope.triage.work import Flags, Floats, Work

SHIFTS = 199
LONGEST_LAG = 10.0
_BUCKET = 2.0
_MOST = 5_000
_FEWEST = 20


@dataclass(frozen=True, slots=True)
class Correlation:
    """How the others' excess goes with a tenant's load.

    Attributes:
        r: Strongest correlation over the lags, -1 to 1.
        lag: Seconds by which the excess comes later.
        p: Share of the shifted loads that correlate as strongly.
        beside: Rate of the tenant's work while the slow requests of the others were there, over its
            mean rate; None if there are none.
    """

    r: float
    lag: float
    p: float
    beside: float | None


def correlation(
    work: Work, excess: Floats, size: Floats, tenant: int, slow: Flags, seed: int = 0
) -> Correlation | None:
    """Correlate a tenant's load with the excess of the others.

    Args:
        work: Requests of one engine.
        excess: Their excess, seconds.
        size: Engine seconds that each asks for.
        tenant: Position of the tenant in the tenants of the work.
        slow: Which requests are slow.
        seed: Of the shifts.

    Returns:
        None if there is too little to compare.
    """
    begin, span = float(work.arrived.min()), float(np.ptp(work.arrived))
    width = max(_BUCKET, span / _MOST)
    count = int(span / width) + 1
    mine = work.tenant == tenant
    if count < _FEWEST or not mine.any() or mine.all():
        return None
    bucket = np.minimum(((work.arrived - begin) / width).astype(np.int64), count - 1)
    load: Floats = np.bincount(bucket[mine], weights=size[mine], minlength=count).astype(float)
    number = np.bincount(bucket[~mine], minlength=count)
    lost = np.bincount(bucket[~mine], weights=excess[~mine], minlength=count)
    mean = np.divide(lost, number, out=np.zeros(count), where=number > 0)
    lags = np.arange(int(LONGEST_LAG / width) + 1)
    every = _circular(load, mean, number > 0)
    best = int(np.argmax(every[lags]))
    random = np.random.default_rng(seed)
    shifts = random.integers(count // 20 + len(lags), max(count - count // 20, 2), SHIFTS)
    chance = every[(shifts[:, None] + lags) % count].max(axis=1)
    p = (1 + int((chance >= every[best] - 1e-12).sum())) / (1 + SHIFTS)
    beside = _beside(work, size, mine, slow & ~mine, span)
    return Correlation(float(every[best]), best * width, p, beside)


def _circular(load: Floats, mean: Floats, known: Flags) -> Floats:
    """Correlation of the load with the excess, for every circular lag, by Fourier transform."""
    x = load - load.mean()
    y = np.where(known, mean - mean[known].mean(), 0.0)
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    if scale <= 0.0:
        return np.zeros(len(load))
    product = np.fft.irfft(np.conj(np.fft.rfft(x)) * np.fft.rfft(y), n=len(x))
    found: Floats = product / scale
    return found


def _beside(work: Work, size: Floats, mine: Flags, victims: Flags, span: float) -> float | None:
    """Rate of a tenant's work within the victims' time, over its mean rate."""
    if not victims.any() or span <= 0.0:
        return None
    own = curve(work.start[mine], work.done[mine], size[mine, None])
    begin, end = work.arrived[victims], work.done[victims]
    inside, time = float(own.between(begin, end).sum()), float((end - begin).sum())
    mean = float(size[mine].sum()) / span
    return inside / time / mean if time > 0 and mean > 0 else None
