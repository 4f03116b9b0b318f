"""Before and after one change: better, worse, or not to be compared.

The mix of requests is never the same twice, so that a p99 may fall because the long prompts went
away. The rows before are reweighted to the mix of token buckets after; quantiles are compared by
pairs of time buckets (five minutes, or an eighth of the shorter window), with the median of all
pairwise means (Hodges and Lehmann) as the difference and random flips of the signs as the test.
Where the mix or the load moved too far, or there is too little of either, the answer is that they
cannot be compared, and why.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp

from tailscope.triage.phrase import tell
from tailscope.triage.stages import named
from tailscope.triage.work import Floats, Ints

LEAST_SECONDS = 1800.0
MOST_MIX = 0.1
"""Kolmogorov-Smirnov distance of the token counts from which the mix is another one."""

MOST_LOAD = 0.1
"""Relative change of the request rate from which the load is another one."""

_SIGMAS, _CHANCE = 3.0, 0.01
"""Few requests differ in rate and mix by chance: what is within so many standard deviations of a
rate, or has so high a p, is no other load and no other mix."""

BUCKET = 300.0
_PAIRS = 8
_FLIPS = 999
_LEAST_PAIRS = 4
_LEAST_ROWS = 5
_SIZES = {"input_tokens": tell("prompt tokens"), "output_tokens": tell("generated tokens")}
_QUANTILES = (0.5, 0.95, 0.99)


class Outcome(StrEnum):
    """What a comparison says."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no clear difference"
    INCOMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Shift:
    """Change of one quantile.

    Attributes:
        level: Between 0 and 1.
        before: Seconds, reweighted to the mix after.
        after: Seconds.
        difference: After less before, over the pairs of buckets, seconds.
        p: Share of random flips of the signs with at least this difference.
    """

    level: float
    before: float
    after: float
    difference: float
    p: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two windows compared.

    Attributes:
        outcome: What it says of the 95th percentile.
        reasons: Why they cannot be compared; empty if they can.
        shifts: Change of p50, p95 and p99.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    shifts: tuple[Shift, ...]


def compare(
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    column: str = "total_seconds",
    tenants: Collection[str] = (),
    force: bool = False,
    seed: int = 0,
) -> Comparison:
    """Compare two windows of requests between which one thing was changed.

    Args:
        before: Requests of all tenants before.
        after: Requests of all tenants after.
        column: Which seconds to compare.
        tenants: Whose seconds; the load of the others has to be the same, too. Empty for all.
        force: Compare windows shorter than half an hour, too.
        seed: Of the flips.
    """
    reasons = _reasons(before, after, force)
    if tenants:
        before, after = (one[named(one, "tenant").isin(list(tenants))] for one in (before, after))
        reasons += [reason for reason in _reasons(before, after, force) if reason not in reasons]
    if len(before) < _LEAST_ROWS or len(after) < _LEAST_ROWS:
        return Comparison(Outcome.INCOMPARABLE, tuple(reasons), ())
    weight = _weights(before, after)
    shifts = tuple(
        _shift(before, after, weight, column, level, np.random.default_rng(seed))
        for level in _QUANTILES
    )
    tail = shifts[1]
    outcome = Outcome.SAME
    if reasons:
        outcome = Outcome.INCOMPARABLE
    elif tail.p <= 0.05:
        outcome = Outcome.BETTER if tail.difference < 0 else Outcome.WORSE
    return Comparison(outcome, tuple(reasons), shifts)


def _reasons(before: pd.DataFrame, after: pd.DataFrame, force: bool) -> list[str]:
    found: list[str] = []
    if min(len(before), len(after)) < _LEAST_ROWS:
        return [tell("one of the windows has fewer than {n} requests", n=_LEAST_ROWS)]
    spans = [_span(before), _span(after)]
    if min(spans) < LEAST_SECONDS and not force:
        found.append(
            tell(
                "the shorter window has {n} min; {need} min are needed",
                n=f"{min(spans) / 60:.0f}",
                need=f"{LEAST_SECONDS / 60:.0f}",
            )
        )
    rates = [len(before) / max(spans[0], 1e-9), len(after) / max(spans[1], 1e-9)]
    chance = _SIGMAS * math.sqrt(1.0 / len(before) + 1.0 / len(after))
    if abs(rates[1] / rates[0] - 1.0) > max(MOST_LOAD, chance):
        found.append(
            tell(
                "the load changed from {before} to {after} requests/s",
                before=f"{rates[0]:.3g}",
                after=f"{rates[1]:.3g}",
            )
        )
    for name, size in _SIZES.items():
        if name in before and name in after:
            distance, p = _distance(before[name], after[name])
            if distance > MOST_MIX and p < _CHANCE:
                found.append(
                    tell(
                        "the mix of {size} is another one (KS distance {distance})",
                        size=size,
                        distance=f"{distance:.2f}",
                    )
                )
    return found


def _distance(before: pd.Series[float], after: pd.Series[float]) -> tuple[float, float]:
    """Distance of two distributions, and the p of as much between samples of one."""
    one, two = before.dropna().to_numpy(), after.dropna().to_numpy()
    if not (len(one) and len(two)):
        return 0.0, 1.0
    found = ks_2samp(one, two)
    return float(found.statistic), float(found.pvalue)


def _span(frame: pd.DataFrame) -> float:
    arrived = frame["arrived_ns"]
    return float(arrived.max() - arrived.min()) / 1e9


def _weights(before: pd.DataFrame, after: pd.DataFrame) -> Floats:
    """Weight of each row before, so that its token buckets are as common as after."""
    cells = []
    for frame in (before, after):
        cell = np.zeros(len(frame), dtype=np.int64)
        for name in ("input_tokens", "output_tokens"):
            if name in frame:
                tokens = frame[name].fillna(0).to_numpy(dtype=np.float64)
                cell = cell * 64 + np.log2(np.maximum(tokens, 1.0)).astype(np.int64)
        cells.append(cell)
    size = int(max(cells[0].max(), cells[1].max())) + 1
    was, is_ = (np.bincount(cell, minlength=size) / len(cell) for cell in cells)
    ratio = np.divide(is_, was, out=np.zeros(size), where=was > 0)
    found: Floats = ratio[cells[0]]
    return found


def _shift(
    before: pd.DataFrame,
    after: pd.DataFrame,
    weight: Floats,
    column: str,
    level: float,
    random: np.random.Generator,
) -> Shift:
    was, is_ = (
        frame[column].to_numpy(dtype=np.float64, na_value=np.nan) for frame in (before, after)
    )
    ones = np.ones(len(is_))
    # Fewer than six pairs cannot be told from chance by their signs.
    width = min(BUCKET, min(_span(before), _span(after)) / _PAIRS)
    pairs = _pairs(
        _by_bucket(was, weight, _bucket(before, width), level),
        _by_bucket(is_, ones, _bucket(after, width), level),
    )
    difference, p = _hodges_lehmann(pairs, random)
    return Shift(level, weighted(was, weight, level), weighted(is_, ones, level), difference, p)


def _bucket(frame: pd.DataFrame, width: float) -> Ints:
    arrived = frame["arrived_ns"].to_numpy(dtype=np.int64)
    found: Ints = ((arrived - arrived.min()) // max(int(width * 1e9), 1)).astype(np.int64)
    return found


def _by_bucket(seconds: Floats, weight: Floats, bucket: Ints, level: float) -> dict[int, float]:
    return {
        int(one): weighted(seconds[bucket == one], weight[bucket == one], level)
        for one in np.unique(bucket)
        if (bucket == one).sum() >= _LEAST_ROWS
    }


def _pairs(before: dict[int, float], after: dict[int, float]) -> Floats:
    both = sorted(before.keys() & after.keys())
    return np.array(
        [after[one] - before[one] for one in both if np.isfinite(after[one] - before[one])]
    )


def _hodges_lehmann(pairs: Floats, random: np.random.Generator) -> tuple[float, float]:
    """Median of the pairwise means, and the p of its size under random signs."""
    if len(pairs) < _LEAST_PAIRS:
        return (float(np.median(pairs)) if len(pairs) else 0.0), 1.0
    upper = np.triu_indices(len(pairs))
    middle = float(np.median((pairs[:, None] + pairs)[upper] / 2.0))
    flips = random.choice([-1.0, 1.0], size=(_FLIPS, len(pairs)))
    means = np.abs((flips * pairs).mean(axis=1))
    return middle, float((1 + (means >= abs(pairs.mean()) - 1e-12).sum()) / (1 + _FLIPS))


def weighted(seconds: Floats, weight: Floats, level: float) -> float:
    """Weighted quantile; NaN if nothing has weight."""
    known = np.isfinite(seconds) & (weight > 0)
    if not known.any():
        return float("nan")
    order = np.argsort(seconds[known])
    total = np.cumsum(weight[known][order])
    at = int(np.searchsorted(total, level * total[-1]))
    return float(seconds[known][order][min(at, len(order) - 1)])
