"""The addresses of one server, and what they bring."""

from __future__ import annotations

import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from tailscope.address import without_query
from tailscope.exporter.access import Access
from tailscope.exporter.fetch import Body, Fetcher
from tailscope.exporter.health import SourceError

_MOVED = ("http_301", "http_302", "http_307", "http_308")
"""What a mounted application answers to its path without a slash."""


class Pages:
    """Reads the pages of one server, each over a connection of its own.

    Args:
        url: Its base URL, or with a path that of its metrics.
        access: What the server wants to see.
    """

    def __init__(self, url: str, access: Access) -> None:
        self._parts = urlsplit(url)
        self._access = access
        self._deadline = 0.0
        self._ends = 0.0
        self._fetchers: dict[str, Fetcher] = {}

    def begin(self, seconds: float) -> None:
        """Begin a read: its time runs from now.

        Args:
            seconds: Time that all pages of it may take together.
        """
        self._deadline = seconds
        self._ends = time.monotonic() + self._deadline

    def metrics(self, paths: Iterable[str]) -> list[str]:
        """Return the URLs where the metrics may be: at these paths, unless the user named one."""
        own = self._parts.path.rstrip("/")
        found = [own] if own else list(paths)
        return [self._parts._replace(path=path, fragment="").geturl() for path in found]

    def beside(self, path: str, paths: Iterable[str]) -> str:
        """Return the URL of another page of the server.

        Args:
            path: Its path, under the same base.
            paths: Paths of the metrics; one of them, or else the last part, is not of the base.
        """
        base = self._parts.path.rstrip("/")
        ending = next((one for one in paths if base.endswith(one)), None)
        base = base.removesuffix(ending) if ending else base.rpartition("/")[0]
        return self._parts._replace(path=base + path, query="", fragment="").geturl()

    def get(self, url: str) -> Body:
        """Read a page within what is left of the time.

        Raises:
            SourceError: If it cannot be read.
        """
        fetcher = self._fetchers.get(url)
        if fetcher is None:
            fetcher = self._fetchers[url] = Fetcher(url, self._access)
        try:
            return fetcher.get(self._left())
        except SourceError as error:
            slashed = self._slashed(url)
            if error.reason not in _MOVED or slashed is None:
                raise
            other = Fetcher(slashed, self._access)
            try:
                body = other.get(self._left())
            except SourceError:
                other.close()
                raise error from None
            fetcher.close()
            self._fetchers[url] = other
            return body

    def _left(self) -> float:
        """Return the seconds that are left of this read."""
        left = self._ends - time.monotonic()
        # The whole time for a message that tells it; a page that comes late gets a moment.
        return self._deadline if left > 0.9 * self._deadline else max(left, 0.05)

    @staticmethod
    def _slashed(url: str) -> str | None:
        """Return the URL with a slash at the end of its path, if it has none."""
        parts = urlsplit(url)
        return None if parts.path.endswith("/") else parts._replace(path=f"{parts.path}/").geturl()

    def shown(self, url: str) -> str:
        """Return a URL fit for a message."""
        return without_query(url)

    def forget(self, keep: Iterable[str]) -> None:
        """Close the connections to all pages but these."""
        for url in self._fetchers.keys() - set(keep):
            self._fetchers.pop(url).close()

    def close(self) -> None:
        """Close all connections."""
        self.forget(())
