"""One HTTP GET with a deadline for the whole of it and a limit on what it may bring."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple

import urllib3

from tailscope.address import without_query
from tailscope.exporter.access import OPEN, Access
from tailscope.exporter.health import SourceError

MAX_BODY = 32 << 20
"""Largest body, decompressed, in bytes."""

_CHUNK = 1 << 16
_HEADERS = {
    "Accept": "text/plain; version=0.0.4, text/plain; q=0.9, */*; q=0.1",
    # An engine beside us would spend more on packing than the wire is worth.
    "Accept-Encoding": "identity",
}
_MORE = {
    401: "; it wants a token: see token-file in the settings of an engine",
    403: "; its token may not read this: see token-file in the settings of an engine",
    503: "; it may still load its model",
}


class Body(NamedTuple):
    """What an HTTP GET brought."""

    content: bytes
    content_type: str

    @property
    def document(self) -> str:
        """What it says that it is instead of metrics; empty if it does not.

        Never the header itself, which goes into messages and may hold anything.
        """
        kinds = ("application/json", "text/html")
        return next((kind for kind in kinds if kind.partition("/")[2] in self.content_type), "")


class Fetcher:
    """Reads one URL again and again over one kept connection.

    Args:
        url: An http or https URL.
        access: What the server wants to see.

    Attributes:
        shown: The URL for people: without a query, which may hold a token.
    """

    def __init__(self, url: str, access: Access = OPEN) -> None:
        self._url = url
        self._access = access
        self.shown = without_query(url)
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=1,
            retries=False,
            ca_certs=str(access.ca_file) if access.ca_file else None,
        )

    def get(self, deadline_seconds: float) -> Body:
        """Read the URL.

        Raises:
            SourceError: If it cannot be reached, answers with another status than 200, takes
                longer than the deadline or brings more than ``MAX_BODY``.
        """
        ends = time.monotonic() + deadline_seconds
        headers = _HEADERS | self._access.headers()
        try:
            response = self._request(headers, ends)
            try:
                content = self._read(response, ends)
            except BaseException:
                response.close()
                raise
            response.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise self._told(error, deadline_seconds) from None
        except (OSError, ValueError) as error:
            raise self._broken(type(error).__name__) from None
        return Body(content, response.headers.get("Content-Type", ""))

    def _request(self, headers: Mapping[str, str], ends: float) -> urllib3.BaseHTTPResponse:
        try:
            return self._send(headers, ends)
        except urllib3.exceptions.ProtocolError:
            # A server may close a kept connection at the moment of its use: once more, anew.
            return self._send(headers, ends)

    def _send(self, headers: Mapping[str, str], ends: float) -> urllib3.BaseHTTPResponse:
        return self._pool.request(
            "GET",
            self._url,
            headers=headers,
            timeout=urllib3.Timeout(total=max(ends - time.monotonic(), 0.001)),
            redirect=False,
            preload_content=False,
        )

    def _read(self, response: urllib3.BaseHTTPResponse, ends: float) -> bytes:
        """Read what arrives, piece by piece, so that a slow body meets the deadline too."""
        if response.status != 200:
            more = _MORE.get(response.status, "")
            if 300 <= response.status < 400:
                more = "; give the URL that it redirects to"
            raise SourceError(
                f"http_{response.status}", f"{self.shown} answers {response.status}{more}"
            )
        chunks: list[bytes] = []
        size = 0
        while chunk := response.read1(_CHUNK, decode_content=True):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY:
                raise SourceError("too_large", f"{self.shown} gives more than {MAX_BODY} bytes")
            if time.monotonic() > ends:
                raise urllib3.exceptions.TimeoutError
        content = b"".join(chunks)
        if not (content.endswith(b"\n") or _bounded(response)):
            raise self._broken("the answer is cut off")
        return content

    def _told(self, error: urllib3.exceptions.HTTPError, seconds: float) -> SourceError:
        match error:  # the order matters: one who cannot be reached is "late" to the library too
            case urllib3.exceptions.NameResolutionError():
                return SourceError("unreachable", f"{self.shown}: the name of the host is unknown")
            case urllib3.exceptions.NewConnectionError():
                return SourceError("unreachable", f"{self.shown} cannot be reached")
            case urllib3.exceptions.TimeoutError():
                return SourceError(
                    "timeout", f"{self.shown} gave no whole answer within {seconds:g} s"
                )
            case urllib3.exceptions.SSLError():
                return SourceError("tls", f"{self.shown}: {_tls_trouble(error)}")
            case urllib3.exceptions.ProtocolError():
                return self._broken("the connection broke off, or this is no HTTP")
        return self._broken(type(error).__name__)

    def _broken(self, why: str) -> SourceError:
        return SourceError("broken", f"{self.shown}: {why}")

    def close(self) -> None:
        """Close the connection."""
        self._pool.clear()


def _bounded(response: urllib3.BaseHTTPResponse) -> bool:
    """Return whether the transfer itself says where it ends."""
    return "Content-Length" in response.headers or "Transfer-Encoding" in response.headers


def _tls_trouble(error: urllib3.exceptions.SSLError) -> str:
    cause = error.args[0] if error.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted ({cause.verify_message}); name the file of its "
            "authority in the variable SSL_CERT_FILE"
        )
    return "it does not speak TLS as it should; is it an http:// address?"
