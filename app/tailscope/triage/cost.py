"""What the work of a request costs its engine, and what it would take alone.

The decode of a request lasts as long as its own steps and what others did in the same steps:

    D = alpha m + bP P + bA A + bD B + bK K        P, A, B, K: work of all others in [first, done],
                                                   K with the request's own reads

and likewise its prefill, from its own tokens and what others did meanwhile:

    F = phi0 + phiP p + phiA A + gP P + gD B

Both are fitted by non-negative least squares, reweighted so that outliers do not bend them (Huber):
a slow minute of the engine must not look like the price of a token. Rows are weighted by 1/D: the
error of a long decode is in proportion to it. The fit holds for one engine, one model and one
configuration of it; a change of configuration begins a new epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from tailscope.triage.exposure import Curve, curve
from tailscope.triage.stagetimes import Stages
from tailscope.triage.work import Floats, Ints, Work

SAMPLE = 4_000
"""Rows that are enough for a fit."""

FEWEST = 8
"""Rows below which nothing can be fitted: the baseline is then the fastest request per token."""

_INSTANT = 1e-3
"""Seconds below which a time is mostly the error of its clock."""

_ROUNDS = 8
_BLOCK = 256
_HUBER = 1.5
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Cost:
    """Fitted cost of one engine; seconds per unit of work.

    Attributes:
        step: Decode step of a request that is alone, alpha.
        prompt: Prefill before any token, phi0.
        own_token: Own computed prompt token, phiP.
        own_pair: Own query-key pair, phiA.
        token: Prompt token of another request, bP.
        pair: Query-key pair of another request, bA.
        decode: Decode step of another request, bD.
        read: Cached token read, bK.
        frontend: Seconds before the queue on an idle engine.
        fit: Share of the variance of the seconds per output token that the fit explains, R2.
    """

    step: float
    prompt: float
    own_token: float
    own_pair: float
    token: float
    pair: float
    decode: float
    read: float
    frontend: float
    fit: float


@dataclass(frozen=True, slots=True)
class Alone:
    """What each request would take alone on a healthy engine; never more than it took, (n,)."""

    frontend: Floats
    prefill: Floats
    decode: Floats

    @property
    def total(self) -> Floats:
        """All stages; the queue takes nothing."""
        return self.frontend + self.prefill + self.decode


def activity(work: Work) -> tuple[Curve, Curve]:
    """Cumulated prefill work (tokens, pairs) and decode work (steps, reads) of all requests."""
    first = work.first
    return (
        curve(work.start, first, np.column_stack([work.computed, work.attention])),
        curve(first, work.done, np.column_stack([work.steps, work.reads])),
    )


def fit(work: Work, prompts: Curve, decodes: Curve) -> Cost:
    """Fit the cost of one engine instance; see the module for the formulas.

    Args:
        work: Its requests.
        prompts: Their prefill work, as ``activity`` gives it.
        decodes: Their decode work.
    """
    rows = _sample(work)
    part = work.take(rows)
    frontend = float(np.quantile(part.frontend, 0.05))
    if len(part) < FEWEST:
        return _fastest(part, frontend)
    step, token, pair, decode, read, explained = _decode(part, prompts, decodes)
    own = _prefill(part, prompts, decodes)
    return Cost(
        step=step,
        prompt=own[0],
        own_token=own[1],
        own_pair=own[2],
        token=token if token > 0 and work.stages is Stages.MEASURED else own[1],
        pair=pair,
        decode=decode,
        read=read,
        frontend=frontend,
        fit=explained,
    )


def alone(work: Work, cost: Cost) -> Alone:
    """What each request would take alone, stage by stage, at most what it took."""
    prefill = cost.prompt + cost.own_token * work.computed + cost.own_pair * work.attention
    decode = cost.step * work.steps + cost.read * work.reads
    return Alone(
        frontend=np.minimum(work.frontend, cost.frontend),
        prefill=np.minimum(work.prefill, prefill),
        decode=np.minimum(work.decode, decode),
    )


def expected_decode(work: Work, cost: Cost, prompts: Curve, decodes: Curve) -> Floats:
    """Seconds that each decode should have taken with the company that it had, shape (n,)."""
    first, done, steps = work.first, work.done, work.steps
    company = decodes.between(first, done)
    prompt = prompts.between(first, done)
    found: Floats = (
        cost.step * steps
        + cost.token * prompt[:, 0]
        + cost.pair * prompt[:, 1]
        + cost.decode * np.maximum(company[:, 0] - steps, 0.0)
        + cost.read * company[:, 1]
    )
    return found


def robust(matrix: Floats, seconds: Floats, weight: Floats) -> Floats:
    """Non-negative least squares that outliers cannot bend (Huber weights, iterated).

    Args:
        matrix: Units of work, shape (n, kinds).
        seconds: Shape (n,).
        weight: Weight of each residual, shape (n,).

    Returns:
        Seconds per unit, shape (kinds,); 0 for a kind of work that nobody did.
    """
    trust = np.ones(len(seconds))
    found = np.zeros(matrix.shape[1])
    for _ in range(_ROUNDS):
        scale = weight * np.sqrt(trust)
        scaled = matrix * scale[:, None]
        norm = np.sqrt((scaled**2).sum(axis=0))
        norm[norm == 0.0] = 1.0
        # The solver's work grows with the rows; their triangle has the same solution.
        both = np.column_stack([scaled / norm, seconds * scale])
        triangle = _triangle(both)
        found = nnls(triangle[:, :-1], triangle[:, -1])[0] / norm
        error = np.abs(seconds - matrix @ found) * weight
        bound = _HUBER * _MAD * float(np.median(error))
        trust = np.minimum(1.0, bound / np.maximum(error, 1e-12)) if bound > 0 else trust
    return found


def _triangle(matrix: Floats) -> Floats:
    """Right factor of the QR decomposition, by way of blocks.

    They are too small for BLAS to start threads, which wait for each other where cores are few.
    """
    kinds = matrix.shape[1]
    padded = np.zeros((-(-len(matrix) // _BLOCK) * _BLOCK, kinds))
    padded[: len(matrix)] = matrix
    blocks = np.asarray(np.linalg.qr(padded.reshape(-1, _BLOCK, kinds), mode="r"))
    return np.asarray(np.linalg.qr(blocks.reshape(-1, kinds), mode="r"))


def decode_work(part: Work, prompts: Curve, decodes: Curve) -> Floats:
    """Units of work that each decode shared its time with, shape (n, 5).

    Own steps; prompt tokens and pairs of others; steps of others; cached tokens read by all.
    """
    first, done = part.first, part.done
    company = decodes.between(first, done)
    others = np.maximum(company[:, 0] - part.steps, 0.0)
    return np.column_stack([part.steps, prompts.between(first, done), others, company[:, 1]])


def decode_prices(matrix: Floats, seconds: Floats) -> tuple[Floats, float]:
    """Seconds per unit of each kind of work, and how much of the pace they explain (R squared)."""
    found = robust(matrix, seconds, 1.0 / np.maximum(seconds, _INSTANT))
    pace, guess = seconds / matrix[:, 0], matrix @ found / matrix[:, 0]
    spread = float(((pace - pace.mean()) ** 2).sum())
    return found, 1.0 - float(((pace - guess) ** 2).sum()) / spread if spread > 0 else 1.0


def _decode(
    part: Work, prompts: Curve, decodes: Curve
) -> tuple[float, float, float, float, float, float]:
    steps = part.steps
    use = (steps >= 4) & (part.decode > 0)
    if use.sum() < FEWEST:
        use = (steps > 0) & (part.decode > 0)
    if use.sum() < FEWEST:
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    seconds = part.decode[use]
    found, explained = decode_prices(decode_work(part.take(use), prompts, decodes), seconds)
    step, token, pair, decode, read = (float(value) for value in found)
    if step == 0.0:
        step = float(np.quantile(seconds / steps[use], 0.05))
    return step, token, pair, decode, read, explained


def _prefill(part: Work, prompts: Curve, decodes: Curve) -> tuple[float, float, float]:
    use = (part.computed > 0) & (part.prefill > 0)
    if use.sum() < FEWEST:
        return (0.0, 0.0, 0.0)
    start, first = part.start[use], part.first[use]
    other = prompts.between(start, first)
    others = np.maximum(other[:, 0] - part.computed[use], 0.0)
    other_pairs = np.maximum(other[:, 1] - part.attention[use], 0.0)
    steps = decodes.between(start, first)[:, 0]
    ones = np.ones(int(use.sum()))
    matrix = np.column_stack(
        [ones, part.computed[use], part.attention[use], others, other_pairs, steps]
    )
    found = robust(matrix, part.prefill[use], 1.0 / np.maximum(part.prefill[use], _INSTANT))
    return float(found[0]), float(found[1]), float(found[2])


def _sample(work: Work) -> Ints:
    if len(work) <= SAMPLE:
        return np.arange(len(work))
    return np.linspace(0, len(work) - 1, SAMPLE).astype(np.int64)


def _fastest(part: Work, frontend: float) -> Cost:
    """Too few rows for a fit: the fastest seen stands for alone."""
    steps, computed = np.maximum(part.steps, 1.0), np.maximum(part.computed, 1.0)
    step = float(np.min(part.decode / steps)) if len(part) else 0.0
    token = float(np.min(part.prefill / computed)) if len(part) else 0.0
    return Cost(step, 0.0, token, 0.0, token, 0.0, 0.0, 0.0, frontend, 0.0)
