"""The metrics page, and what else a person or a probe asks the exporter for.

Plain ASGI: four pages without parameters need no framework, which would take 3 MiB.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tailscope.exporter.exposition import OPENMETRICS, TEXT
from tailscope.exporter.health import Health

_PLAIN = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_METHODS = "GET, HEAD"
_NOT_FOUND = b"Not found; there are /, /metrics, /-/healthy and /-/ready.\n"

Send = Callable[[dict[str, Any]], Awaitable[None]]
Scope = Mapping[str, Any]


class Answer(NamedTuple):
    """What a page is answered with."""

    content: bytes
    kind: str = _PLAIN
    status: int = 200
    allow: str = ""


class MetricsApp:
    """The application of the metrics listener.

    Args:
        render: Writes the exposition; True asks for OpenMetrics.
        ready: Whether the start is over.
        healths: State of each source, for the landing page.
        version: Version of the exporter.
    """

    def __init__(
        self,
        render: Callable[[bool], bytes],
        ready: Callable[[], bool],
        healths: Callable[[], list[Health]],
        version: str,
    ) -> None:
        self._render = render
        self._ready = ready
        self._healths = healths
        self._version = version
        # One thread: two pages at a time would take twice the memory and, in Python, no less time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._pages: Mapping[str, Callable[[Scope], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/-/healthy": self._healthy,
            "/-/ready": self._is_ready,
            "/": self._landing,
        }

    async def __call__(self, scope: Scope, receive: object, send: Send) -> None:
        """Answer one request."""
        page = self._pages.get(scope["path"])
        if page is None:
            answer = Answer(
                b"Not found; there are /, /metrics, /-/healthy and /-/ready.\n", status=404
            )
        elif scope["method"] not in ("GET", "HEAD"):
            answer = Answer(b"Only GET and HEAD.\n", status=405, allow=_METHODS)
        else:
            answer = await page(scope)
        headers = [
            (b"content-type", answer.kind.encode()),
            (b"content-length", str(len(answer.content)).encode()),
        ]
        if answer.allow:
            headers.append((b"allow", answer.allow.encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        # To HEAD, uvicorn sends no body.
        await send({"type": "http.response.body", "body": answer.content})

    async def _metrics(self, scope: Scope) -> Answer:
        openmetrics = any(
            name == b"accept" and b"application/openmetrics-text" in value
            for name, value in scope["headers"]
        )
        loop = asyncio.get_running_loop()
        content = await loop.run_in_executor(self._thread, self._render, openmetrics)
        return Answer(content, OPENMETRICS if openmetrics else TEXT)

    async def _healthy(self, scope: Scope) -> Answer:
        return Answer(b"Tailscope exporter is healthy.\n")

    async def _is_ready(self, scope: Scope) -> Answer:
        if self._ready():
            return Answer(b"Tailscope exporter is ready.\n")
        return Answer(b"Tailscope exporter starts or stops.\n", status=503)

    async def _landing(self, scope: Scope) -> Answer:
        text = landing_page(self._healths(), self._version)
        return Answer(text.encode("utf-8", "replace"), _HTML)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Tailscope exporter</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14171a; color: #e4e6e8; }} a {{ color: #7fb6ff; }} }}
</style>
<h1>Tailscope exporter {version}</h1>
<p><a href="/metrics">Metrics</a> &middot; <a href="/-/ready">Ready</a> &middot;
<a href="/-/healthy">Healthy</a></p>
<table>
<thead><tr><th>Source</th><th>State</th><th>What it says</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</html>
"""  # noqa: E501 - one line of CSS per rule


def landing_page(healths: list[Health], version: str) -> str:
    """The page at ``/``: each source and how it does."""
    rows = "\n".join(
        f"<tr><td>{html.escape(health.source)}</td><td>{html.escape(health.state.reason)}</td>"
        f"<td>{html.escape(health.state.message)}</td></tr>"
        for health in healths
    )
    return _PAGE.format(version=html.escape(version), rows=rows)
