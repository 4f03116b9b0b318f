"""Sockets and the thread that serves HTTP on them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import uvicorn

from tailscope.address import Address
from tailscope.errors import UsageError

App = Callable[..., Any]
"""An ASGI application."""


def bind(flag: str, address: Address) -> socket.socket:
    """Open a listening socket; port 0 takes a free one.

    Raises:
        UsageError: If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY; without, an answer waits for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{flag} {address}: cannot listen ({error.strerror}); choose another address"
        ) from None
    return listener


class _Server(uvicorn.Server):
    """Uvicorn's server, but for its clock: that wakes ten times a second for nothing.

    Ten times 0.1 ms and two listeners are a fifth of all that the exporter costs.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for the end; once a second, renew the date that answers have."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), 1.0)


class HttpListeners:
    """Serves applications, each on its socket, in one thread.

    Args:
        apps: Application and listening socket.
    """

    def __init__(self, apps: Sequence[tuple[App, socket.socket]]) -> None:
        self._servers = [
            (
                _Server(
                    uvicorn.Config(
                        app,
                        lifespan="off",
                        log_config=None,
                        access_log=False,
                        server_header=False,
                        http="h11",
                        proxy_headers=False,
                        ws="none",
                        loop="asyncio",
                        limit_concurrency=256,
                        timeout_keep_alive=75,
                        timeout_graceful_shutdown=1,
                    )
                ),
                sock,
            )
            for app, sock in apps
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Take no new connections and end those that are idle."""
        for server, _ in self._servers:
            server.should_exit = True
            if self._loop is not None:
                with suppress(RuntimeError):  # the loop is closed: it has ended by itself
                    self._loop.call_soon_threadsafe(server.ended.set)

    def join(self, seconds: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(seconds)

    @property
    def serving(self) -> bool:
        """Whether every listener answers."""
        return all(server.started for server, _ in self._servers)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(*(server.serve(sockets=[sock]) for server, sock in self._servers))
