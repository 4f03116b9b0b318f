"""The shapes of alerts: frozen values that check themselves. How they are written is elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

_ALERT_NAME = re.compile(r"Tailscope([A-Z][a-z]+)+")
_RECORD_NAME = re.compile(r"[a-z_]+:tailscope_[a-z_]+:[a-z0-9_]+")
_CAUSE = re.compile(r"[a-z]+(_[a-z]+)*")
_DURATION = re.compile(r"(\d+[smhd])+")
_LABEL_IN_TEXT = re.compile(r"\.Labels\.(\w+)")


class AlertError(ValueError):
    """A declaration of an alert contradicts itself."""


class Severity(StrEnum):
    """Who has to know: somebody now, somebody today, or whoever looks."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class PanelLink:
    """The panel that shows what the alert is about.

    Attributes:
        board: Its uid.
        panel: Its number.
    """

    board: str
    panel: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule: an expression that is too dear to evaluate again and again.

    Attributes:
        name: ``level:metric:operations``.
        expr: PromQL.
        help: One sentence.
        by: Labels that its series keep.
        labels: Labels of its own, to tell apart rules of one name.
    """

    name: str
    expr: str
    help: str
    by: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not _RECORD_NAME.fullmatch(self.name):
            raise AlertError(f"{self.name!r} is not level:metric:operations")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. Its annotations are templates of Prometheus: ``.Labels`` and ``.Value``.

    Attributes:
        name: Unique; the runbook is ``docs/runbooks/<name>.md``.
        severity: Who has to know.
        cause: Bounded word for what is wrong, as a label, so that routes can go by it.
        expr: PromQL; an alert for each series that it returns.
        lasts: How long it must return the series before the alert fires.
        lingers: How long the alert stays when it no longer does, against flapping.
        labels: Labels of the series; the texts may use no others.
        summary: One line.
        description: What is wrong, with the number.
        panel: Where to look.
    """

    name: str
    severity: Severity
    cause: str
    expr: str
    lasts: str
    labels: tuple[str, ...]
    summary: str
    description: str
    panel: PanelLink
    lingers: str = ""

    def __post_init__(self) -> None:
        if not _ALERT_NAME.fullmatch(self.name):
            raise AlertError(f"{self.name!r} is not Tailscope and words in capitals")
        if not _CAUSE.fullmatch(self.cause):
            raise AlertError(f"{self.name}: the cause {self.cause!r} is not words_with_underscores")
        for text in filter(None, (self.lasts, self.lingers)):
            if not _DURATION.fullmatch(text):
                raise AlertError(f"{self.name}: {text!r} is no duration")
        for label in _LABEL_IN_TEXT.findall(self.summary + self.description):
            if label not in self.labels:
                raise AlertError(f"{self.name}: the text uses {label}, which no series has")


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, recordings first.

    Attributes:
        name: Name of the group and of its file.
        alerts: What it warns of.
        recordings: What the alerts build on.
        interval: Time between two evaluations.
    """

    name: str
    alerts: tuple[Alert, ...]
    recordings: tuple[Recording, ...] = ()
    interval: str = "30s"
