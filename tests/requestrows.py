"""Rows of engines and gateways, and what is found of them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tailscope.records.record import RequestRecord

NOW_NS = 1_796_000_000_000_000_001  # odd, and beyond what a float holds
SECOND = 10**9


def engine(number: int, trace: str | None = None, **values: Any) -> RequestRecord:
    arrived = values.pop("arrived_ns", NOW_NS + number)
    return RequestRecord(
        "vllm",
        "engine",
        arrived,
        span_id=f"e{number:015x}",
        trace_id=trace or f"{number + 1:032x}",
        **{"outcome": "ok", **values},
    )


def gateway(number: int, trace: str | None = None, **values: Any) -> RequestRecord:
    arrived = values.pop("arrived_ns", NOW_NS + number)
    return RequestRecord(
        "litellm",
        "gateway",
        arrived,
        **{
            "span_id": f"a{number:015x}",
            "trace_id": trace or f"{number + 1:032x}",
            "tenant": f"t{number}",
            "outcome": "ok",
            **values,
        },
    )


def values(frame: pd.DataFrame, name: str) -> list[Any]:
    """A column with None where nothing is known."""
    return [None if pd.isna(value) else value for value in frame[name].tolist()]
