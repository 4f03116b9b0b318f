"""What the tests of boards and alerts went through, told at the end of a run."""

from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()
"""How many of each were checked, by the tests that checked them."""


def told() -> str:
    """One line, or nothing where nothing was counted."""
    return ", ".join(f"{count} {what}" for what, count in COUNTS.items())
