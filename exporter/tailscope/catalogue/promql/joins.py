"""Parts joined: each function takes whole expressions and sets the brackets that they need."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailscope.catalogue.model import CatalogueError

_JOINS = re.compile(r"\s(?:[-+*/%^]|[<>=!]=?|and|or|unless)\s")
_NESTED = re.compile(r'"(?:\\.|[^"\\])*"|\([^()"]*\)|\{[^{}"]*\}|\[[^\[\]"]*\]')


def ratio(part: str, whole: str) -> str:
    """Part over whole; nothing, not NaN, where the whole is 0."""
    return f"{_operand(part)} / ({_operand(whole)} > 0)"


def share(part: str, whole: str, on: Sequence[str] = ()) -> str:
    """Each series of the part over the one whole that it belongs to by the labels of ``on``."""
    return f"{_operand(part)} / on ({', '.join(on)}) group_left () ({_operand(whole)} > 0)"


def filled(part: str, whole: str) -> str:
    """The part, and 0 where only the whole is known: it was looked for and not there."""
    return f"{_operand(part)} or 0 * {_operand(whole)}"


def difference(left: str, right: str) -> str:
    """Left less right, series by series."""
    return f"{_operand(left)} - {_operand(right)}"


def times(factor: float, operand: str) -> str:
    """The operand, scaled."""
    return f"{factor:g} * {_operand(operand)}"


def compare(left: str, operator: str, right: float | str, on: Sequence[str] = ()) -> str:
    """A condition: the series of the left side for which it holds, with their values."""
    if operator not in ("<", "<=", ">", ">=", "==", "!=", "== bool"):
        raise CatalogueError(f"{operator!r} is no comparison")
    side = f"{right:g}" if isinstance(right, int | float) else _operand(right)
    matching = f" on ({', '.join(on)})" if on else ""
    return f"{_operand(left)} {operator}{matching} {side}"


def every(first: str, *conditions: str, on: Sequence[str]) -> str:
    """The first condition where all the others hold too, a line each."""
    joint = f"\nand on ({', '.join(on)}) "
    return joint.join((_operand(first), *(f"({condition})" for condition in conditions)))


def either(*conditions: str) -> str:
    """Series for which any of the conditions holds, with the value of the first that does."""
    return "\nor ".join(f"({condition})" for condition in conditions)


def unless(condition: str, exception: str, on: Sequence[str]) -> str:
    """The condition, but for the series for which the exception holds."""
    return f"({condition})\nunless on ({', '.join(on)}) ({exception})"


def largest(vector: str, by: Sequence[str] = ()) -> str:
    """The largest series of a vector; never of quantiles, which may not be combined."""
    kept = f" by ({', '.join(by)})" if by else ""
    return f"max{kept} ({vector})"


def total(vector: str, by: Sequence[str] = ()) -> str:
    """The sum of a vector."""
    kept = f" by ({', '.join(by)})" if by else ""
    return f"sum{kept} ({vector})"


def absent(vector: str) -> str:
    """1 where no such series exists at all."""
    return f"absent({vector})"


def age(timestamp: str) -> str:
    """Seconds since a time stamp."""
    return f"time() - {_operand(timestamp)}"


def _operand(expression: str) -> str:
    """Return the expression in brackets if an operator stands outside of all brackets."""
    outside = expression
    while (inner := _NESTED.sub("@", outside)) != outside:
        outside = inner
    return f"({expression})" if _JOINS.search(outside) else expression
