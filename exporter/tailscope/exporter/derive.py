"""Computes what an engine does not give itself, as the catalogue says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tailscope.catalogue import METRICS, Engine
from tailscope.catalogue.upstream import Derived, Operation
from tailscope.exporter.entries import operand_name
from tailscope.exporter.merge import share
from tailscope.exporter.reading import Key

_RANK = 3
"""Place of the label ``rank`` among the values of a key."""


def derive(engine: Engine, numbers: dict[Key, float]) -> None:
    """Add derived values to what was read, and take the terms out of it.

    An engine's own value is never replaced: what it gives for one rank it gives for all.
    """
    for dialect in engine.dialects:
        for derived in dialect.derived:
            if not any(key.metric == derived.metric for key in _matching(derived, numbers)):
                _add(dialect, derived, numbers)
                if derived.optional:
                    _add_unranked(dialect, derived, numbers)
    for key in [key for key in numbers if key.metric not in METRICS]:
        del numbers[key]


def _matching(derived: Derived, numbers: dict[Key, float]) -> list[Key]:
    """Return the keys of the metric that have its fixed labels."""
    labels = METRICS[derived.metric].labels
    return [
        key
        for key in numbers
        if key.metric == derived.metric
        and all(key.values[labels.index(name)] == text for name, text in derived.fixed.items())
    ]


def _add(dialect: Engine, derived: Derived, numbers: dict[Key, float]) -> None:
    needed = [operand_name(dialect, name) for name in derived.operands]
    optional = [operand_name(dialect, name) for name in derived.optional]
    labels = METRICS[derived.metric].labels[4:]
    more = tuple(derived.fixed.get(label, "") for label in labels)
    for key in [key for key in numbers if key.metric == needed[0] and len(key.values) == 4]:
        values = [numbers.get(Key(name, key.values)) for name in needed]
        known = [value for value in values if value is not None]
        known += [
            numbers[other] for name in optional if (other := Key(name, key.values)) in numbers
        ]
        if None not in values and (result := _result(derived.operation, known)) is not None:
            numbers[Key(derived.metric, key.values + more)] = result


def _add_unranked(dialect: Engine, derived: Derived, numbers: dict[Key, float]) -> None:
    """Give what an operand has for the server as a whole, where the others have it for each rank.

    Added to one of the ranks it would be wrong, and left out the sum over all would be.
    """
    needed = operand_name(dialect, derived.operands[0])
    optional = [operand_name(dialect, name) for name in derived.optional]
    known = {key.values for key in numbers if key.metric == needed and len(key.values) == 4}
    ranked = {values[:_RANK] for values in known}
    rest = {
        key.values
        for key in numbers
        if key.metric in optional
        and key.values not in known
        and not key.values[_RANK]
        and key.values[:_RANK] in ranked
    }
    for values in rest:
        parts = (numbers.get(Key(name, values)) for name in optional)
        total = math.fsum(part for part in parts if part is not None)
        numbers[Key(derived.metric, values)] = total


def _result(operation: Operation, values: Sequence[float]) -> float | None:
    match operation:
        case Operation.SUM:
            return math.fsum(values)
        case Operation.PRODUCT:
            return math.prod(values)
        case Operation.RATIO:
            return share(values[0] / values[1]) if values[1] > 0 else None
        case Operation.DIFFERENCE:
            # Two gauges are not read at the same moment.
            return max(0.0, values[0] - math.fsum(values[1:]))
