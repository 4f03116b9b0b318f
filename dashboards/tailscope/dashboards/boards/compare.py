"""Before and after one change: the left edge of the time range is the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailscope.catalogue.promql import Query, difference, ratio
from tailscope.dashboards.board import Board, Row
from tailscope.dashboards.panels import Panel, table, timeseries
from tailscope.dashboards.query import EARLIER, JUST_BEFORE, NOW, RANGE, RANGE_BEFORE, Series
from tailscope.dashboards.style import Unit
from tailscope.dashboards.variables import FIRST_TOKEN_SLO, OFFSET

_STAGE: Final = "request_stage_seconds"
_TTFT: Final = "request_time_to_first_token_seconds"
_TPOT: Final = "request_time_per_output_token_seconds"
_Q: Final = 0.95
"""p99 of a short window is a handful of requests; p95 holds still enough to compare."""

_Pair = tuple[Series, Series]
_HOW: Final = "After is this time range, before the same length of time until its left edge."


def _both(
    id: int,
    title: str,
    description: str,
    by: str,
    unit: Unit,
    write: Callable[[Query], str],
    width: int = 12,
) -> Panel:
    """A table of a value before and after, and their ratio."""
    before, after = write(RANGE_BEFORE), write(RANGE)
    return table(
        id,
        title,
        f"{_HOW} {description}",
        (by,),
        (Series("After / before", ratio(after, before)), Unit.FACTOR),
        (Series("Before", before), unit),
        (Series("After", after), unit),
        width=width,
        height=6,
    )


def _curves(earlier: Query, write: Callable[[Query], str], exemplars: bool = True) -> _Pair:
    """The same question to the present and to an earlier time."""
    after = Series("after", write(NOW), exemplars=exemplars)
    return after, Series("before", write(earlier))


PINNED: Final = Row(
    100,
    "Which stage changed?",
    (
        _both(
            101,
            "Stages, p95",
            "The stage whose ratio stands out is where the change acts; one far above 1 alone "
            "says which board comes next. All tenants.",
            "stage",
            Unit.SECONDS,
            lambda query: query.quantile(_Q, _STAGE, ("stage",)),
        ),
        _both(
            102,
            "Servers, p95 of the time to first token",
            "A change on one server shows in one line; in all lines it is the load or the route.",
            "server",
            Unit.SECONDS,
            lambda query: query.quantile(_Q, _TTFT, ("server",)),
        ),
        _both(
            103,
            "Tenants, p95 of the total time",
            "Who gained and who paid. If only some tenants changed, compare their sizes of "
            "requests before you judge the change.",
            "tenant",
            Unit.SECONDS,
            lambda query: query.quantile(_Q, "request_seconds", ("tenant",)),
        ),
        _both(
            104,
            "Time per output token by model, p95",
            "The pace alone, whatever the length of the outputs. Unchanged pace at a longer total "
            "time: the requests changed, not the engine. All tenants.",
            "model",
            Unit.SECONDS,
            lambda query: query.quantile(_Q, _TPOT, ("model",)),
        ),
    ),
)

FAIR: Final = Row(
    200,
    "Is the comparison fair?",
    (
        _both(
            201,
            "Requests a second",
            "Compare latencies only at like load: above 1.2 or under 0.8 here, choose another "
            "time range.",
            "model",
            Unit.REQUESTS_PER_SECOND,
            lambda query: query.rate("requests_total", ("model",)),
            8,
        ),
        _both(
            202,
            "Input tokens a request (mean)",
            "Longer prompts make a slower prefill without any change of yours. Near 1 is fair.",
            "model",
            Unit.TOKENS,
            lambda query: query.mean("request_input_tokens", ("model",)),
            8,
        ),
        _both(
            203,
            "Output tokens a request (mean)",
            "Longer outputs make a longer total time without any change of yours. Near 1 is fair.",
            "model",
            Unit.TOKENS,
            lambda query: query.mean("request_output_tokens", ("model",)),
            8,
        ),
    ),
)

CURVES: Final = Row(
    300,
    "This time range over the one right before it",
    (
        timeseries(
            301,
            "Time to first token, p95",
            "The curve of the time right before, laid over this one. They part at the left edge: "
            "the change did it. They part later: something else did.",
            Unit.SECONDS,
            *_curves(JUST_BEFORE, lambda query: query.quantile(_Q, _TTFT, ())),
        ),
        timeseries(
            302,
            "Total time, p95",
            "As on the left, for the whole request. Read it together with the output tokens above.",
            Unit.SECONDS,
            *_curves(JUST_BEFORE, lambda query: query.quantile(_Q, "request_seconds", ())),
        ),
        timeseries(
            303,
            "Requests",
            "The load under both curves. If the loads differ, so do the queues, whatever you "
            "changed.",
            Unit.REQUESTS_PER_SECOND,
            *_curves(JUST_BEFORE, lambda query: query.rate("requests_total", ()), exemplars=False),
        ),
    ),
)

EARLIER_ROW: Final = Row(
    400,
    "This time range over the same time of another hour, day or week",
    (
        timeseries(
            401,
            "Time to first token, p95",
            "Against the chosen time before: a day or a week has the same rhythm, so what is left "
            "is the change. Empty: Prometheus does not reach so far back.",
            Unit.SECONDS,
            *_curves(EARLIER, lambda query: query.quantile(_Q, _TTFT, ())),
        ),
        timeseries(
            402,
            "Time per output token, p95",
            "The engine's pace against the chosen time before. A step without more load: look for "
            "a new version, a new driver or a throttled GPU. All tenants.",
            Unit.SECONDS,
            *_curves(EARLIER, lambda query: query.quantile(_Q, _TPOT, ())),
        ),
        timeseries(
            403,
            "First token within ${first:text}, change in points",
            "Share now less share before, of the requests in time. Under 0 users are worse off "
            "than then; exact, at a bound of the buckets.",
            Unit.RATIO,
            Series(
                "change",
                difference(
                    NOW.share_within("$first", _TTFT, ()), EARLIER.share_within("$first", _TTFT, ())
                ),
            ),
            top=1,
            lowest=-1,
        ),
    ),
)

_KNOWN: Final = ("server", "model")


def _setting(title: str, query: Query, gauge: str, unit: Unit) -> tuple[Series, Unit]:
    return Series(title, query.gauge(gauge, _KNOWN)), unit


SETTINGS: Final = Row(
    500,
    "What is set, and when it was started anew",
    (
        table(
            501,
            "Cache size by server",
            "Size of the key-value cache now and the same time range before: it changes with the "
            "engine's memory settings, its model and its parallelism. Unlike: a start with other "
            "settings lies between.",
            _KNOWN,
            _setting("Now", RANGE, "engine_kv_cache_capacity_tokens", Unit.TOKENS),
            _setting("Before", RANGE_BEFORE, "engine_kv_cache_capacity_tokens", Unit.TOKENS),
            width=12,
        ),
        timeseries(
            502,
            "Restarts",
            "Counters of a source that went back. Click a point and choose Before and after this "
            "moment: its time becomes the left edge.",
            Unit.COUNT,
            Series("{{source}}", NOW.increase("source_resets_total", ("source",))),
            width=12,
        ),
    ),
)

BOARD = Board(
    uid="tailscope-compare",
    title="Tailscope / 7 Before and after",
    description="One change, judged: put the left edge of the time range on the change (or click "
    "a point of any panel and choose Before and after this moment). After is the time range, "
    "before is the same length of time until its left edge.",
    rows=(PINNED, FAIR, CURVES, EARLIER_ROW, SETTINGS),
    variables=(FIRST_TOKEN_SLO, OFFSET),
)
