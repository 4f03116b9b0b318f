"""What the ASGI middleware adds to a request: its own time, apart from the server's."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from tailscope.middleware import TailscopeMiddleware
from tailscope.middleware.settings import Settings

_REQUESTS = 200
_TRIES = 25
_CHUNKS = (1, 50, 500)
_HEADERS = [
    *((b"host", b"a:1"), (b"content-type", b"application/json"), (b"x-tenant-id", b"acme")),
    *((b"x-request-id", b"r-1"), (b"user-agent", b"bench"), (b"content-length", b"100")),
]
_CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)

Message = MutableMapping[str, Any]
App = Callable[[Message, Any, Any], Awaitable[None]]


def run() -> Iterator[str]:
    """Yield one line for each length of a stream."""
    logging.getLogger("tailscope.middleware").setLevel(logging.ERROR)
    for chunks in _CHUNKS:
        app = _app(chunks)
        # Nobody listens there: the thread that sends finds that out and waits.
        settings = Settings(endpoint="http://127.0.0.1:9/v1/traces", buffer=10**6, interval=60)
        observed = TailscopeMiddleware(app, settings)
        bare, with_it = zip(
            *((_seconds(app), _seconds(observed)) for _ in range(_TRIES)), strict=True
        )
        added = min(with_it) - min(bare)
        yield f"added by a stream of {chunks:3}   {1e6 * added:10.1f} us a request (goal 50)"


def _app(chunks: int) -> App:
    async def app(scope: Message, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(chunks):
            await send({"type": "http.response.body", "body": _CHUNK, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def _seconds(app: App) -> float:
    """CPU time of a request, seconds."""
    scope = {"type": "http", "path": "/v1/chat/completions", "headers": _HEADERS}
    started = time.thread_time()
    for _ in range(_REQUESTS):
        _run(app(scope, _receive, _send))
    return (time.thread_time() - started) / _REQUESTS


def _run(request: Awaitable[None]) -> None:
    steps = request.__await__()
    for _ in steps:
        pass


async def _receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(message: Message) -> None:
    del message
