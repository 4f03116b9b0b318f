"""The engines: one module each, found by itself when it defines ``ENGINE``."""

from __future__ import annotations

import importlib
import pkgutil

from tailscope.catalogue.upstream import Engine


def engines() -> dict[str, Engine]:
    """Return every engine of this package by its name, in alphabetical order."""
    found: dict[str, Engine] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        engine = importlib.import_module(f"{__name__}.{module.name}").ENGINE
        found[engine.name] = engine
    return found
