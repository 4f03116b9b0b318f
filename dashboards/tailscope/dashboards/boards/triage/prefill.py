"""2 Prefill: how long prompts take, and how much of them comes from the cache."""

from __future__ import annotations

from tailscope.catalogue.promql import difference, ratio
from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import timeseries
from tailscope.dashboards.query import NOW, Series, quantiles
from tailscope.dashboards.style import Unit

_LOOKED_UP = NOW.rate("engine_prefix_cache_query_tokens_total", ())
_FOUND = NOW.rate("engine_prefix_cache_hit_tokens_total", ())

ROW = Row(
    400,
    "2 Prefill",
    (
        timeseries(
            401,
            "Prefill time",
            "From the first step of a request to its first token. It grows with the prompt tokens "
            "that are not cached, and with what else is in the batch: cap the input length, keep "
            "the start of prompts fixed. All tenants.",
            Unit.SECONDS,
            *quantiles("request_stage_seconds", {"stage": "prefill"}),
        ),
        timeseries(
            402,
            "Prompt tokens, computed and from cache",
            "Prompt tokens that the engine looked up in its prefix cache, by what came of it. "
            "The computed ones cost time. Empty or 0 where prefix caching is off.",
            Unit.TOKENS_PER_SECOND,
            Series("computed", difference(_LOOKED_UP, _FOUND)),
            Series("from cache", _FOUND),
            stacked=True,
        ),
        timeseries(
            403,
            "Prefix cache hit ratio",
            "Share of the looked-up prompt tokens that were in the prefix cache. A fall at steady "
            "load: a prompt template changed, or the cache is too small. Compare with its own "
            "past, not with a fixed number.",
            Unit.RATIO,
            Series("hit ratio", ratio(_FOUND, _LOOKED_UP)),
            top=1,
        ),
    ),
)
