"""The groups of rules, one module each, found by themselves: each defines ``GROUP``."""

from __future__ import annotations

import importlib
import pkgutil

from tailscope.alerts.model import AlertError, Group


def groups() -> tuple[Group, ...]:
    """Return every group, in the order of their module names.

    Raises:
        AlertError: If two groups, or two alerts, have the same name.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: tuple[Group, ...] = tuple(
        importlib.import_module(f"{__name__}.{name}").GROUP for name in names
    )
    alerts = [alert.name for group in found for alert in group.alerts]
    for values in (alerts, [group.name for group in found]):
        if len(set(values)) < len(values):
            raise AlertError(f"a name is used twice: {sorted(values)}")
    return found
