"""Which slow requests ran while a GPU was in trouble. An association in time, no proof."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from tailscope.triage.contrast import stands_out
from tailscope.triage.counters import within
from tailscope.triage.hardware import (
    Bandwidth,
    Coincidence,
    Gpu,
    Span,
    Throttle,
    Trouble,
    Weight,
    Xid,
)
from tailscope.triage.stages import Floats, floats

FATAL = ("reset_gpu", "restart_node", "restart_vm", "check_mechanicals", "contact_support")
"""Classes of action of an XID after which a GPU does not go on as before. The others hit one
program, or none."""

MIN_SECONDS = 1.0
"""Clocks that were held down for less than this are not worth a word."""

LIMIT_MORE = 0.2
"""A limit is a suspect only if it held in so much more of the slow requests' time than of the
whole: a GPU under full load is at its limit at any time."""


def beside(gpus: Iterable[Gpu], slow: pd.DataFrame) -> tuple[Gpu, ...]:
    """Compare what GPUs went through with the slow requests.

    Args:
        gpus: GPUs.
        slow: The slow requests.
    """
    total = floats(slow, "total_seconds")
    begin = slow["arrived_ns"].to_numpy(dtype=np.float64)[total > 0]
    end = begin + total[total > 0] * 1e9
    return tuple(
        dataclasses.replace(gpu, beside=tuple(_all(gpu, begin[near], end[near])))
        for gpu in gpus
        # Of the time before and after nobody knows how the GPU did.
        for near in [(end >= gpu.start_ns) & (begin <= gpu.end_ns)]
    )


def _all(gpu: Gpu, begin: Floats, end: Floats) -> Iterator[Coincidence]:
    if not len(begin):
        return
    for throttle in gpu.throttles:
        shared = _shared(throttle.spans, begin, end)
        if shared.any():
            yield _throttled(gpu, throttle, shared, begin, end)
    if gpu.lost and (shared := _shared(gpu.lost, begin, end)).any():
        yield Coincidence(
            Trouble.LOST,
            "",
            *_counts(shared),
            share_slow=float(shared.sum() / _seconds(begin, end)),
            share=_share(gpu.lost_seconds, gpu),
            suspect=True,
        )
    if gpu.bandwidth is not None:
        shared = _shared(gpu.bandwidth.spans, begin, end)
        if shared.any():
            yield _bound(gpu, gpu.bandwidth, shared, begin, end)
    for event in gpu.xids:
        if (shared := _during(event, begin, end)).any():
            yield Coincidence(
                Trouble.XID,
                event.code,
                *_counts(shared),
                share_slow=None,
                share=None,
                suspect=event.action in FATAL,
            )


def _throttled(
    gpu: Gpu, throttle: Throttle, shared: Floats, begin: Floats, end: Floats
) -> Coincidence:
    share_slow = float(shared.sum() / _seconds(begin, end))
    share = _share(throttle.seconds, gpu)
    weight = throttle.cause.weight
    suspect = throttle.seconds >= MIN_SECONDS and (
        weight is Weight.FAULT or (weight is Weight.LIMIT and _more(share_slow, share))
    )
    return Coincidence(
        Trouble.THROTTLED,
        throttle.cause.name,
        *_counts(shared),
        share_slow=share_slow,
        share=share,
        suspect=suspect,
    )


def _bound(gpu: Gpu, found: Bandwidth, shared: Floats, begin: Floats, end: Floats) -> Coincidence:
    """Its memory was near its limit: what decoding does to a full engine at any time."""
    share_slow = float(shared.sum() / _seconds(begin, end))
    share = _share(found.seconds, gpu)
    return Coincidence(
        Trouble.BANDWIDTH,
        "",
        *_counts(shared),
        share_slow=share_slow,
        share=share,
        suspect=found.seconds >= MIN_SECONDS and _more(share_slow, share),
    )


def _more(share_slow: float, share: float | None) -> bool:
    """Whether a limit held in clearly more of the slow requests' time than of the whole."""
    return share is not None and share_slow - share >= LIMIT_MORE and stands_out(share_slow, share)


def _shared(parts: tuple[Span, ...], begin: Floats, end: Floats) -> Floats:
    """Seconds of the spans within each request."""
    if not parts:
        return np.zeros(len(begin))
    found = within(parts, end) - within(parts, begin)
    # What is left of the subtraction of large sums is no time.
    return np.where(found < 1e-6, 0.0, found)


def _during(event: Xid, begin: Floats, end: Floats) -> Floats:
    return ((begin <= event.time_ns) & (end >= event.start_ns)).astype(np.float64)


def _counts(shared: Floats) -> tuple[int, int]:
    return int((shared > 0).sum()), len(shared)


def _seconds(begin: Floats, end: Floats) -> float:
    return float((end - begin).sum() / 1e9)


def _share(seconds: float, gpu: Gpu) -> float | None:
    return min(seconds / gpu.watched_seconds, 1.0) if gpu.watched_seconds > 0 else None
