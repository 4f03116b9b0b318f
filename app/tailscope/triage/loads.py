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
from tailscope.triage.stages import Flags, Floats, floats, named


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
    total: Quantiles | None
    ttft: Quantiles | None


def loads(frame: pd.DataFrame, window: Flags, slow: Flags) -> tuple[TenantLoad, ...]:
    """Sum up the load by tenant, the largest first.

    Args:
        frame: Every request that may have run in the window.
        window: Which of them arrived in it.
        slow: Which of them are slow.
    """
    codes, names = pd.factorize(named(frame, "tenant"))
    total, ttft = (
        quantiles_by(floats(frame, name)[window], codes[window])
        for name in ("total_seconds", "ttft_seconds")
    )
    slots = floats(frame, "prefill_seconds") + floats(frame, "decode_seconds")
    seconds = _sums(slots, codes, window, len(names))
    tokens = {
        name: _sums(floats(frame, name), codes, window, len(names))
        for name in ("input_tokens", "output_tokens")
    }
    counts = np.bincount(codes[window], minlength=len(names)).tolist()
    slows = np.bincount(codes[slow], minlength=len(names)).tolist()
    whole = float(np.nansum(seconds))
    found = [
        TenantLoad(
            name=str(name),
            requests=counts[code],
            slow=slows[code],
            input_tokens=_whole(tokens["input_tokens"][code]),
            output_tokens=_whole(tokens["output_tokens"][code]),
            slot_seconds=_known(seconds[code]),
            slot_share=_share(seconds[code], whole),
            total=total.get(code),
            ttft=ttft.get(code),
        )
        for code, name in enumerate(names)
        if counts[code]
    ]
    return tuple(
        sorted(found, key=lambda load: (-(load.slot_seconds or 0.0), -load.requests, load.name))
    )


def _sums(values: Floats, codes: npt.NDArray[np.intp], mask: Flags, size: int) -> Floats:
    """Sum by code; NaN for a code without any value."""
    mask = mask & ~np.isnan(values)
    sums = np.bincount(codes[mask], values[mask], minlength=size)
    return np.where(np.bincount(codes[mask], minlength=size) > 0, sums, np.nan)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _share(seconds: float, whole: float) -> float | None:
    return None if np.isnan(seconds) or whole <= 0 else float(seconds / whole)
