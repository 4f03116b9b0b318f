"""Find the engine behind the records: what its steps cost, what it holds, how it schedules.

Two problems are kept apart, because the second is chaotic and the first need not be.

*Cost.* The simulator is told when each request started, so that no queue can amplify an error, and
counts what the steps of each request's prefill and decode consisted of. Measured seconds are linear
in these counts; a robust non-negative fit gives the costs, with which the counts are taken again,
half way between the old and the new (geometric mean), or the rounds swing. Rows are weighted by
1/seconds: calm requests, whose company is known best, decide.

*Limits.* With these costs the load is played freely, for each class of scheduler and each limit
that the records allow for; the one that comes nearest to the measured times is kept. At last the
costs are scaled together by a few percent, where that brings the play nearer: what a step costs
beside its tokens shows only in a queue.

The distance of a play is its loss: seconds of |simulated - measured| time before the first token
and of decode, over the seconds measured; of the total where that is all that was measured.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache

import numpy as np

from tailscope.triage.cost import Cost, robust
from tailscope.triage.exposure import running
from tailscope.triage.simulator import Load, Play, load, simulate
from tailscope.triage.stagetimes import Stages
from tailscope.triage.step import HEALTHY, UNLIMITED, Limits, Scheduler, Speed, StepCost
from tailscope.triage.work import Floats, Work

_ROUNDS = 4
"""Rounds of count and fit that tell which limits are worth more."""

_MORE_ROUNDS = 6
"""Rounds for these: the costs then change by less than 1 %."""

_BEFORE, _ENOUGH = 100, 400
"""Requests that are enough to fit the costs, and as many before them as fill the engine."""

_WORTH = 2
"""Limits of tokens that are worth a free play."""

_TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
"""Usual limits of tokens per step."""

_SCALES = (0.97, 1.03, 1.06, 1.1)
_NEAR = 0.005
"""A play that is nearer than this needs no better limits."""

_CACHE = (0.85, 0.95, 1.05)
_KEPT = 16
"""Calibrations that are remembered: another filter, or another rule of what is slow, asks for the
same one again."""

_STAY = 0.9
"""Another limit is only taken for real if it lowers the loss to this fraction."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A calibrated engine.

    Attributes:
        cost: Seconds of a step.
        limits: What it holds at most; what never held anybody back is unlimited.
        speed: When it was slower than usual.
        overhead: Seconds that every request takes before it can start, engine idle.
        loss: Distance of its play from the records; 0 is perfect.
        play: Its play of the load that it was calibrated on.
    """

    cost: StepCost
    limits: Limits
    speed: Speed
    overhead: float
    loss: float
    play: Play


def calibrate(
    work: Work, cost: Cost, speed: Speed = HEALTHY, known: Limits | None = None
) -> Engine:
    """Calibrate an engine on the requests of one engine instance.

    Args:
        work: Its requests.
        cost: Their fitted cost: where the search begins.
        speed: When the engine was slower than usual.
        known: Limits that are known, for example from the engine's own information; the scheduler
            is searched all the same.
    """
    return _calibrated(_Problem(_digest(work, cost, speed, known), work, cost, speed, known))


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is calibrated: equal if the digests are."""

    digest: bytes
    work: Work = field(compare=False)
    cost: Cost = field(compare=False)
    speed: Speed = field(compare=False)
    known: Limits | None = field(compare=False)


def _digest(work: Work, cost: Cost, speed: Speed, known: Limits | None) -> bytes:
    arrays = (work.arrived, work.frontend, work.queue, work.prefill, work.decode)
    sizes = (work.computed, work.cached, work.output)
    found = hashlib.blake2b(repr((cost, speed, known)).encode())
    for array in (*arrays, *sizes):
        found.update(array.tobytes())
    return found.digest()


@lru_cache(maxsize=_KEPT)
def _calibrated(problem: _Problem) -> Engine:
    work, cost, speed, known = problem.work, problem.cost, problem.speed, problem.known
    trial = _Trial(work, delayed(load(work), cost.frontend), cost, speed)
    found = min(
        (_by_tokens(trial, scheduler, known) for scheduler in Scheduler), key=lambda one: one.loss
    )
    if known is None:
        found = _loosened(trial, found)
    if found.loss < _NEAR:
        return found
    if known is None:
        found = _by_room(trial, found)
    return _scaled(trial, found)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What all trials of a calibration share."""

    work: Work
    sent: Load
    cost: Cost
    speed: Speed

    def play(self, cost: StepCost, limits: Limits) -> Engine:
        """Play the load on an engine, and measure how far it is from the records."""
        play = simulate(self.sent, cost, limits, self.speed)
        distance = loss(self.work, play)
        return Engine(cost, limits, self.speed, self.cost.frontend, distance, play)

    def waited(self) -> bool:
        """Whether requests waited for longer than the steps of their time can explain."""
        return bool((self.work.held_back > 20.0 * max(self.cost.step, 1e-3)).any())


def _by_tokens(trial: _Trial, scheduler: Scheduler, known: Limits | None) -> Engine:
    """The best engine of a scheduler class, over the usual limits of tokens per step.

    A limit that is not the engine's makes steps that the seconds of the requests do not fit, so
    that the forced play tells which few limits are worth a free one.
    """
    start = known or Limits(sequences=most(trial.work) if trial.waited() else UNLIMITED)
    sizes = [known.tokens] if known else _sizes(trial.work)
    part = _busiest(trial.work)
    fits = []
    for size in sizes:
        limits = replace(start, tokens=size, scheduler=scheduler)
        fits.append((limits, *_step_cost(part, _first_guess(trial.cost), limits, _ROUNDS)))
    fits.sort(key=lambda one: one[2])
    return min(
        (
            trial.play(_step_cost(part, cost, limits, _MORE_ROUNDS)[0], limits)
            for limits, cost, _ in fits[:_WORTH]
        ),
        key=lambda one: one.loss,
    )


def _sizes(work: Work) -> list[int]:
    """Limits that would show: all below the longest prompt, and two above it."""
    below = sum(size < float(work.computed.max()) for size in _TOKENS)
    return list(_TOKENS[: below + 2])


def _busiest(work: Work) -> Work:
    """Consecutive requests that are enough for a fit: those that waited longest, and before."""
    if len(work) <= _BEFORE + _ENOUGH:
        return work
    waited = np.cumsum(np.concatenate([[0.0], work.wait]))
    sums = waited[_ENOUGH:] - waited[:-_ENOUGH]
    begin = int(np.argmax(sums))
    return work.take(np.arange(max(begin - _BEFORE, 0), begin + _ENOUGH))


def delayed(sent: Load, seconds: float) -> Load:
    """A load that reaches the engine this much later."""
    return replace(sent, arrived=[arrived + seconds for arrived in sent.arrived])


def loss(work: Work, play: Play) -> float:
    """Distance of a play from the records of the same requests, by what was measured of them."""
    if work.stages is Stages.TOTAL:
        missed = float(np.nan_to_num(np.abs(play.done - work.done)).sum())
    else:
        before = np.abs(play.first - work.first)
        decode = np.abs((play.done - play.first) - work.decode)
        missed = float((np.nan_to_num(before) + np.nan_to_num(decode)).sum())
    total = float(work.total.sum())
    return missed / total if total > 0 else math.inf


def most(work: Work) -> int:
    """Requests in the batch while others had to wait: the highest level that was held for long.

    A level that was held for less than 1 % of that time is an error of the clocks: the place of a
    request that is done is taken at once, and the two times come from different clocks.
    """
    times, open_ = running(work.start, work.done)
    waiting_times, waiting = running(work.start - work.held_back, work.start)
    edges = np.unique(np.concatenate([times, waiting_times]))
    level = open_[np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)]
    queue = waiting[np.maximum(np.searchsorted(waiting_times, edges, side="right") - 1, 0)]
    spans = np.diff(edges, append=edges[-1:]) * (queue > 0)
    held = np.cumsum(np.bincount(np.maximum(level, 0), weights=spans)[::-1])[::-1]
    return max(int(np.flatnonzero(held >= 0.01 * held[0])[-1]), 1)


def most_tokens(work: Work) -> float:
    """Most tokens in the cache: prompts as reserved at the start, half of the output."""
    size = work.context + 0.5 * work.output
    times = np.concatenate([work.done, work.start])
    change = np.concatenate([-size, size])[np.argsort(times, kind="stable")]
    return float(np.cumsum(change).max())


def _step_cost(part: Work, guess: StepCost, limits: Limits, rounds: int) -> tuple[StepCost, float]:
    """Fit the step cost with every request started when it really did.

    Returns:
        The cost, and the share of the measured seconds that it leaves unexplained.
    """
    part = part.take(np.argsort(part.start, kind="stable"))
    sent = replace(load(part), arrived=part.start.tolist())
    forced = Limits(tokens=limits.tokens, scheduler=limits.scheduler)
    now, best, least = guess, guess, math.inf
    for number in range(rounds):
        counted = simulate(sent, now, forced, count=True).counters
        assert counted is not None  # noqa: S101 - it was asked for
        found, error = _solve(part, counted, guess.floor)
        now = _between(now, found)
        if error < least and number:
            best, least = now, error
    return best, least


def _first_guess(cost: Cost) -> StepCost:
    step = max(cost.step, 1e-5)
    return StepCost(
        floor=step,
        base=min(cost.prompt, step) or 0.5 * step,
        per_prefill=cost.own_token or cost.token,
        per_decode=cost.decode or cost.own_token,
        per_read=cost.read,
        per_pair=cost.own_pair or cost.pair,
    )


def _solve(part: Work, counted: Floats, step: float) -> tuple[StepCost, float]:
    """Costs from the counters of a play, and the share of the seconds that they leave."""
    matrix = np.concatenate([counted[:, 1] - counted[:, 0], counted[:, 2] - counted[:, 1]])
    seconds = np.concatenate([part.prefill, part.decode])
    use = (matrix.sum(axis=1) > 0) & (seconds > 0)
    matrix, seconds = matrix[use], seconds[use]
    found = robust(matrix, seconds, 1.0 / np.maximum(seconds, max(step, 1e-6)))
    error = float(np.abs(seconds - matrix @ found).sum() / max(seconds.sum(), 1e-9))
    floor, base, prefill, decode, read, pair = (float(value) for value in found)
    return StepCost(max(floor, base), base, prefill, decode, read, pair), error


def _between(old: StepCost, new: StepCost) -> StepCost:
    """Half way, on a logarithmic scale; what one of them lacks counts as a tenth of the other."""
    pairs = zip(astuple(old), astuple(new), strict=True)
    return StepCost(*(math.sqrt(max(a, b / 10) * max(b, a / 10)) for a, b in pairs))


def _loosened(trial: _Trial, best: Engine) -> Engine:
    """The same without a limit of the batch, if that limit held nobody back.

    Requests wait for the end of a step, too, so that the largest batch need not be a full one.
    """
    if best.limits.sequences >= UNLIMITED:
        return best
    free = trial.play(best.cost, replace(best.limits, sequences=UNLIMITED))
    return free if free.loss <= best.loss else best


def _by_room(trial: _Trial, best: Engine) -> Engine:
    """Try other limits of the batch and of the cache, with the same costs."""
    if not trial.waited():
        return best
    level, tokens = min(best.limits.sequences, most(trial.work)), most_tokens(trial.work)
    choices = [replace(best.limits, sequences=size) for size in (level - 1, UNLIMITED)]
    choices += [
        replace(best.limits, sequences=UNLIMITED, cache=round(tokens * part)) for part in _CACHE
    ]
    plain = best.loss
    for limits in choices:
        if limits.sequences < 1:
            continue
        found = trial.play(best.cost, limits)
        if found.loss < min(best.loss, _STAY * plain):
            best = found
    return best


def _scaled(trial: _Trial, best: Engine) -> Engine:
    unscaled = best.cost
    for scale in _SCALES:
        cost = StepCost(*(scale * value for value in astuple(unscaled)))
        found = trial.play(cost, best.limits)
        if found.loss < best.loss:
            best = found
    return best
