"""What an application sends: passed on at once, and looked at for its times and for how it ends."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]

_STREAMS = (b"text/event-stream", b"application/x-ndjson")
# Pieces of a stream are searched for an error so many at a time: one by one, that would cost as
# much as all else.
_AT_ONCE = 64
_TURNED_AWAY = (b"429", b"503")

# In a text of the model, quotes and line ends are escaped, so that it cannot look like this.
_ERROR = re.compile(rb'(?:^|\n)(?:data:\s*\{"error"\s*:\s*[{"]|event:\s*error\b)')
_CODE = re.compile(rb'"code"\s*:\s*"?(\d{3})\b')
_OVERLOAD = re.compile(rb'"type"\s*:\s*"(?:overloaded_error|rate_limit_error)"')


class Response:
    """One response.

    Args:
        receive: The server's.
        send: The server's.
        began: Arrival of the request, monotonic nanoseconds.

    Attributes:
        status: HTTP status; None until it was sent.
        first_ns: From the arrival to the first chunk of a stream; None if there was none, and of an
            answer in one piece, which comes when all is done.
        ended_ns: When the last piece was sent, monotonic nanoseconds; None until then.
    """

    __slots__ = (
        "_began",
        "_failed",
        "_left",
        "_pieces",
        "_receive",
        "_send",
        "ended_ns",
        "first_ns",
        "status",
    )

    def __init__(
        self,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        began: int,
    ) -> None:
        self._receive = receive
        self._send = send
        self._began = began
        self._pieces: list[bytes] | None = None  # of a stream, not searched yet
        self._left = False
        self._failed: str | None = None
        self.status: int | None = None
        self.first_ns: int | None = None
        self.ended_ns: int | None = None

    async def receive(self) -> Message:
        """Pass a message to the application."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and self.ended_ns is None:
            self._left = True
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message to the server.

        No coroutine of its own, but for the last piece: that would cost as much again as all that
        is done here.
        """
        if message.get("more_body"):  # nearly all of a stream, so this comes first
            if self._pieces is not None:
                body = message.get("body", b"")
                if self.first_ns is None and body:
                    self._first(body)
                self._pieces.append(body)
                if len(self._pieces) >= _AT_ONCE:
                    self._search()
            return self._send(message)
        kind = message["type"]
        if kind == "http.response.body":
            return self._last(message)
        if kind == "http.response.start":
            self.status = message["status"]
            if _streams(message.get("headers", ())):
                self._pieces = []
        return self._send(message)

    async def _last(self, message: Message) -> None:
        if self._pieces is not None and (body := message.get("body")):
            if self.first_ns is None:
                self._first(body)
            self._pieces.append(body)
        await self._send(message)
        if not self._left:
            self.ended_ns = time.perf_counter_ns()

    def broke(self, error: BaseException) -> None:
        """Hear that the application ended by an exception; it may be that the client left."""
        if isinstance(error, OSError) or isinstance(error.__context__, OSError):
            self._left = True

    def _first(self, body: bytes) -> None:
        self._search()
        if self._failed is None and not _ERROR.search(body) and not _says_role_only(body):
            self.first_ns = time.perf_counter_ns() - self._began

    def outcome(self) -> str | None:
        """How it ended, if its status does not say so."""
        self._search()
        if self.ended_ns is None and self._failed is None:
            return "aborted" if self._left else "error"
        return self._failed

    def _search(self) -> None:
        """Look for an error in the pieces that came; they are let go of."""
        if not self._pieces:
            return
        if self._failed is None and b"error" in b"".join(self._pieces):
            self._failed = next(filter(None, map(_failure, self._pieces)), None)
        self._pieces.clear()


def _failure(body: bytes) -> str | None:
    """What an error in a piece of a stream says of the request."""
    hit = _ERROR.search(body) if b"error" in body else None
    if hit is None:
        return None
    event = body[hit.start() :]
    code = _CODE.search(event)
    away = code[1] in _TURNED_AWAY if code else _OVERLOAD.search(event) is not None
    return "rejected" if away else "error"


def _streams(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(_STREAMS) for name, value in headers
    )


def _says_role_only(body: bytes) -> bool:
    """A chat stream begins with a chunk that names the role and holds no token."""
    return (
        body.count(b"data:") == 1
        and b'"role"' in body
        and (b'"content":""' in body or b'"content":null' in body or b'"content"' not in body)
    )
