"""Which spans are request records.

Those of gateways and clients are here, one module for each kind of producer; those of an engine
stand with the engine.
"""

from __future__ import annotations

from tailscope.catalogue.spans import genai, litellm, middleware
from tailscope.catalogue.spans.model import TIMEOUT, OutcomeMark, SpanKind

__all__ = ["KINDS", "SERVER_ATTRIBUTES", "TIMEOUT", "OutcomeMark", "SpanKind"]

KINDS: tuple[SpanKind, ...] = (middleware.KIND, litellm.KIND, genai.KIND)
"""Those of gateways and clients; the first whose marks are there is the span's."""

SERVER_ATTRIBUTES = ("server.address", "service.instance.id")
"""Resource attributes that name the engine's instance, where no engine is scraped."""
