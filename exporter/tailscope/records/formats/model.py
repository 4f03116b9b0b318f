"""The shapes of a format: frozen values that say where a record's columns are in a foreign row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

SECONDS, MILLISECONDS, MICROSECONDS = 1.0, 1e-3, 1e-6

TIMEOUT = "timeout"
"""An outcome that becomes ``generation_timeout`` after the first token, else ``queue_timeout``."""


class Clock(StrEnum):
    """What a format's times count from."""

    WALL = "wall"
    STEADY = "steady"
    """The writing machine's monotonic clock; known again only on that machine, in that boot."""
    FILE = "file"
    """The beginning of the recording."""


@dataclass(frozen=True, slots=True)
class Field:
    """Where one column is.

    Attributes:
        paths: Keys, with dots into nested objects; the first that is there wins.
        scale: Factor to the column's unit; of a time, to seconds.
        minus: Keys of what is subtracted; both must be there.
        pattern: Of a text, only the first group is kept, and nothing where it does not match.
        where: Key that must be true, or the column is not known.
        unlike: Key whose value stands in for one that is not known.
    """

    paths: tuple[str, ...]
    scale: float = 1.0
    minus: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    where: str = ""
    unlike: str = ""


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """One thing that a row says of its end.

    Attributes:
        path: Key.
        pattern: Matches the whole of its text.
        outcome: One of the record's outcomes, or ``TIMEOUT``.
    """

    path: str
    pattern: re.Pattern[str]
    outcome: str


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file.

    Attributes:
        name: What a user calls it; the record's ``source``.
        title: Name for people.
        role: ``engine`` or ``gateway``.
        recognise: Keys that are all there in each of its rows, ``|`` between two of which one is
            enough; none if it has to be told.
        fields: Column of the record to where it is.
        equals: Keys (with ``|`` as above) and their text; rows with another are no requests.
        engine: Name of the engine, if one writes it.
        embedded: Keys whose text is JSON again.
        outcomes: What a row says of its end; the first hit wins, then the HTTP status.
        completes: True if a row of which nothing bad is said ended well.
        completion: Key that is there and empty where an answer was not sent to its end.
        places: Places where a tenant rule looks, by the rule's text.
        clock: What its times count from.
    """

    name: str
    title: str
    role: str
    recognise: tuple[str, ...]
    fields: Mapping[str, Field]
    equals: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    engine: str | None = None
    embedded: tuple[str, ...] = ()
    outcomes: tuple[OutcomeRule, ...] = ()
    completes: bool = False
    completion: str = ""
    places: Mapping[str, Field] = field(default_factory=lambda: MappingProxyType({}))
    clock: Clock = Clock.WALL
