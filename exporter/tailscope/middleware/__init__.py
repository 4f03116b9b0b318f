"""An ASGI middleware that tells the exporter of each request: when, how long, whose, how it ended.

For vLLM's ``--middleware tailscope.middleware.TailscopeMiddleware`` and any other ASGI server::

    app.add_middleware(TailscopeMiddleware)

It needs nothing but Python's standard library, reads no body, and keeps no text of one. Where the
exporter is away it drops what it cannot keep, counts it, and the server never notices.
"""

from __future__ import annotations

from tailscope.middleware.asgi import TailscopeMiddleware

__all__ = ["TailscopeMiddleware"]
