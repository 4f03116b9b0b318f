"""A small HTTP server that answers as the recorded engine did."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tailscope.demo.exposition import Exposition
from tailscope.demo.recording import Recording
from tailscope.demo.schedule import Schedule

_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
"""What vLLM 0.32 sends: the plain text format under the version of OpenMetrics."""

_Page = Callable[[], tuple[str, str]]
"""Gives the content type and the text of a path."""


class RecordedEngine:
    """``/metrics``, ``/health`` and ``/version`` of the recorded engine, on a free local port.

    Args:
        recording: What is played.
        schedule: Says which pass, and which time of it, it is now.
        now_ns: Wall clock, UTC nanoseconds.
    """

    def __init__(self, recording: Recording, schedule: Schedule, now_ns: Callable[[], int]) -> None:
        exposition = Exposition(recording.scrapes, schedule)
        version = json.dumps({"version": recording.version})
        pages: dict[str, _Page] = {
            "/metrics": lambda: (_METRICS_TYPE, exposition.at(now_ns())),
            "/health": lambda: ("text/plain; charset=utf-8", ""),
            "/version": lambda: ("application/json", version),
        }
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, pages))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="recorded-engine", daemon=True
        )

    @property
    def url(self) -> str:
        """Address of the engine, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more and close the port. Call it once, after ``start``."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes: without this the second waits for the reader's late ACK.
    disable_nagle_algorithm = True
    timeout = 60

    def __init__(self, pages: dict[str, _Page], *rest: Any) -> None:
        self._pages = pages
        super().__init__(*rest)

    def do_GET(self) -> None:
        page = self._pages.get(self.path.partition("?")[0])
        kind, text = page() if page else ("application/json", '{"detail":"Not Found"}')
        body = text.encode("utf-8")
        self.send_response(HTTPStatus.OK if page else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the command."""
