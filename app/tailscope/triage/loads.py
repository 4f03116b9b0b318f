"""Whose load held the engine: a tenant's share of the places in the batch.

A request holds a place from the start of its prefill to its last token. These are loads, not blame:
a place held is not a second lost, and correlation in time is no cause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailscope.triage.quantiles import Quantiles, quantiles_by
from tailscope.triage.stages import Flags, Floats, floats, named, phases

INTERVALS = {
    "frontend": ("arrived", "started"),
    "queue": ("arrived", "started"),
    "prefill": ("started", "first"),
    "decode": ("first", "left"),
}
"""For the stage that holds the most slow seconds: the time of a slow request that is looked at."""


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """What one tenant asked of the engine in the window.

    Attributes:
        name: Tenant; ``unknown`` for requests without one.
        requests: How many arrived.
        slow: How many of them are slow.
        input_tokens: Prompt tokens; None if no request has them.
        output_tokens: Generated tokens; None if no request has them.
        slot_seconds: Time its requests held a place in the batch; None if unknown.
        slot_share: Its part of all slot seconds of the window, 0-1.
        slot_share_slow: Its part of the places that were held while slow requests were in their
            slowest stage, 0-1; None if nothing was slow or no place is known.
        total: Percentiles of the total time, seconds.
        ttft: Percentiles of the time to first token, seconds.
    """

    name: str
    requests: int
    slow: int
    input_tokens: int | None
    output_tokens: int | None
    slot_seconds: float | None
    slot_share: float | None
    slot_share_slow: float | None
    total: Quantiles | None
    ttft: Quantiles | None


def held_beside(frame: pd.DataFrame, slow: Flags, stage: str) -> Floats:
    """Seconds for which each request held a place while slow requests were in a stage.

    Two slow requests that wait at the same time count twice; a request does not count beside
    itself; requests of other servers do not count.

    Args:
        frame: Every request that may have run in the window.
        slow: Which of them are the slow ones.
        stage: Their slowest stage.

    Returns:
        One value per row; NaN where the request's place in the batch is not known.
    """
    at = phases(frame, int(frame["arrived_ns"].iloc[0]) if len(frame) else 0)
    begin, end = (at[name].to_numpy() for name in INTERVALS[stage])
    started, left = at["started"].to_numpy(), at["left"].to_numpy()
    watched = slow & ~np.isnan(begin) & ~np.isnan(end)
    servers, _ = pd.factorize(frame["server"], use_na_sentinel=False)
    held = np.where(np.isnan(left), np.nan, 0.0)
    for server in np.unique(servers[watched]):
        here = servers == server
        mine = here & watched
        held[here] = _overlap(begin[mine], end[mine], left[here]) - _overlap(
            begin[mine], end[mine], started[here]
        )
    itself = np.minimum(end, left) - np.maximum(begin, started)
    # What is left of the subtraction of large sums is not a negative time.
    held[watched] = held[watched] - np.maximum(np.nan_to_num(itself[watched]), 0.0)
    return np.where(np.abs(held) < 1e-6, 0.0, held)


def _overlap(begin: Floats, end: Floats, until: Floats) -> Floats:
    """Seconds of all intervals that lie before each moment, from sorted ends: O(n log n)."""
    return _ramp(begin, until) - _ramp(end, until)


def _ramp(starts: Floats, until: Floats) -> Floats:
    starts = np.sort(starts)
    sums = np.concatenate([[0.0], np.cumsum(starts)])
    index = np.searchsorted(starts, until)
    found: Floats = index * until - sums[index]
    return found


def loads(
    frame: pd.DataFrame, window: Flags, slow: Flags, stage: str | None
) -> tuple[TenantLoad, ...]:
    """Sum up the load by tenant, the largest share beside the slow requests first.

    Args:
        frame: Every request that may have run in the window.
        window: Which of them arrived in it.
        slow: Which of them are slow.
        stage: Where the slow ones lost their time; None if that is not known.
    """
    codes, names = pd.factorize(named(frame, "tenant"))
    total, ttft = (
        quantiles_by(floats(frame, name)[window], codes[window])
        for name in ("total_seconds", "ttft_seconds")
    )
    slots = floats(frame, "prefill_seconds") + floats(frame, "decode_seconds")
    seconds = _sums(slots, codes, window, len(names))
    beside = (
        held_beside(frame, slow, stage) if stage and slow.any() else np.full(len(frame), np.nan)
    )
    beside_sums = _sums(beside, codes, np.ones(len(frame), np.bool_), len(names))
    tokens = {
        name: _sums(floats(frame, name), codes, window, len(names))
        for name in ("input_tokens", "output_tokens")
    }
    found = [
        TenantLoad(
            name=str(name),
            requests=int(count),
            slow=int(slow_count),
            input_tokens=_whole(tokens["input_tokens"][code]),
            output_tokens=_whole(tokens["output_tokens"][code]),
            slot_seconds=_known(seconds[code]),
            slot_share=_share(seconds, code),
            slot_share_slow=_share(beside_sums, code),
            total=total.get(code),
            ttft=ttft.get(code),
        )
        for code, (name, count, slow_count) in enumerate(
            zip(
                names,
                np.bincount(codes[window], minlength=len(names)),
                np.bincount(codes[slow], minlength=len(names)),
                strict=True,
            )
        )
        if count or beside_sums[code] > 0
    ]
    return tuple(sorted(found, key=_order))


def _order(load: TenantLoad) -> tuple[float, float, int, str]:
    share, seconds = load.slot_share_slow or 0.0, load.slot_seconds or 0.0
    return -share, -seconds, -load.requests, load.name


def _sums(values: Floats, codes: npt.NDArray[np.intp], mask: Flags, size: int) -> Floats:
    """Sum by code; NaN for a code without any value."""
    mask = mask & ~np.isnan(values)
    sums = np.bincount(codes[mask], values[mask], minlength=size)
    return np.where(np.bincount(codes[mask], minlength=size) > 0, sums, np.nan)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _share(sums: Floats, code: int) -> float | None:
    whole = np.nansum(sums)
    if np.isnan(sums).all() or whole <= 0:
        return None
    return float(np.nan_to_num(sums[code]) / whole)
