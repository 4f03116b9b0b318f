"""Without request records: the same questions to the engine's own histograms."""

from __future__ import annotations

from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import timeseries
from tailscope.dashboards.query import NOW, Series
from tailscope.dashboards.style import Unit

_ENGINE = ("engine",)
_STAGES = ("queue", "prefill", "decode")
_COARSE = (
    "The engine's buckets are wide, so a p99 can be 40 % off, and a p50 far more; the means are "
    "exact. Where there are records, trust the rows above."
)

ROW = Row(
    700,
    "The engine's own histograms (without request records)",
    (
        timeseries(
            701,
            "Mean time by stage, by the engine",
            f"What the engine says of its own stages; the time before its queue is in none of "
            f"them. {_COARSE}",
            Unit.SECONDS,
            *(Series(stage, NOW.mean(f"engine_{stage}_seconds", ())) for stage in _STAGES),
            stacked=True,
        ),
        timeseries(
            702,
            "p99 by stage, by the engine",
            f"Interpolated in the engine's buckets. {_COARSE}",
            Unit.SECONDS,
            *(
                Series(
                    f"{stage} {{{{engine}}}}",
                    NOW.quantile(0.99, f"engine_{stage}_seconds", _ENGINE),
                )
                for stage in _STAGES
            ),
        ),
        timeseries(
            703,
            "Time to first token, by the engine",
            f"Aborted requests are in it, but in no other histogram of the engine. {_COARSE}",
            Unit.SECONDS,
            Series(
                "p99 {{engine}}",
                NOW.quantile(0.99, "engine_time_to_first_token_seconds", _ENGINE),
            ),
            Series("mean", NOW.mean("engine_time_to_first_token_seconds", ())),
        ),
    ),
)
