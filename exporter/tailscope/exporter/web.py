"""The metrics page, and what else a person or a probe asks the exporter for."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from tailscope.exporter.exposition import OPENMETRICS, TEXT
from tailscope.exporter.health import Health


def metrics_app(
    render: Callable[[bool], bytes],
    ready: Callable[[], bool],
    healths: Callable[[], list[Health]],
    version: str,
) -> Starlette:
    """The application of the metrics listener.

    Args:
        render: Writes the exposition; True asks for OpenMetrics.
        ready: Whether the start is over.
        healths: State of each source, for the landing page.
        version: Version of the exporter.
    """
    # One thread: two pages at a time would take twice the memory and, in Python, no less time.
    thread = ThreadPoolExecutor(1, thread_name_prefix="page")

    async def metrics(request: Request) -> Response:
        openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        loop = asyncio.get_running_loop()
        content = await loop.run_in_executor(thread, render, openmetrics)
        return Response(content, headers={"Content-Type": OPENMETRICS if openmetrics else TEXT})

    async def healthy(request: Request) -> Response:
        return PlainTextResponse("Tailscope exporter is healthy.\n")

    async def is_ready(request: Request) -> Response:
        if ready():
            return PlainTextResponse("Tailscope exporter is ready.\n")
        return PlainTextResponse("Tailscope exporter starts or stops.\n", 503)

    async def landing(request: Request) -> Response:
        return HTMLResponse(landing_page(healths(), version))

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/-/healthy", healthy),
            Route("/-/ready", is_ready),
            Route("/", landing),
        ]
    )


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
