"""What a step of a continuous-batching engine costs, what the engine holds, and how fast it was.

One step takes

    seconds = max(floor, base + per_prefill*P + per_decode*n) + per_read*R + per_pair*A

with P prompt tokens, n decoding requests, R cached tokens that the n requests read, and A
query-key pairs of the prompt tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

UNLIMITED = 1 << 60


class Scheduler(StrEnum):
    """What a step computes when both prompts and decodes are there."""

    MIXED = "mixed"
    PREFILL_FIRST = "prefill_first"


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step; see the module's formula.

    Attributes:
        floor: Seconds that a step takes at least.
        base: Seconds of a step before any token.
        per_prefill: Seconds per prompt token.
        per_decode: Seconds per decoding request.
        per_read: Seconds per cached token read.
        per_pair: Seconds per query-key pair of prompt tokens.
    """

    floor: float
    base: float = 0.0
    per_prefill: float = 0.0
    per_decode: float = 0.0
    per_read: float = 0.0
    per_pair: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine holds at most.

    Attributes:
        sequences: Requests in the batch.
        tokens: Tokens of one step.
        cache: Tokens in the KV cache.
        scheduler: Scheduler class.
    """

    sequences: int = UNLIMITED
    tokens: int = UNLIMITED
    cache: int = UNLIMITED
    scheduler: Scheduler = Scheduler.MIXED


@dataclass(frozen=True, slots=True)
class Speed:
    """How much slower than usual the engine was, piecewise constant over time.

    Attributes:
        edges: Seconds at which a new factor begins; ascending.
        factor: Multiplier of the step time from each edge on; 1 before the first.
    """

    edges: tuple[float, ...] = ()
    factor: tuple[float, ...] = ()


HEALTHY = Speed()
"""An engine that was as fast as usual all the time."""
