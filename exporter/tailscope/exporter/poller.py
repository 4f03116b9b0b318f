"""Reads one source on its interval, in a thread of its own, and publishes what it gave.

A source that hangs or fails keeps nobody else waiting: the page of metrics is made from the last
reading of each, and a reading that is older than three intervals is left out. Of a source that
takes longer than an interval to read, the time that it took counts for one.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import Health, SourceError

log = logging.getLogger(__name__)

STALE_INTERVALS = 3


class Source(Protocol):
    """What a poller reads."""

    name: str
    """Value of the ``source`` label."""

    def read(self) -> str:
        """Read once and keep the result; returns a word for people on what was read.

        Raises:
            SourceError: If it could not be read.
        """

    def lines(self, fresh: bool) -> Lines:
        """Lines of the last reading; only what is known without it if it is not ``fresh``."""

    def close(self) -> None:
        """Let go of what the source holds."""


class Poller:
    """The thread of one source.

    Args:
        source: What to read.
        interval: Seconds from one read to the next.
        deadline: Seconds after which a read that has not ended counts as failed, twice over. A
            source that has a ``deadline`` of its own goes by that.
    """

    def __init__(self, source: Source, interval: float, deadline: float) -> None:
        self.source = source
        self.health = Health(source.name)
        self._interval = interval
        self._deadline = deadline
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._started: float | None = None
        self._hanging = False
        self._last_success: float | None = None
        self._read_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name=source.name, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; one that hangs is left behind, it is a daemon."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait for the thread, and close the source if it ended."""
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self.source.close()

    def watch(self) -> Health:
        """Return the health of the source, after a look at a read that does not end.

        Sources keep their own deadline; this is for what they cannot end, such as the look-up of
        a name or a file system that does not answer.
        """
        with self._lock:
            if self._started is not None and not self._hanging:
                seconds = time.monotonic() - self._started
                if seconds > 2 * getattr(self.source, "deadline", self._deadline):
                    self._hanging = True
                    self.health.failure(
                        SourceError("hanging", f"a read has not ended in {seconds:.0f} s")
                    )
        return self.health

    def lines(self) -> list[Lines]:
        """Return the lines of the source and of its health."""
        own = self.watch().lines()
        last = self._last_success
        # A server that takes longer than an interval to answer cannot be asked more often.
        beat = max(self._interval, self._read_seconds)
        fresh = last is not None and time.monotonic() - last <= STALE_INTERVALS * beat
        return [self.source.lines(fresh), own]

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._read()
            due += self._interval
            now = time.monotonic()
            if due < now:  # a slow read: skip what was missed, keep the beat
                due += self._interval * ((now - due) // self._interval + 1)
            self._stop.wait(due - now)

    def _read(self) -> None:
        started = time.monotonic()
        with self._lock:
            self._started, self._hanging = started, False
        message, error = self._outcome()
        ended = time.monotonic()
        with self._lock:
            self._started = None
            if error is not None:
                self.health.failure(error, ended - started)
            else:
                self._last_success, self._read_seconds = ended, ended - started
                self.health.success(ended - started, message)

    def _outcome(self) -> tuple[str, SourceError | None]:
        """Read once, whatever comes of it."""
        try:
            return self.source.read(), None
        except SourceError as error:
            return "", error
        except Exception as error:
            # The one place that keeps a fault of one source from the others.
            log.exception("source %s failed in a way that it should not", self.source.name)
            return "", SourceError("internal_error", f"{type(error).__name__}; the log has more")
