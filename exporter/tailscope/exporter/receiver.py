"""The OTLP receiver, apart from its transports: bytes in, records kept, a verdict out.

Protocol: https://opentelemetry.io/docs/specs/otlp/ (OTLP 1.x, traces).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tailscope.exporter.health import Health
from tailscope.exporter.intake import Intake
from tailscope.exporter.memory import return_large_blocks
from tailscope.exporter.otlp import MAX_MESSAGE, BadMessage, TooLarge, read_protobuf
from tailscope.exporter.otlpjson import read_json
from tailscope.exporter.spans import SpanReader

_MAX_HELD = 2 * MAX_MESSAGE
_MAX_MEMBERS = 16


class Busy(Exception):
    """Too many messages are in memory: the sender is to try again later."""


class Budget:
    """Bytes of messages that may be in memory at a time.

    Args:
        most: How many.
    """

    def __init__(self, most: int = _MAX_HELD) -> None:
        self._left = most
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Reserve ``size`` bytes.

        Raises:
            Busy: If there are not that many left.
        """
        with self._lock:
            if size > self._left:
                raise Busy("too many messages at a time")
            self._left -= size

    def give(self, size: int) -> None:
        """Give back what was reserved."""
        with self._lock:
            self._left += size

    @contextmanager
    def lend(self, size: int) -> Iterator[None]:
        """Reserve ``size`` bytes for a while.

        Raises:
            Busy: If there are not that many left.
        """
        self.take(size)
        try:
            yield
        finally:
            self.give(size)


class Receiver:
    """Takes OTLP trace messages.

    Args:
        spans: Picks the requests out.
        intake: Keeps and counts them.
        health: State of the listener; ``source`` of the records.
    """

    def __init__(self, spans: SpanReader, intake: Intake, health: Health) -> None:
        self._spans = spans
        self._intake = intake
        self._health = health
        self._decoding = threading.Lock()
        return_large_blocks()

    def accept(
        self, body: bytes | bytearray, *, encoding: str = "", json: bool = False
    ) -> ExportTraceServiceResponse:
        """Keep the requests of a message, then say so.

        Args:
            body: The message.
            encoding: Its content encoding.
            json: Whether it is JSON; protobuf otherwise.

        Raises:
            BadMessage: If it is no message.
            TooLarge: If it exceeds a limit.
            StoreFull: If the disk is too slow.
            StoreError: If the disk refuses.
        """
        # One at a time: two would take twice the memory and, in Python, no less time.
        with self._decoding:
            plain = unpack(body, encoding)
            batch = self._spans.read(read_json(plain) if json else read_protobuf(plain))
            del plain
        rejected = self._intake.accept(
            self._health.source, batch.records, batch.rejected, batch.clamped, fuller=batch.fuller
        )
        self._health.success(message="receives spans")
        response = ExportTraceServiceResponse()
        if rejected:
            response.partial_success.rejected_spans = rejected.total()
            response.partial_success.error_message = ", ".join(sorted(rejected))
        return response


def unpack(body: bytes | bytearray, encoding: str) -> bytes | bytearray:
    """Undo a content encoding, within the limit.

    Raises:
        BadMessage: If the encoding is unknown or the bytes are not in it.
        TooLarge: If more than ``MAX_MESSAGE`` bytes come out.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise BadMessage("the content encoding is not known; use gzip, deflate or none")
    plain, rest = bytearray(), body
    try:
        for _ in range(_MAX_MEMBERS):
            machine = zlib.decompressobj(wbits=47)  # gzip or zlib, by its header
            plain += machine.decompress(rest, MAX_MESSAGE + 1 - len(plain))
            if len(plain) > MAX_MESSAGE:
                raise TooLarge(f"more than {MAX_MESSAGE} bytes when unpacked")
            if not machine.eof:
                raise BadMessage(f"the body is not whole {encoding}")
            rest = machine.unused_data
            if not rest:
                return plain
    except zlib.error:
        raise BadMessage(f"the body is no {encoding}") from None
    raise BadMessage(f"the body is {encoding} in more than {_MAX_MEMBERS} pieces")
