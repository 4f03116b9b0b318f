"""Prefill and cache: why the first token takes long though the request has a place."""

from __future__ import annotations

from typing import Final

from tailscope.catalogue.promql import difference, ratio
from tailscope.dashboards.board import Board, Row
from tailscope.dashboards.links import OF_SERIES
from tailscope.dashboards.panels import heatmap, timeseries
from tailscope.dashboards.query import EARLIER, NOW, Series, quantiles
from tailscope.dashboards.style import Unit
from tailscope.dashboards.variables import OFFSET

_STAGE: Final = "request_stage_seconds"
_PREFILL: Final = {"stage": "prefill"}
_SERVER: Final = ("server",)
_LOOKED_UP: Final = "engine_prefix_cache_query_tokens_total"
_FOUND: Final = "engine_prefix_cache_hit_tokens_total"
_TENANT_INPUT: Final = "tenant_input_tokens_total"


def _spread(metric: str, by: tuple[str, ...]) -> str:
    return ratio(NOW.quantile(0.99, metric, by), NOW.quantile(0.5, metric, by))


TIME: Final = Row(
    100,
    "Prefill time",
    (
        timeseries(
            101,
            "Prefill time",
            "From the first step of a request to its first token. It grows with the prompt tokens "
            "that are not cached, and with what else is in the batch: cap the input length. "
            "All tenants.",
            Unit.SECONDS,
            *quantiles(_STAGE, _PREFILL),
        ),
        heatmap(
            102,
            "Prefill time, all requests",
            "Each cell counts the requests whose prefill took so long. Two bands are two lengths "
            "of prompts, or hits and misses of the cache. All tenants.",
            Unit.SECONDS,
            NOW.buckets(_STAGE, (), _PREFILL),
            width=8,
        ),
        timeseries(
            103,
            "Prefill time by server (mean)",
            "By the engine itself. One server above the others at the same input: its cache is "
            "cold or its GPU is slow; see boards 4 and 5.",
            Unit.SECONDS,
            Series("{{server}}", NOW.mean("engine_prefill_seconds", _SERVER)),
        ),
    ),
)

INPUT: Final = Row(
    200,
    "What is read",
    (
        timeseries(
            201,
            "Input tokens of a request",
            "Length of the prompts. A p99 far above p50 makes everybody's latency uneven: give "
            "long prompts a queue of their own, or cap them.",
            Unit.TOKENS,
            *quantiles("request_input_tokens"),
        ),
        timeseries(
            202,
            "Spread of the input length",
            "p99 over p50, from the records and from the engine's own wider buckets. Above 10, a "
            "request's wait depends on whom it meets rather than on its own size: route by length.",
            Unit.FACTOR,
            Series("{{server}}", _spread("request_input_tokens", _SERVER)),
            Series(
                "{{server}}, by the engine",
                _spread("engine_request_input_tokens", (*_SERVER, "engine")),
            ),
        ),
        timeseries(
            203,
            "Prompt tokens by server",
            "All prompt tokens of the requests, those from the cache included. A jump that the "
            "prefill time follows is a burst of long prompts: board 6 says whose.",
            Unit.TOKENS_PER_SECOND,
            Series("{{server}}", NOW.rate("engine_prompt_tokens_total", _SERVER)),
            stacked=True,
        ),
        timeseries(
            204,
            "Input tokens that had to be computed (mean of a request)",
            "What is left of a prompt after the cache. This, not its length, costs time: keep the "
            "start of prompts fixed, so that it stays small.",
            Unit.TOKENS,
            Series("{{server}}", NOW.mean("engine_request_computed_input_tokens", _SERVER)),
            width=12,
        ),
        heatmap(
            205,
            "Input tokens, all requests",
            "Each cell counts the requests of that length. A band far up that was not there before "
            "is a new kind of work: find its tenant before you cap it.",
            Unit.TOKENS,
            NOW.buckets("request_input_tokens", ()),
        ),
    ),
)

CACHE: Final = Row(
    300,
    "Prefix cache",
    (
        timeseries(
            301,
            "Hit ratio, now and before",
            "Share of the looked-up prompt tokens that were in the prefix cache, and the same at "
            "the chosen time before. A fall against its own past: a prompt template changed.",
            Unit.RATIO,
            Series("now", ratio(NOW.rate(_FOUND, ()), NOW.rate(_LOOKED_UP, ()))),
            Series("before", ratio(EARLIER.rate(_FOUND, ()), EARLIER.rate(_LOOKED_UP, ()))),
            top=1,
        ),
        timeseries(
            302,
            "Hit ratio by server",
            "Servers that get the same prompts should hit alike. If they differ, the router does "
            "not send a conversation back to where its prefix is.",
            Unit.RATIO,
            Series("{{server}}", ratio(NOW.rate(_FOUND, _SERVER), NOW.rate(_LOOKED_UP, _SERVER))),
            top=1,
        ),
        timeseries(
            303,
            "Computed and cached tokens",
            "Prompt tokens that were looked up, by what came of it; the computed ones cost time. "
            "Empty where prefix caching is off: turn it on if prompts share their start.",
            Unit.TOKENS_PER_SECOND,
            Series("computed", difference(NOW.rate(_LOOKED_UP, ()), NOW.rate(_FOUND, ()))),
            Series("from cache", NOW.rate(_FOUND, ())),
            stacked=True,
        ),
        timeseries(
            304,
            "Prompt tokens by where they came from",
            "Computed here, from the cache, or sent by another engine. Without such engines or "
            "tiers there is one layer only. Much computed after a restart is a cold cache.",
            Unit.TOKENS_PER_SECOND,
            Series("{{origin}}", NOW.rate("engine_prompt_tokens_by_source_total", ("origin",))),
            stacked=True,
        ),
        timeseries(
            305,
            "Cached tokens by tier",
            "Which tier held the tokens: the GPU's own memory, the host's, or a store. The further "
            "away, the slower. If the host's tier does most of the work, the cache is too small.",
            Unit.TOKENS_PER_SECOND,
            Series("{{tier}}", NOW.rate("engine_cached_prompt_tokens_total", ("tier",))),
            stacked=True,
        ),
        timeseries(
            306,
            "Hit ratio of the cache outside the engine",
            "Share of the tokens looked up in a cache outside of the engine that were there. "
            "Low at a high load costs a lookup and saves nothing: check what it is keyed by.",
            Unit.RATIO,
            Series(
                "{{server}}",
                ratio(
                    NOW.rate("engine_external_cache_hit_tokens_total", _SERVER),
                    NOW.rate("engine_external_cache_query_tokens_total", _SERVER),
                ),
            ),
            top=1,
        ),
        timeseries(
            307,
            "Cached share of the input by tenant",
            "Whose prompts the cache serves. A tenant near 0 with many tokens pays full price: its "
            "prompts begin with something that changes, such as a date.",
            Unit.RATIO,
            Series(
                "{{tenant}}",
                ratio(
                    NOW.rate(_TENANT_INPUT, ("tenant",), {"cached": "yes"}),
                    NOW.rate(_TENANT_INPUT, ("tenant",)),
                ),
            ),
            top=1,
            links=OF_SERIES,
            width=24,
        ),
    ),
)

BOARD = Board(
    uid="tailscope-prefill",
    title="Tailscope / 3 Prefill and cache",
    description="When the first token is late though the queue is short: long prompts, uneven "
    "prompts, or a cache that does not hit.",
    rows=(TIME, INPUT, CACHE),
    variables=(OFFSET,),
)
