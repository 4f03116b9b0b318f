"""Every number that an alert compares with, and why it is that number. Tune them here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit.

    Attributes:
        value: In base units.
        why: Where the number comes from.
    """

    value: float
    why: str

    @property
    def seconds(self) -> str:
        """The value as text, for a sentence."""
        return f"{self.value:g} s"

    @property
    def percent(self) -> str:
        """The value, a ratio, as text for a sentence."""
        return f"{self.value * 100:g} %"


QUEUE_WAIT: Final = Threshold(1, "a mean wait of a second is felt by everybody, whatever the model")
QUEUE_DEPTH: Final = Threshold(
    0.1, "waiting over running requests: relative to the batch, so that no model needs its own"
)
QUEUE_SHARE: Final = Threshold(
    0.5, "when most of the time to first token is waiting, only less load or more capacity helps"
)
SLOW_FIRST_TOKEN: Final = Threshold(
    0.5, "a share of a short time harms nobody: the mean time to first token must be felt"
)
LEAST_TRAFFIC: Final = Threshold(0.2, "requests a second: below, a mean is an anecdote")
STALLED_LOAD: Final = Threshold(
    0.5, "requests in the engine on average: there was work to do for most of the time"
)
CACHE_USAGE: Final = Threshold(
    0.9, "full is normal under load; only together with preemptions it costs anything"
)
PREEMPTIONS: Final = Threshold(
    0.02, "2 in 100 requests computed twice; per request, not per second, to fit any load"
)
TENANT_SHARE: Final = Threshold(0.5, "more of the batch than all others together")
TENANT_GROWTH: Final = Threshold(
    0.2, "a tenant that is always large is not noisy: 20 points above its own mean of the past"
)
TENANT_HARM: Final = Threshold(0.5, "mean queue wait in seconds: somebody has to be harmed")
BEYOND_BUCKETS: Final = Threshold(
    0.01, "above 1 % the p99 lies beyond the last bucket, and is a lower bound only"
)
