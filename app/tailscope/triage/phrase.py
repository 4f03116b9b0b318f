"""What is said: English text that still knows its template and what fills it.

The triage speaks English, and a reader of another language is told the same by the template, which
is the key of a translation. So no text is ever read back. A phrase is a ``str``: what only prints
it needs to know nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

UNKNOWN, OTHERS = "unknown", "other tenants"
"""Stand for a tenant that nobody told of, and for all that a reader may not tell apart."""

_NOTHING: Mapping[str, object] = MappingProxyType({})


class Phrase(str):
    """A text made of a template, or of other phrases in a row.

    Attributes:
        template: What it was made of, with the slots in braces; empty for several phrases in a row.
        values: What fills the slots: phrases, names, or numbers with their unit.
        parts: The phrases in a row.
        glue: What stands between them.
    """

    __slots__ = ("glue", "parts", "template", "values")

    template: str
    values: Mapping[str, object]
    parts: tuple[str, ...]
    glue: str

    @classmethod
    def of(cls, template: str, values: Mapping[str, object]) -> Phrase:
        """Fill the slots of a template."""
        self = cls(template.format(**values) if values else template)
        self.template, self.values, self.parts, self.glue = template, values, (), ""
        return self

    @classmethod
    def row(cls, parts: tuple[str, ...], glue: str) -> Phrase:
        """Put texts in a row."""
        self = cls(glue.join(parts))
        self.template, self.values, self.parts, self.glue = "", _NOTHING, parts, glue
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and other processes get the same."""
        if self.template:
            return Phrase.of, (self.template, dict(self.values))
        return Phrase.row, (self.parts, self.glue)


def tell(template: str, /, **values: object) -> Phrase:
    """Say something.

    Args:
        template: English, written out where it is said, so that a test finds it.
        values: What fills its slots.
    """
    return Phrase.of(template, values)


def several(count: int, one: str, many: str, /, **values: object) -> Phrase:
    """Say something of a number of things, which fills the slot ``n``."""
    return Phrase.of(one if count == 1 else many, {"n": f"{count:,}", **values})


def row(parts: Iterable[str], glue: str = " ") -> Phrase:
    """Say several things: sentences, or a list with its own glue. Empty ones are left out."""
    return Phrase.row(tuple(part for part in parts if part), glue)


def who(tenant: str) -> Phrase:
    """A tenant in a sentence."""
    if tenant == UNKNOWN:
        return tell("requests without a tenant")
    return tell("the other tenants") if tenant == OTHERS else tell("tenant {name}", name=tenant)


def first_upper(tenant: str) -> Phrase:
    """A tenant at the beginning of a sentence."""
    if tenant == UNKNOWN:
        return tell("Requests without a tenant")
    return tell("The other tenants") if tenant == OTHERS else tell("Tenant {name}", name=tenant)
