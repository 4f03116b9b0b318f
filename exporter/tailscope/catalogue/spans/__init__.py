"""Which spans are request records, one module for each kind of producer.

Spans of engines that are known by the span's name alone stand with the engine.
"""

from __future__ import annotations

from tailscope.catalogue.spans import genai, litellm, middleware, sglang
from tailscope.catalogue.spans.model import TIMEOUT, OutcomeMark, SpanKind

__all__ = ["KINDS", "SERVER_ATTRIBUTES", "TIMEOUT", "OutcomeMark", "SpanKind"]

KINDS: tuple[SpanKind, ...] = (middleware.KIND, sglang.KIND, litellm.KIND, genai.KIND)
"""Every kind; the first whose marks are there is the span's."""

SERVER_ATTRIBUTES = ("server.address", "service.instance.id")
"""Resource attributes that name the engine's instance, where no engine is scraped."""
