"""What an outer view of a request tells of it that a nearer one does not know."""

from __future__ import annotations

from typing import Any

from tailscope.records.record import RequestRecord

_OF_ONE = ("model", "attempt", "input_tokens", "cached_tokens", "output_tokens")


def lent(
    inner: RequestRecord, outer: RequestRecord, *, alone: bool, again: bool = False
) -> dict[str, Any]:
    """Return the columns that the nearer row takes.

    Args:
        inner: The nearer one.
        outer: The outer one, which counts not.
        alone: Whether there is no other nearer one, so that all of it is about this one.
        again: Whether the nearer one's tenant is of a row that was less certain.
    """
    found: dict[str, Any] = {}
    if outer.tenant is not None and (inner.tenant is None or again):
        found["tenant"] = outer.tenant
    if alone:
        for name in _OF_ONE:
            value = getattr(outer, name)
            if value is not None and getattr(inner, name) is None:
                found[name] = value
        if outer.outcome not in (None, "ok"):
            found["outcome"] = outer.outcome
    return found
