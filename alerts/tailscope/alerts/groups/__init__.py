"""The groups of rules, one module each, found by themselves: each defines ``group``."""

from __future__ import annotations

import importlib
import pkgutil

from tailscope.alerts.model import AlertError, Group
from tailscope.alerts.thresholds import Limits
from tailscope.alerts.thresholds import limits as shipped


def groups(limits: Limits | None = None) -> tuple[Group, ...]:
    """Return every group, in the order of their module names.

    Args:
        limits: What the alerts compare with; by default what is shipped.

    Raises:
        AlertError: If two groups, or two alerts, have the same name.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: tuple[Group, ...] = tuple(
        importlib.import_module(f"{__name__}.{name}").group(limits or shipped()) for name in names
    )
    alerts = [alert.name for group in found for alert in group.alerts]
    for values in (alerts, [group.name for group in found]):
        if len(set(values)) < len(values):
            raise AlertError(f"a name is used twice: {sorted(values)}")
    return found
