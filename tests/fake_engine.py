"""An engine's HTTP server that answers as a test tells it to: well, badly, late or not at all."""

from __future__ import annotations

import gzip
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parent / "captures" / "vllm"
VLLM_TYPE = "text/plain; version=1.0.0; charset=utf-8"
"""What vLLM 0.32 sends: the plain text format under the version of OpenMetrics."""

_PAUSE = 0.02
_LONGEST_DRIP = 60.0


def capture(name: str = "0.32") -> str:
    """The text of a recorded scrape."""
    return (CAPTURES / f"{name}.prom").read_text(encoding="utf-8")


def restarted(text: str, *, created: bool = True) -> str:
    """A scrape as a new process of the same engine would give it: every count is 0.

    Args:
        text: A scrape.
        created: Whether the new times of creation are told, or the lines left out.
    """
    lines = []
    for line in text.splitlines():
        if line.startswith("#"):
            lines.append(line)
            continue
        series, value = line.rsplit(" ", 1)
        name = series.partition("{")[0]
        if name.endswith("_created"):
            if created:
                lines.append(f"{series} {float(value) + 1000}")
        elif re.search(r"_(total|bucket|sum|count)$", name):
            lines.append(f"{series} 0.0")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


class Exchange(BaseHTTPRequestHandler):
    """One request, as a behaviour sees it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        self.server.engine.requests.append(self.path)
        self.server.engine.headers_seen = dict(self.headers)
        self.server.engine.behaviour(self)

    def reply(
        self,
        body: bytes,
        kind: str = VLLM_TYPE,
        status: int = 200,
        **headers: str,
    ) -> None:
        """A whole answer."""
        self.head(status, kind, **{"Content-Length": str(len(body)), **headers})
        self.wfile.write(body)

    def head(self, status: int = 200, kind: str = VLLM_TYPE, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def drip(self, body: bytes) -> None:
        """Byte by byte, until the reader has enough of it, or so long that it should have."""
        ends = time.monotonic() + _LONGEST_DRIP
        with suppress(OSError):
            for byte in body:
                self.wfile.write(bytes([byte]))
                if self.server.engine.closing.wait(_PAUSE) or time.monotonic() > ends:
                    return

    def hang(self) -> None:
        """Until the engine ends."""
        self.server.engine.closing.wait()

    def end(self) -> None:
        """No further request over this connection."""
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


Behaviour = Callable[[Exchange], None]


def answers(text: str, kind: str = VLLM_TYPE) -> Behaviour:
    return lambda exchange: exchange.reply(text.encode(), kind)


def packed(text: str) -> Behaviour:
    return lambda exchange: exchange.reply(gzip.compress(text.encode()), Content_Encoding="gzip")


def bomb(megabytes: int) -> Behaviour:
    """A small body that is huge when unpacked."""
    body = gzip.compress(b"\n" * (megabytes << 20))
    return lambda exchange: exchange.reply(body, Content_Encoding="gzip")


def chunked(text: str) -> Behaviour:
    def behaviour(exchange: Exchange) -> None:
        exchange.head(Transfer_Encoding="chunked")
        for start in range(0, len(text), 5_000):
            piece = text[start : start + 5_000].encode()
            exchange.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        exchange.wfile.write(b"0\r\n\r\n")

    return behaviour


def until_closed(text: str) -> Behaviour:
    """As HTTP 1.0 does: the end of the connection is the end of the body."""

    def behaviour(exchange: Exchange) -> None:
        exchange.head(Connection="close")
        exchange.wfile.write(text.encode())
        exchange.end()

    return behaviour


def cut(text: str, at: int) -> Behaviour:
    """The connection ends in the middle of the body."""

    def behaviour(exchange: Exchange) -> None:
        exchange.head(Content_Length=str(len(text.encode())))
        exchange.wfile.write(text.encode()[:at])
        exchange.end()

    return behaviour


def loading() -> Behaviour:
    body = json.dumps({"error": {"message": "Model is loading", "code": 503}}).encode()
    return lambda exchange: exchange.reply(body, "application/json", 503)


def json_body(status: int = 200) -> Behaviour:
    return lambda exchange: exchange.reply(b'{"detail":"Not Found"}', "application/json", status)


def html(kind: str = "text/html; charset=utf-8") -> Behaviour:
    page = "<!doctype html>\n<html><body>\n<p>Welcome 1\n</body></html>\n"
    return lambda exchange: exchange.reply(page.encode(), kind)


def redirects(where: str) -> Behaviour:
    return lambda exchange: exchange.reply(b"", status=302, Location=where)


def hangs() -> Behaviour:
    return lambda exchange: exchange.hang()


def drips(text: str) -> Behaviour:
    def behaviour(exchange: Exchange) -> None:
        exchange.head(Content_Length=str(len(text.encode())))
        exchange.drip(text.encode())
        exchange.end()

    return behaviour


def drips_head() -> Behaviour:
    """Header after header, for ever: no deadline between two bytes is met."""

    def behaviour(exchange: Exchange) -> None:
        exchange.wfile.write(b"HTTP/1.1 200 OK\r\nX-Padding: ")
        exchange.drip(b"x" * 60_000)
        exchange.end()

    return behaviour


def hangs_up() -> Behaviour:
    return lambda exchange: exchange.end()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, engine: FakeEngine, port: int) -> None:
        self.engine = engine
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Exchange)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is what some tests are about."""


class FakeEngine:
    """A server on a local port. Between ``stop`` and ``start`` the engine is down.

    Attributes:
        behaviour: How it answers; may be changed at any time.
        requests: Paths that were asked for.
        headers_seen: Headers of the last request.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[str] = []
        self.headers_seen: dict[str, str] = {}
        self.closing = threading.Event()
        self._server: _Server | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._server.connections) if self._server else 0

    def start(self) -> None:
        self.closing = threading.Event()
        self._server = _Server(self, self.port)
        self.port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="fake-engine", daemon=True
        ).start()

    def secure(self, context: ssl.SSLContext) -> None:
        """From now on it speaks TLS."""
        assert self._server is not None
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def stop(self) -> None:
        """As a process that ends: open connections end too."""
        if self._server is None:
            return
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server = None


@contextmanager
def fake_engine(behaviour: Behaviour | None = None) -> Iterator[FakeEngine]:
    """A vLLM that answers with a recorded scrape, if nothing else is said."""
    engine = FakeEngine(behaviour or answers(capture()))
    try:
        yield engine
    finally:
        engine.stop()
