"""Sockets and the thread that serves HTTP on them."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette

from tailscope.errors import UsageError


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(flag: str, text: str) -> Address:
    """Read ``host:port`` or ``[v6]:port``.

    Raises:
        UsageError: If it is none.
    """
    host, colon, port = text.rpartition(":")
    usable = re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65535
    if not colon or not usable or not host:
        raise UsageError(f"{flag} {text}: give host:port, for example 127.0.0.1:9836")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def bind(flag: str, address: Address) -> socket.socket:
    """Open a listening socket; port 0 takes a free one.

    Raises:
        UsageError: If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
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


class HttpListeners:
    """Serves applications, each on its socket, in one thread.

    Args:
        apps: Application and listening socket.
    """

    def __init__(self, apps: list[tuple[Starlette, socket.socket]]) -> None:
        self._servers = [
            (
                uvicorn.Server(
                    uvicorn.Config(
                        app,
                        lifespan="off",
                        log_config=None,
                        access_log=False,
                        server_header=False,
                        http="h11",
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
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Take no new connections and end those that are idle."""
        for server, _ in self._servers:
            server.should_exit = True

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
        await asyncio.gather(*(server.serve(sockets=[sock]) for server, sock in self._servers))
