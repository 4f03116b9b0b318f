"""Is it slow? Six numbers."""

from __future__ import annotations

from tailscope.catalogue.promql import compare, difference, filled, ratio, total
from tailscope.dashboards.board import Row
from tailscope.dashboards.panels import stat
from tailscope.dashboards.query import NOW, Series
from tailscope.dashboards.style import ANY, FAILURES, Unit

_REQUESTS = NOW.rate("requests_total", ())
_FAILED = NOW.rate("requests_total", (), {"outcome": "!ok"})

ROW = Row(
    100,
    "Is it slow?",
    (
        stat(
            101,
            "Time to first token, p99",
            "99 of 100 requests had their first token within this time. "
            "If it is high, find the stage in the next row.",
            Unit.SECONDS,
            Series("p99", NOW.quantile(0.99, "request_time_to_first_token_seconds", ())),
        ),
        stat(
            102,
            "Total time, p99",
            "99 of 100 requests ended within this time, from arrival to last token. It grows with "
            "the length of the output: compare it with the time to first token before you act.",
            Unit.SECONDS,
            Series("p99", NOW.quantile(0.99, "request_seconds", ())),
        ),
        stat(
            106,
            "First token after ${first:text}",
            "Share of the requests whose first token came later than the chosen time: exact, at a "
            "bound of the buckets. Above 1 % the budget of a promise of 99 % is being used up.",
            Unit.RATIO,
            Series(
                "late",
                difference(
                    "1", NOW.share_within("$first", "request_time_to_first_token_seconds", ())
                ),
            ),
            limits=FAILURES,
        ),
        stat(
            103,
            "Requests",
            "Requests that ended, a second, whatever their outcome. "
            "If it falls while the queue grows, the engine got slower: do not blame the load.",
            Unit.REQUESTS_PER_SECOND,
            Series("requests", _REQUESTS),
        ),
        stat(
            104,
            "Requests that did not end well",
            "Share of the requests that ended in anything but ok: error, rejected, aborted by the "
            "client, or timed out. An aborted request is often a slow one whose client gave up.",
            Unit.RATIO,
            Series("not ok", ratio(filled(_FAILED, _REQUESTS), _REQUESTS)),
            limits=FAILURES,
        ),
        stat(
            105,
            "Sources down",
            "Sources of the exporter that gave no data in their last three intervals. Above 0, "
            "some panels show too little: the last row says which source, and why.",
            Unit.COUNT,
            Series("down", total(compare(NOW.vector("source_up"), "== bool", 0))),
            state=True,
            limits=ANY,
        ),
    ),
)
