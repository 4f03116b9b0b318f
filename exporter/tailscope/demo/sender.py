"""Where events go: an OTLP receiver over gRPC or HTTP, or a growing file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import grpc
import urllib3

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_TIMEOUT = 5.0

# The codes that the OTLP specification lets a client retry.
_RETRY_STATUS = {429, 502, 503, 504}
_RETRY_CODES = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}

_CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    # gRPC's own back-off goes up to two minutes; the receiver is on this machine.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class SendError(Exception):
    """An event was not taken and never will be."""


class Unavailable(SendError):
    """An event was not taken; trying again may help."""


class Sender(Protocol):
    """Delivers events."""

    def send(self, event: bytes) -> None:
        """Deliver one event.

        Raises:
            Unavailable: If it may be tried again.
            SendError: If it was refused for good.
        """

    def close(self) -> None:
        """End a delivery that is under way and let go of the connection."""


class GrpcSender:
    """Sends serialised OTLP trace requests over gRPC, as vLLM does by default.

    Args:
        target: ``host:port``.
    """

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, options=_CHANNEL)
        # Without serialisers the call takes and gives bytes.
        self._call = self._channel.unary_unary(_EXPORT)

    def send(self, event: bytes) -> None:
        """Send one request. See ``Sender``."""
        try:
            self._call(event, timeout=_TIMEOUT)
        except grpc.RpcError as error:
            kind = Unavailable if error.code() in _RETRY_CODES else SendError
            raise kind(f"{error.code().name}: {error.details()}") from error
        except ValueError as error:  # the channel was closed meanwhile
            raise Unavailable(str(error)) from error

    def close(self) -> None:
        """Cancel a call that is under way and close the channel."""
        self._channel.close()


class HttpSender:
    """Sends serialised OTLP trace requests over HTTP.

    Args:
        url: Full address, with ``/v1/traces``.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(retries=False, timeout=_TIMEOUT)

    def send(self, event: bytes) -> None:
        """Send one request. See ``Sender``."""
        try:
            answer = self._pool.request(
                "POST", self._url, event, headers={"Content-Type": "application/x-protobuf"}
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(str(error)) from error
        if answer.status != 200:
            kind = Unavailable if answer.status in _RETRY_STATUS else SendError
            raise kind(f"HTTP {answer.status}")

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()


class FileSender:
    """Appends lines to a file, as a gateway does that logs its requests and rotates its log.

    Args:
        path: Made at once if it is missing, so that a follower finds it.
        rotate_bytes: Size from which the file is put aside (with ``.1`` at its name, in place of
            the one before) and a new one begun.
        rotate_seconds: Least time from one to the next, so that a follower misses none.
    """

    def __init__(
        self, path: Path, *, rotate_bytes: int = 8 << 20, rotate_seconds: float = 60.0
    ) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        self._begun = time.monotonic()

    def send(self, event: bytes) -> None:
        """Append one line. See ``Sender``."""
        try:
            if self._file.tell() >= self._rotate_bytes:
                self._rotate()
            self._file.write(event)
        except (OSError, ValueError) as error:
            raise Unavailable(str(error)) from error

    def _rotate(self) -> None:
        now = time.monotonic()
        if now - self._begun < self._rotate_seconds:
            return
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self._file.close()
        self._file = self.path.open("ab", buffering=0)
        self._begun = now

    def close(self) -> None:
        """Close the file."""
        self._file.close()
