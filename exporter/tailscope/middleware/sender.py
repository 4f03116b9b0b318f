"""Takes observations from the server and sends them to the exporter, from a thread of its own."""

from __future__ import annotations

import atexit
import http.client
import logging
import os
import threading
from collections import deque
from urllib.parse import urlsplit

from tailscope.middleware.encoding import message
from tailscope.middleware.observation import Observation
from tailscope.middleware.settings import Settings

log = logging.getLogger("tailscope.middleware")

_BATCH = 500
_TIMEOUT_SECONDS = 5.0
_LONGEST_PAUSE = 30.0
_LAST_SECONDS = 1.0
_AGAIN = (429, 502, 503, 504)


class Sender:
    """A bounded buffer and the thread that empties it.

    Args:
        settings: Where to, how much, how often.

    Attributes:
        dropped: Observations that were lost, because the buffer was full or nobody wanted them.
        sent: Observations that the exporter has acknowledged.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting: deque[Observation] = deque()
        self._batch: list[Observation] = []
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._start = threading.Lock()
        self._pid = 0
        self._told = 0
        self._away = False
        self.dropped = 0
        self.sent = 0

    def put(self, observation: Observation) -> None:
        """Take one; never waits."""
        if self._pid != os.getpid():
            self._begin()
        if len(self._waiting) + len(self._batch) >= self._settings.buffer:
            self.dropped += 1
            return
        self._waiting.append(observation)
        if len(self._waiting) == _BATCH:
            self._wake.set()

    def _begin(self) -> None:
        """Start the thread; once more in a process that was forked, which has none."""
        with self._start:
            if self._pid == os.getpid():
                return
            self._waiting.clear()
            self._batch.clear()
            self._wake, self._ended = threading.Event(), threading.Event()
            self._thread = threading.Thread(target=self._run, name="tailscope", daemon=True)
            self._thread.start()
            self._pid = os.getpid()
            atexit.register(self.close)

    def close(self) -> None:
        """Send what waits, if that takes no longer than a moment."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        refused: float | None = None
        while True:
            if refused is not None:
                self._ended.wait(refused)  # a full batch is no reason to ask sooner
            else:
                self._wake.wait(self._settings.interval)
            self._wake.clear()
            try:
                refused = self._empty()
            except Exception as error:  # noqa: BLE001 - whatever it is, the server goes on
                self._lost(type(error).__name__)
                refused = _LONGEST_PAUSE
            self._tell()
            if self._ended.is_set():
                return

    def _empty(self) -> float | None:
        """Send all that waits; returns the seconds to wait if the exporter does not take it."""
        connection: http.client.HTTPConnection | None = None
        try:
            while self._fill():
                connection = connection or self._connect()
                pause = self._post(connection)
                if pause is not None:
                    return pause
        except (OSError, http.client.HTTPException) as error:
            self._lost(type(error).__name__)
            return min(_LONGEST_PAUSE, 2 * self._settings.interval)
        finally:
            if connection is not None:
                connection.close()
        return None

    def _fill(self) -> list[Observation]:
        """Take out what is sent next; it stays there until the exporter has it.

        Not by a look at the buffer, which the server's thread may change meanwhile.
        """
        waiting, batch = self._waiting, self._batch
        while waiting and len(batch) < _BATCH:
            batch.append(waiting.popleft())
        return batch

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._settings.endpoint)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        return kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)

    def _post(self, connection: http.client.HTTPConnection) -> float | None:
        body = message(self._batch, "tailscope-middleware")
        path = urlsplit(self._settings.endpoint).path
        connection.request("POST", path, body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        if answer.status in _AGAIN:
            self._lost(f"status {answer.status}")
            return _seconds(answer.headers.get("Retry-After"))
        if answer.status == 200:
            self.sent += len(self._batch)
            if self._away:
                log.info("Tailscope's exporter takes requests again")
            self._away = False
        else:
            # It will never take them.
            self.dropped += len(self._batch)
            self._lost(f"status {answer.status}")
        self._batch.clear()
        return None

    def _lost(self, reason: str) -> None:
        if not self._away:
            log.warning(
                "Tailscope's exporter at %s takes nothing (%s); requests wait for it",
                urlsplit(self._settings.endpoint).netloc,
                reason,
            )
        self._away = True

    def _tell(self) -> None:
        if self.dropped > self._told:
            log.warning("%d requests were not told to Tailscope's exporter", self.dropped)
            self._told = self.dropped


def _seconds(retry_after: str | None) -> float:
    try:
        seconds = float(retry_after or 1)
    except ValueError:
        seconds = 1.0
    return min(max(seconds, 0.1), _LONGEST_PAUSE)
