"""Columns that tables of several boards share: a query and its unit each."""

from __future__ import annotations

from typing import Final

from tailscope.catalogue.promql import age, compare, share
from tailscope.dashboards.query import NOW, RANGE, RANGE_EVERYONE, Series
from tailscope.dashboards.style import Unit

Column = tuple[Series, Unit]

_TENANT: Final = ("tenant",)
_SLOTS: Final = "tenant_slot_seconds_total"
_SOURCE: Final = ("instance", "source")
_TTFT: Final = "request_time_to_first_token_seconds"

BATCH_SHARE: Final[Column] = (
    Series("Batch share", share(RANGE.rate(_SLOTS, _TENANT), RANGE_EVERYONE.rate(_SLOTS, ()))),
    Unit.RATIO,
)
REQUESTS: Final[Column] = (
    Series("Requests", RANGE.rate("requests_total", _TENANT)),
    Unit.REQUESTS_PER_SECOND,
)
INPUT_TOKENS: Final[Column] = (
    Series("Input tokens", RANGE.rate("tenant_input_tokens_total", _TENANT)),
    Unit.TOKENS_PER_SECOND,
)
OUTPUT_TOKENS: Final[Column] = (
    Series("Output tokens", RANGE.rate("tenant_output_tokens_total", _TENANT)),
    Unit.TOKENS_PER_SECOND,
)
FIRST_TOKEN_P99: Final[Column] = (
    Series("First token p99", RANGE.quantile(0.99, _TTFT, _TENANT)),
    Unit.SECONDS,
)
TOTAL_P99: Final[Column] = (
    Series("Total p99", RANGE.quantile(0.99, "request_seconds", _TENANT)),
    Unit.SECONDS,
)

SOURCE_LABELS: Final = (*_SOURCE, "reason")
SOURCES: Final[tuple[Column, ...]] = (
    (
        Series("Last good read", age(NOW.gauge("source_last_success_timestamp_seconds", _SOURCE))),
        Unit.SECONDS,
    ),
    (Series("Up", NOW.gauge("source_up", _SOURCE)), Unit.COUNT),
    # Only its label is of interest.
    (Series("", compare(NOW.gauge("source_state", SOURCE_LABELS), "==", 1)), Unit.COUNT),
)
"""State of each source of an exporter."""
