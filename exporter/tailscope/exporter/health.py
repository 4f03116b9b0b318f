"""The health of a source, apart from its data."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tailscope.catalogue import METRICS, PREFIX
from tailscope.exporter.exposition import Line, series

log = logging.getLogger(__name__)

_MAX_MESSAGE = 300


class SourceError(Exception):
    """A source could not be read.

    Attributes:
        reason: Short, bounded word for the label ``reason``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NothingThere(SourceError):
    """Nobody named a source, and there is none: nothing is up, and nothing is down."""


@dataclass(frozen=True, slots=True)
class State:
    """How a source does at one moment.

    Attributes:
        up: Whether its last read worked; None before the first one ended.
        reason: ``ok``, or why not.
        message: The same for people.
        last_success: Unix time in seconds.
        read_seconds: How long the last read took.
        errors: Reads that failed so far.
        wanted: Whether it is a fault if it is not up.
    """

    up: bool | None = None
    reason: str = "starting"
    message: str = "not read yet"
    last_success: float | None = None
    read_seconds: float | None = None
    errors: int = 0
    wanted: bool = True


class Health:
    """Keeps the state of one source, logs each change once and writes its metrics.

    Args:
        source: Value of the ``source`` label.
        now: Wall clock, seconds.
    """

    def __init__(self, source: str, now: Callable[[], float] = time.time) -> None:
        self.source = source
        self.state = State()
        self._now = now
        self._lock = threading.Lock()

    def success(self, read_seconds: float | None = None, message: str = "read") -> None:
        """Note that a read worked."""
        message = plain(message)
        with self._lock:
            before = self.state
            self.state = State(True, "ok", message, self._now(), read_seconds, before.errors)
        if not before.up:
            log.info("source %s: %s", self.source, message)

    def failure(self, error: SourceError, read_seconds: float | None = None) -> None:
        """Note that a read failed, or that there is nothing to read."""
        message = plain(str(error))
        wanted = not isinstance(error, NothingThere)
        with self._lock:
            before = self.state
            self.state = State(
                False,
                error.reason,
                message,
                before.last_success,
                read_seconds,
                before.errors + wanted,
                wanted,
            )
        if before.reason == error.reason:
            return
        if wanted:
            log.warning("source %s is down (%s): %s", self.source, error.reason, message)
        else:
            log.info("source %s: %s", self.source, message)

    def lines(self) -> dict[str, list[Line]]:
        """Return the source's own metrics."""
        state = self.state
        found: dict[str, list[Line]] = {}

        def put(name: str, value: float, *more: str) -> None:
            metric = METRICS[f"{PREFIX}source_{name}"]
            text = series(metric.name, metric.labels, (self.source, *more))
            found[metric.name] = [Line(text, value)]

        if state.wanted:
            put("up", 1 if state.up else 0)
        put("state", 1, state.reason)
        put("errors_total", state.errors)
        if state.last_success is not None:
            put("last_success_timestamp_seconds", state.last_success)
        if state.read_seconds is not None:
            put("read_seconds", state.read_seconds)
        return found


def plain(text: str) -> str:
    """Make a text fit for a log: a message may quote what a source sent."""
    if len(text) > _MAX_MESSAGE:
        text = f"{text[:_MAX_MESSAGE]} ..."
    return "".join(char if char.isprintable() else "?" for char in text)
