"""One HTTP GET with a deadline for the whole of it and a limit on what it may bring."""

from __future__ import annotations

import time
from typing import NamedTuple

import urllib3

from tailscope.exporter.health import SourceError

MAX_BODY = 32 << 20
"""Largest body, decompressed, in bytes."""

_CHUNK = 1 << 16
_ACCEPT = "text/plain; version=0.0.4, text/plain; q=0.9, */*; q=0.1"


class Body(NamedTuple):
    """What an HTTP GET brought."""

    content: bytes
    content_type: str


class Fetcher:
    """Reads one URL again and again over one kept connection.

    Args:
        url: An http or https URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=1, retries=False)

    def get(self, deadline_seconds: float) -> Body:
        """Read the URL.

        Raises:
            SourceError: If it cannot be reached, answers with another status than 200, takes
                longer than the deadline or brings more than ``MAX_BODY``.
        """
        ends = time.monotonic() + deadline_seconds
        try:
            response = self._pool.request(
                "GET",
                self.url,
                headers={"Accept": _ACCEPT, "Accept-Encoding": "gzip"},
                timeout=urllib3.Timeout(total=deadline_seconds),
                redirect=False,
                preload_content=False,
            )
            try:
                if response.status != 200:
                    raise SourceError(
                        f"http_{response.status}", f"{self.url} answers {response.status}"
                    )
                content = self._read(response, ends)
            except BaseException:
                response.close()
                raise
            response.release_conn()
        except urllib3.exceptions.TimeoutError:
            raise self._late(deadline_seconds) from None
        except urllib3.exceptions.NewConnectionError:
            raise SourceError("unreachable", f"{self.url} cannot be reached") from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise SourceError("broken", f"{self.url}: {type(error).__name__}") from None
        return Body(content, response.headers.get("Content-Type", ""))

    def _read(self, response: urllib3.BaseHTTPResponse, ends: float) -> bytes:
        """Read what arrives, piece by piece, so that a slow body meets the deadline too."""
        chunks: list[bytes] = []
        size = 0
        while chunk := response.read1(_CHUNK, decode_content=True):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY:
                raise SourceError("too_large", f"{self.url} gives more than {MAX_BODY} bytes")
            if time.monotonic() > ends:
                raise urllib3.exceptions.TimeoutError
        return b"".join(chunks)

    def _late(self, seconds: float) -> SourceError:
        return SourceError("timeout", f"{self.url} gave no whole answer within {seconds:g} s")

    def close(self) -> None:
        """Close the connection."""
        self._pool.clear()
