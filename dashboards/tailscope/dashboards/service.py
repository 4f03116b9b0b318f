"""A server that is asked over HTTP: where a flag says it is, and through the proxy in between."""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from tailscope.errors import UsageError

_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Login:
    """How to be let in: a token, or a user and a password."""

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)

    def headers(self) -> dict[str, str]:
        """Return the header that says who asks; none for an open server."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        return {"Authorization": _basic(self.user, self.password)} if self.user else {}


class Service:
    """A server under one address.

    Attributes:
        address: Where it is, as messages may show it: without a password.
        login: How it is asked to let us in.
    """

    def __init__(self, flag: str, url: str, login: Login | None = None) -> None:
        """Find the way to a server.

        Args:
            flag: The flag that gave the address, for messages.
            url: Its address; what stands behind a sub-path is left out.
            login: How to be let in; else by the user and the password within the address.

        Raises:
            UsageError: If the address is none, or that of the proxy.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in ("http", "https"):
            given = url.rpartition("@")[2]  # without the password
            raise UsageError(f"{flag} {given}: give an address such as http://127.0.0.1:3000")
        shown = f"[{host}]" if ":" in host else host
        place = f"{shown}:{port}" if port else shown
        self.address = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        known = Login(user=unquote(parts.username or ""), password=unquote(parts.password or ""))
        self.login = login if login and login.headers() else known
        self._flag = flag
        try:
            self._pool = _pool(parts.scheme, host, place)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise self.trouble(f"the proxy of the environment is none: {error}") from error

    def ask(self, method: str, path: str, **how: Any) -> urllib3.BaseHTTPResponse:
        """Return the answer, whatever its status.

        Args:
            method: Of HTTP.
            path: Below the address.
            how: Body, as urllib3 takes it.

        Raises:
            UsageError: If there is no answer.
        """
        headers = {**self.login.headers(), "Accept": "application/json"}
        try:
            return self._pool.request(method, self.address + path, headers=headers, **how)
        except urllib3.exceptions.HTTPError as error:
            raise self.trouble(f"{error}; is it there?") from error

    def trouble(self, text: str) -> UsageError:
        """Return the error that says what is wrong with this server."""
        return UsageError(f"{self._flag} {self.address}: {text}")


def _pool(scheme: str, host: str, place: str) -> urllib3.PoolManager:
    proxy = getproxies().get(scheme)
    if not proxy or _is_here(host) or proxy_bypass(place):
        return urllib3.PoolManager(timeout=_SECONDS, retries=False)
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    user = (
        {"proxy-authorization": _basic(unquote(parts.username), unquote(parts.password or ""))}
        if parts.username
        else None
    )
    return urllib3.ProxyManager(
        parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
        proxy_headers=user,
        timeout=_SECONDS,
        retries=False,
    )


def _is_here(host: str) -> bool:
    """Whether no proxy could reach what we mean by it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
