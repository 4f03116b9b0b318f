"""Addresses: those to listen on, whether they are free, and URLs to read."""

from __future__ import annotations

import re
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from tailscope.errors import UsageError

_WILDCARDS = {"", "0.0.0.0", "::"}
_HIGHEST_PORT = 65535
_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Address for a client on this machine."""
        return f"http://{Address(_reachable(self.host), self.port)}"


def parse(setting: str, text: str) -> Address:
    """Read ``host:port``, with an IPv6 host in brackets.

    Raises:
        UsageError: If it is none.
    """
    host, colon, port = text.rpartition(":")
    usable = re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= _HIGHEST_PORT
    if not colon or not usable or not host:
        raise UsageError(f"{setting} {text}: give host:port, for example 127.0.0.1:9836")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def parse_url(setting: str, text: str, example: str) -> str:
    """Check the URL of a server; one without a scheme is http.

    Args:
        setting: Name of the setting, for the message.
        text: What the user gave.
        example: A URL that would do, for the message.

    Raises:
        UsageError: If it is none, or holds a user or a password.
    """
    if "@" in text:
        # Whatever stands before it may be a password: it is not repeated.
        host = text.rpartition("@")[2]
        raise UsageError(f"{setting} ...@{host}: a URL must hold no user and no password")
    url = text if "://" in text else f"http://{text}"
    if not _usable(url):
        raise UsageError(f"{setting} {without_query(url)}: give a URL, for example {example}")
    return url


def without_query(url: str) -> str:
    """Return a URL fit for a message: a query may hold a token."""
    return url.partition("#")[0].partition("?")[0]


def server_name(url: str) -> str:
    """Return ``host:port`` of an http or https URL, the scheme's port where it names none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return str(Address(host, parts.port or _PORTS[parts.scheme]))


def _usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in _PORTS
        and re.fullmatch(r"[\w.:%-]+", parts.hostname or "") is not None
        and port != 0
        and url.isprintable()
        and " " not in url
    )


def free(host: str = "127.0.0.1") -> Address:
    """Return an address with a port that nobody listens on.

    Raises:
        OSError: If the host is none of this machine.
    """
    with _bound(Address(host, 0)) as listener:
        return Address(host, listener.getsockname()[1])


def choose(setting: str, wanted: Address, *, insist: bool) -> Address:
    """Return the wanted address, or one with a free port if it is taken.

    Args:
        setting: Name of the setting, for the message.
        wanted: Port 0 means any free one.
        insist: Whether the user named it: then it is this one or none.

    Raises:
        UsageError: If it is taken and the user insists on it, or the host is none of this machine.
    """
    try:
        if wanted.port == 0:
            return free(wanted.host)
        try:
            _bound(wanted).close()
        except OSError:
            if insist:
                raise
            return free(wanted.host)
    except OSError as error:
        raise UsageError(
            f"{setting} is {wanted}, which cannot be used ({error.strerror or error}); give "
            "another one, with port 0 for any that is free"
        ) from error
    return wanted


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Without this, a port whose last connections were just closed looks taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def _reachable(host: str) -> str:
    if host not in _WILDCARDS:
        return host
    return "::1" if host == "::" else "127.0.0.1"
