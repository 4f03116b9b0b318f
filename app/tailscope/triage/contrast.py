"""When a share beside the slow requests is more than what is there at any time."""

from __future__ import annotations

MIN_SHARE = 0.2
"""What held a smaller share beside the slow requests than this does not stand out."""

MIN_ODDS = 2.0
"""Nor does what has about the same share beside the slow requests as over the whole window: what is
large is large at any time. The odds of the two shares must differ by this factor."""


def stands_out(beside: float, whole: float) -> bool:
    """Whether a share beside the slow requests stands out from that over the window; both 0-1."""
    return beside >= MIN_SHARE and beside * (1 - whole) >= MIN_ODDS * whole * (1 - beside)
