"""The files that others write: one module each, found by itself when it defines ``FORMAT``."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tailscope.errors import UsageError
from tailscope.records.formats.model import Format

_MECHANISM = {"model"}


@cache
def formats() -> dict[str, Format]:
    """Return every format of this package by its name, in alphabetical order."""
    found: dict[str, Format] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        if module.name not in _MECHANISM:
            one: Format = importlib.import_module(f"{__name__}.{module.name}").FORMAT
            found[one.name] = one
    return found


def told_format(
    flag: str, text: str, more: Mapping[str, Format] | None = None
) -> tuple[Format | None, Path]:
    """Split ``FORMAT=FILE``; the format is None where the text is a file's name alone.

    Raises:
        UsageError: If there is no such format.
    """
    name, equals, path = text.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+", name):
        return None, Path(text)
    known = {**formats(), **(more or {})}
    if name not in known:
        raise UsageError(f"{flag} {name}=...: formats are {', '.join(known)}")
    return known[name], Path(path)
