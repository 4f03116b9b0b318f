"""Which requests count as slow.

By a percentile, slow means much longer than it would take alone: a long answer is long, not slow.
By a number of seconds, slow means a total time of at least that, as in an objective.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FLOOR_SECONDS = 0.3
"""By a percentile, nothing is slow that took less than this longer than it would alone."""

MIN_REQUESTS = 20
"""With fewer requests than this nobody can say which are unusual."""

_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)?")


@dataclass(frozen=True, slots=True)
class SlowRule:
    """Which requests count as slow: by percentile or by seconds, the other is None."""

    percentile: float | None = 95.0
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> SlowRule:
        """Read ``p95``, ``2``, ``2.5 s`` or ``300ms``.

        Raises:
            ValueError: If the text is none of these.
        """
        if hit := _PERCENTILE.fullmatch(text.strip()):
            if (percentile := float(hit[1])) > 0:
                return cls(percentile, None)
        elif hit := _SECONDS.fullmatch(text.strip()):
            seconds = float(hit[1]) / (1000 if hit[2] == "ms" else 1)
            if seconds > 0:
                return cls(None, seconds)
        raise ValueError(f"{text!r} is neither a percentile such as p95 nor a time such as 2.5s")

    def __str__(self) -> str:
        return f"p{self.percentile:g}" if self.seconds is None else f"{self.seconds:g} s"
