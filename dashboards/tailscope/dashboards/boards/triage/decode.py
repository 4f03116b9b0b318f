"""3 Decode: how fast tokens come, and what slows the batch."""

from __future__ import annotations

from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import timeseries
from tailscope.dashboards.query import NOW, Series, quantiles
from tailscope.dashboards.style import UTILISATION, Unit

ROW = Row(
    500,
    "3 Decode",
    (
        timeseries(
            501,
            "Decode time",
            "From the first token to the last. It is mostly the length of the output: if it grows "
            "alone, look at the time per output token on the right. All tenants.",
            Unit.SECONDS,
            *quantiles("request_stage_seconds", {"stage": "decode"}),
        ),
        timeseries(
            502,
            "Time per output token",
            "Decode time of a request over its output tokens: the pace that a reader sees. If p99 "
            "leaves p50, long prompts are computed between the tokens of others: use smaller "
            "chunks of prefill or move the long prompts away. All tenants.",
            Unit.SECONDS,
            *quantiles("request_time_per_output_token_seconds"),
        ),
        timeseries(
            503,
            "Tokens in a batch step (mean)",
            "Prompt and output tokens of one step of the engine. Peaks far above the running "
            "requests are prefills that share the step with decodes.",
            Unit.TOKENS,
            Series("{{server}}", NOW.mean("engine_step_tokens", ("server",))),
        ),
        timeseries(
            504,
            "Key-value cache usage",
            "Share of the cache blocks in use: true mean, and what 1 of 100 seconds exceeded. "
            "Near 1 the engine preempts: lower the number of concurrent requests or cap "
            "max_tokens.",
            Unit.RATIO,
            Series("{{server}} mean", NOW.time_mean("engine_kv_cache_usage_ratio", ("server",))),
            Series(
                "{{server}} p99", NOW.quantile(0.99, "engine_kv_cache_usage_ratio", ("server",))
            ),
            limits=UTILISATION,
            top=1,
            width=12,
        ),
        timeseries(
            505,
            "Preemptions",
            "Running requests that lost their place, a second: their work is done again, hidden in "
            "prefill or decode. Anything above 0 for minutes: the cache is too small for the load.",
            Unit.PER_SECOND,
            Series("{{server}}", NOW.rate("engine_preemptions_total", ("server",))),
            width=12,
        ),
    ),
)
