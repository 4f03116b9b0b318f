"""From a frame of requests and a scope to the finding: what is said without naming anybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from tailscope.triage.coincidence import beside
from tailscope.triage.finding import Finding, Latency, Sight, Slow, Window
from tailscope.triage.hardware import Gpu
from tailscope.triage.loads import loads
from tailscope.triage.quality import quality
from tailscope.triage.quantiles import Quantiles, quantiles
from tailscope.triage.reckoning import Reckoning
from tailscope.triage.scope import Scope, cut_short, measured
from tailscope.triage.slowest import slowest
from tailscope.triage.stages import STAGES, Flags, column, floats, rows
from tailscope.triage.survival import cut
from tailscope.triage.survival import quantiles as censored_quantiles


def judged(frame: pd.DataFrame, scope: Scope) -> Flags:
    """Rows of a scope whose time is a latency."""
    return scope.mine(frame) & measured(frame)


def sight(frame: pd.DataFrame, scope: Scope, rejected: Mapping[str, int] | None = None) -> Sight:
    """Say what shows at first sight: percentiles need no costs.

    Args:
        frame: Every request that may have run in the scope's window.
        scope: What to look at.
        rejected: Lines of an input file that were left out, by reason.
    """
    chosen = scope.mine(frame)
    mine = rows(frame, chosen)
    timed = rows(frame, chosen & measured(frame))
    return Sight(_window(mine, scope), _latency(timed), quality(mine, timed, rejected or {}))


def analyse(
    frame: pd.DataFrame, scope: Scope, seen: Sight, found: Reckoning, gpus: Iterable[Gpu] = ()
) -> Finding:
    """Say what there is to say about the requests of a scope.

    Args:
        frame: Every request that may have run in the scope's window: those that arrived before it
            but still ran add to the load.
        scope: What to look at.
        seen: What shows at first sight.
        found: Costs of all these requests, and the slow ones.
        gpus: What the GPUs went through in the window.
    """
    return Finding(
        window=seen.window,
        latency=seen.latency,
        slow=_slow(frame, found, scope),
        tenants=loads(frame, scope.window(frame) & scope.places(frame), found.slow),
        quality=seen.quality,
        gpus=beside(gpus, frame[found.slow]),
        origin_ns=found.origin_ns,
        epochs=found.epochs,
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


def _latency(timed: pd.DataFrame) -> Latency:
    by_stage: dict[str, Quantiles] = {}
    for stage in STAGES:
        if (found := quantiles(floats(timed, column(stage)))) is not None:
            by_stage[stage] = found
    total, given_up = floats(timed, "total_seconds"), cut_short(timed)
    client = floats(timed, "client_seconds")
    return Latency(
        total=censored_quantiles(total, given_up),
        ttft=quantiles(floats(timed, "ttft_seconds")),
        client=censored_quantiles(client, given_up),
        stages=MappingProxyType(by_stage),
        # A client gives up by its own clock, whatever the engine does afterwards.
        cut=cut(np.where(np.isnan(client), total, client), given_up),
    )


def _slow(frame: pd.DataFrame, found: Reckoning, scope: Scope) -> Slow:
    mask = found.slow
    stages = found.stages[mask]
    by_stage = {
        name: float(np.nansum(stages[:, place]))
        for place, name in enumerate(STAGES)
        if np.isfinite(stages[:, place]).any()
    }
    inferred = sum(
        int((~part.costing.work.measured[part.slow]).sum()) for part in found.parts if by_stage
    )
    return Slow(
        rule=scope.slow,
        threshold=found.threshold,
        requests=int(mask.sum()),
        seconds=float(np.nansum(floats(frame, "total_seconds")[mask])),
        excess_seconds=float(np.nansum(found.excess[mask])),
        by_stage=MappingProxyType(by_stage),
        inferred=inferred,
        slowest=slowest(frame, found),
    )
