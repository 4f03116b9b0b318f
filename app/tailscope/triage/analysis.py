"""From a frame of requests and a scope to the finding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from tailscope.triage.coincidence import beside
from tailscope.triage.finding import Finding, Latency, Slow, Window
from tailscope.triage.hardware import Gpu
from tailscope.triage.loads import loads
from tailscope.triage.quality import quality
from tailscope.triage.quantiles import Quantiles, quantiles
from tailscope.triage.scope import Scope, measured
from tailscope.triage.slow import Slowness, slowness
from tailscope.triage.slowest import slowest
from tailscope.triage.stages import STAGES, Flags, column, floats, rows


def analyse(
    frame: pd.DataFrame,
    scope: Scope,
    rejected: Mapping[str, int] | None = None,
    gpus: Iterable[Gpu] = (),
) -> Finding:
    """Say what there is to say about the requests of a scope.

    Args:
        frame: Every request that may have run in the scope's window: those that arrived before it
            but still ran add to the load.
        scope: What to look at.
        rejected: Lines of an input file that were left out, by reason.
        gpus: What the GPUs went through in the window.
    """
    window = scope.window(frame) & scope.places(frame)
    chosen = window & scope.judged(frame)
    mine = rows(frame, chosen)
    timed = window & measured(frame)
    found = slowness(rows(frame, timed), chosen[timed], scope.slow)
    judged = rows(frame, timed & chosen)
    slow = _slow(judged, found.of(chosen[timed]), scope)
    slow_rows = np.zeros(len(frame), np.bool_)
    slow_rows[np.flatnonzero(timed)[found.mask]] = True
    return Finding(
        window=_window(mine, scope),
        latency=_latency(judged),
        slow=slow,
        tenants=loads(frame, window, slow_rows, slow.stage),
        quality=quality(mine, judged, rejected or {}),
        gpus=beside(gpus, frame[slow_rows]),
    )


def _window(mine: pd.DataFrame, scope: Scope) -> Window:
    some = len(mine) > 0
    first = int(mine["arrived_ns"].min()) if some else None
    last = int(mine["arrived_ns"].max()) if some else None
    return Window(
        start_ns=first if scope.start_ns is None else scope.start_ns,
        end_ns=last if scope.end_ns is None else scope.end_ns,
        requests=len(mine),
        servers=_names(mine, "server"),
        models=_names(mine, "model"),
    )


def _names(frame: pd.DataFrame, name: str) -> tuple[str, ...]:
    return tuple(sorted(map(str, frame[name].dropna().unique())))


def _latency(judged: pd.DataFrame) -> Latency:
    by_stage: dict[str, Quantiles] = {}
    for stage in STAGES:
        if (found := quantiles(floats(judged, column(stage)))) is not None:
            by_stage[stage] = found
    return Latency(
        total=quantiles(floats(judged, "total_seconds")),
        ttft=quantiles(floats(judged, "ttft_seconds")),
        client=quantiles(floats(judged, "client_seconds")),
        stages=MappingProxyType(by_stage),
    )


def _slow(judged: pd.DataFrame, found: Slowness, scope: Scope) -> Slow:
    mask = found.mask
    totals = found.excess[mask].sum(min_count=1).dropna()
    return Slow(
        rule=scope.slow,
        threshold=found.threshold,
        requests=int(mask.sum()),
        seconds=float(np.nansum(floats(judged, "total_seconds")[mask])),
        excess_seconds=float(np.nansum(found.above[mask])),
        by_stage=MappingProxyType({str(name): float(value) for name, value in totals.items()}),
        typical=MappingProxyType(_typical(judged, mask)),
        slowest=slowest(judged, found),
    )


def _typical(judged: pd.DataFrame, mask: Flags) -> dict[str, tuple[float, float]]:
    found = {}
    for stage in STAGES:
        values = floats(judged, column(stage))
        slow, others = (part[~np.isnan(part)] for part in (values[mask], values[~mask]))
        if len(slow) and len(others):
            found[stage] = (float(np.median(slow)), float(np.median(others)))
    return found
