"""Formats that a user declares: which keys of an access log are which columns of the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tailscope.errors import UsageError
from tailscope.records.formats import formats
from tailscope.records.formats.model import MICROSECONDS, MILLISECONDS, SECONDS, Field, Format
from tailscope.records.record import COLUMNS, ROLES

_UNITS = {"s": SECONDS, "ms": MILLISECONDS, "us": MICROSECONDS, "ns": 1e-9}
_KEYS = {"path", "unit"}
_TIMES = ("arrived_ns", "ended_ns")
_NEEDED = "arrived_ns, or ended_ns with total_seconds"


def declared(flag: str, text: str | None) -> dict[str, Format]:
    """Read a mapping of names to formats, in YAML.

    A format says for columns of the record which key they are, as ``KEY`` or as
    ``{path: KEY, unit: ms}``; ``like: envoy`` takes over what it does not say itself.

    Raises:
        UsageError: If it is none.
    """
    if not text:
        return {}
    # Imported only where it is wanted: it takes 1 MiB.
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UsageError(f"{flag}: no YAML; write {{NAME: {{COLUMN: KEY, ...}}}}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{flag}: write {{NAME: {{COLUMN: KEY, ...}}}}")
    return {str(name): _format(f"{flag} {name}", str(name), body) for name, body in value.items()}


def _format(where: str, name: str, body: Any) -> Format:
    if name in formats():
        raise UsageError(f"{where}: there is a format of that name; take another one")
    if not isinstance(body, dict):
        raise UsageError(f"{where}: write {{COLUMN: KEY, ...}}")
    told = {str(key): value for key, value in body.items()}
    base = Format(name, name, "gateway", (), MappingProxyType({}))
    if (like := told.pop("like", None)) is not None:
        if like not in formats():
            raise UsageError(f"{where}.like {like}: formats are {', '.join(formats())}")
        base = replace(formats()[like], name=name, title=name, recognise=())
    if (role := told.pop("role", base.role)) not in ROLES:
        raise UsageError(f"{where}.role {role}: one of {', '.join(ROLES)}")
    fields = {**base.fields, **{key: _field(where, key, one) for key, one in told.items()}}
    if "arrived_ns" not in fields and not {"ended_ns", "total_seconds"} <= fields.keys():
        raise UsageError(f"{where}: it has no arrival; add {_NEEDED}")
    return replace(base, role=role, fields=MappingProxyType(fields))


def _field(where: str, column: str, value: Any) -> Field:
    if column not in COLUMNS:
        raise UsageError(f"{where}.{column}: no column of the record; see docs/reference/record.md")
    if isinstance(value, str):
        return Field((value,))
    if not isinstance(value, Mapping) or "path" not in value or not value.keys() <= _KEYS:
        raise UsageError(f"{where}.{column}: write KEY or {{path: KEY, unit: ms}}")
    unit = value.get("unit", "s")
    if unit not in _UNITS or not (column in _TIMES or column.endswith("_seconds")):
        raise UsageError(f"{where}.{column}.unit {unit}: times have one of {', '.join(_UNITS)}")
    return Field((str(value["path"]),), _UNITS[unit])
