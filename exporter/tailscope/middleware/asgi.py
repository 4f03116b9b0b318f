"""The middleware itself: pure ASGI, so that streams pass through piece by piece.

An abort is a response without its last piece: servers tell a disconnect after every stream, so that
alone means nothing. Specification: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from tailscope.middleware.observation import Observation, continue_trace
from tailscope.middleware.response import Response
from tailscope.middleware.sender import Sender
from tailscope.middleware.settings import ZERO_BASED, Settings, read

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_MAX_TEXT = 256
_MAX_ATTEMPT = 1000


class TailscopeMiddleware:
    """Observes requests and tells the exporter of them.

    Args:
        app: The application.
        settings: None to read them from the environment.
    """

    def __init__(self, app: App, settings: Settings | None = None) -> None:
        self.app = app
        self.settings = settings or read()
        self.sender = Sender(self.settings)
        self._paths = frozenset(path for path in self.settings.paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in self.settings.paths if path.endswith("*"))
        self._tenant = _encoded(self.settings.tenant_headers)
        self._session = _encoded(self.settings.session_headers)
        self._attempt = _encoded(self.settings.attempt_headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a connection through."""
        if scope["type"] == "http":
            path = scope["path"]
            if path in self._paths or (self._prefixes and path.startswith(self._prefixes)):
                await self._observe(scope, receive, send)
                return
        await self.app(scope, receive, send)
        if scope["type"] == "lifespan":
            # The server ends, and may be ended by its signal before Python cleans up.
            await asyncio.get_running_loop().run_in_executor(None, self.sender.close)

    async def _observe(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived, began = time.time_ns(), time.perf_counter_ns()
        headers = dict(scope["headers"])
        context = continue_trace(headers.get(b"traceparent"))
        forwarded = [pair for pair in scope["headers"] if pair[0] != b"traceparent"]
        forwarded.append((b"traceparent", context.header))
        response = Response(receive, send, began)
        try:
            await self.app({**scope, "headers": forwarded}, response.receive, response.send)
        except BaseException as error:
            response.broke(error)
            raise
        finally:
            self.sender.put(
                Observation(
                    context=context,
                    arrived_ns=arrived,
                    total_ns=(response.ended_ns or time.perf_counter_ns()) - began,
                    first_ns=response.first_ns,
                    status=response.status,
                    outcome=response.outcome(),
                    tenant=_named(headers, self._tenant),
                    request_id=_text(headers.get(b"x-request-id")),
                    session=_named(headers, self._session),
                    attempt=_attempt(headers, self._attempt),
                )
            )


def _encoded(names: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in names)


def _named(headers: dict[bytes, bytes], names: Iterable[bytes]) -> str | None:
    for name in names:
        if (value := headers.get(name)) and (text := _text(value)):
            return text
    return None


def _text(value: bytes | None) -> str | None:
    """A header's value, if it is no longer than a name."""
    if not value or len(value) > _MAX_TEXT:
        return None
    return value.decode("utf-8", "replace").strip() or None


def _attempt(headers: dict[bytes, bytes], names: Iterable[bytes]) -> int | None:
    for name in names:
        value = headers.get(name, b"")
        if value.isdigit() and int(value) <= _MAX_ATTEMPT:
            return int(value) + (name.decode() in ZERO_BASED)
    return None
