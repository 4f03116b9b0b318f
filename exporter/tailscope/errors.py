"""The error that ends a command before it starts."""

from __future__ import annotations


class UsageError(Exception):
    """A command cannot run as asked; the text names the setting, its value and the mend."""
