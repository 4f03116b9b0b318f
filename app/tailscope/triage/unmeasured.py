"""Stage times that nobody measured, from the play of the load itself.

What an engine was sent, and when, is known even where only the total times are. So the calibrated
engine plays the load, the times that were measured are shared out among the stages as in the play,
and the engine is calibrated again on these: each time it is nearer to what was measured, until it
is no longer. How near it comes is judged by measured times alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tailscope.triage.calibration import Engine, calibrate
from tailscope.triage.cost import Cost, activity, fit
from tailscope.triage.simulator import Play
from tailscope.triage.stagetimes import Stages
from tailscope.triage.step import HEALTHY, Limits, Speed
from tailscope.triage.work import Floats, Work

_ROUNDS = 2
"""Rounds beside the first; more bring it no nearer."""


def calibrated(
    work: Work, cost: Cost, speed: Speed = HEALTHY, known: Limits | None = None
) -> Engine:
    """Calibrate an engine on requests whose stage times may be inferred; see ``calibrate``."""
    best = calibrate(work, cost, speed, known)
    if work.stages is Stages.MEASURED:
        return best
    for _ in range(_ROUNDS):
        work = shared_out(work, best.play)
        found = calibrate(work, fit(work, *activity(work)), speed, known)
        if found.loss >= best.loss:
            break
        best = found
    return best


def shared_out(work: Work, play: Play) -> Work:
    """The same requests with the times that were not measured shared out as in a play."""
    waited, first = play.start - work.arrived, play.first - work.arrived
    before = work.wait + work.prefill
    if work.stages is Stages.TOTAL:
        before = _part(work.total, first, play.done - work.arrived)
    queue = _part(before, waited, first)
    known = work.measured
    return replace(
        work,
        frontend=np.where(known, work.frontend, 0.0),
        queue=np.where(known, work.queue, queue),
        prefill=np.where(known, work.prefill, before - queue),
        decode=np.where(known, work.decode, work.total - before),
    )


def _part(seconds: Floats, part: Floats, whole: Floats) -> Floats:
    """As large a part of some seconds as another part is of its whole."""
    found: Floats = seconds * np.clip(part / np.maximum(whole, 1e-9), 0.0, 1.0)
    return found
