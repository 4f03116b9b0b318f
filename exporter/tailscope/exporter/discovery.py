"""Finds engines on this machine, at the ports that the catalogue knows, if the user named none."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from tailscope.catalogue import Engine
from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import NothingThere, SourceError

log = logging.getLogger(__name__)

INTERVAL = 60.0
"""Seconds from one look at the ports to the next."""

HOST = "127.0.0.1"
_CONNECT_SECONDS = 0.2


class Found(Protocol):
    """A source that may be there."""

    def read(self) -> str:
        """Read once.

        Raises:
            SourceError: If it is not there, or nothing that is known.
        """

    def close(self) -> None:
        """Let go of what it holds."""


S = TypeVar("S", bound=Found)


class Discovery(Generic[S]):
    """Looks for engines; itself a source, whose health says whether there are any.

    Args:
        engines: The catalogue.
        make: Makes a source of a URL.
        add: Takes a source that answered.
        ours: Ports of this exporter, where no engine is.
    """

    name = "engines"

    def __init__(
        self,
        engines: Mapping[str, Engine],
        make: Callable[[str], S],
        add: Callable[[S], None],
        ours: Collection[int] = (),
    ) -> None:
        ports = dict.fromkeys(port for engine in engines.values() for port in engine.ports)
        self.ports = tuple(port for port in ports if port not in ours)
        self._make = make
        self._add = add
        self._known: set[int] = set()

    def read(self) -> str:
        """Look at each port where no engine is known yet.

        Raises:
            NothingThere: If there is no engine at any.
        """
        for port in self.ports:
            if port not in self._known and _open(port):
                self._try(port)
        if not self._known:
            raise NothingThere(
                "none_found",
                f"no engine answers on this machine at the ports {', '.join(map(str, self.ports))}"
                "; name one with --engine URL",
            )
        return f"found at the ports {', '.join(map(str, sorted(self._known)))}"

    def _try(self, port: int) -> None:
        source = self._make(f"http://{HOST}:{port}")
        try:
            message = source.read()
        except SourceError as error:
            log.debug("no engine at port %s: %s", port, error)
            source.close()
            return
        log.info("found: %s", message)
        self._known.add(port)
        self._add(source)

    def lines(self, fresh: bool) -> Lines:
        """Return nothing: what is found is a source of its own."""
        return {}

    def close(self) -> None:
        """Nothing is held."""


def _open(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
