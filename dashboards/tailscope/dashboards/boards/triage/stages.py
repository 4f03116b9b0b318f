"""Which stage? The means add up to the whole, the p99s do not."""

from __future__ import annotations

from tailscope.catalogue.promql import largest, ratio
from tailscope.catalogue.requests import STAGES
from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import heatmap, timeseries
from tailscope.dashboards.query import NOW, Series, quantiles
from tailscope.dashboards.style import Unit

_STAGE = "request_stage_seconds"
# Over the requests of the stage that most requests met: one that never reached decode counts
# there with nothing, so that the stages add up to the mean of the whole.
_REQUESTS = largest(NOW.rate(_STAGE, ("stage",), suffix="_count"))


def _mean(stage: str) -> Series:
    spent = NOW.rate(_STAGE, (), {"stage": stage}, "_sum")
    return Series(stage, ratio(spent, _REQUESTS))


ROW = Row(
    200,
    "Which stage? Frontend, then queue, prefill, decode",
    (
        timeseries(
            201,
            "Mean time by stage (adds up)",
            "Where the mean request spends its time; the stack is the whole. The thickest layer "
            "is the place to look: its row below says why. All tenants.",
            Unit.SECONDS,
            *map(_mean, STAGES),
            stacked=True,
            width=12,
        ),
        timeseries(
            202,
            "p99 by stage (does not add up)",
            "The slow end of each stage on its own. The slowest requests of one stage are not "
            "those of another, so the curves may not be added. A stage with a high p99 and a low "
            "mean hits few requests: look for the tenant or the prompt that they share. "
            "All tenants.",
            Unit.SECONDS,
            Series("{{stage}}", NOW.quantile(0.99, _STAGE, ("stage",)), exemplars=True),
            width=12,
        ),
        timeseries(
            203,
            "Time to first token",
            "From arrival to the first token. A p99 far from p50 means that some requests wait for "
            "others; all curves high together means that the engine is slow or full. "
            "Dots are traces of single requests.",
            Unit.SECONDS,
            *quantiles("request_time_to_first_token_seconds"),
        ),
        timeseries(
            204,
            "Total time",
            "From arrival to the last token. If it grows and the time to first token does not, "
            "the decode stage or longer outputs are the reason.",
            Unit.SECONDS,
            *quantiles("request_seconds"),
        ),
        heatmap(
            205,
            "Total time, all requests",
            "Each cell counts the requests of that duration. Two bands mean two kinds of requests: "
            "choose a model or a tenant above to tell them apart.",
            Unit.SECONDS,
            NOW.buckets("request_seconds", ()),
            width=8,
        ),
    ),
)
