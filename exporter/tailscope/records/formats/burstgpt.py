"""BurstGPT: arrivals in seconds from the start, model, lengths; in its newer files the total time.

A row without response tokens is one that failed. https://github.com/HPMLL/BurstGPT
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tailscope.records.formats.model import Clock, Field, Format, OutcomeRule

FORMAT = Format(
    name="burstgpt",
    title="BurstGPT trace",
    role="gateway",
    recognise=("Timestamp", "Model", "Request tokens", "Response tokens"),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(("Timestamp",)),
            "model": Field(("Model",)),
            "total_seconds": Field(("Elapsed time",)),
            "input_tokens": Field(("Request tokens",)),
            "output_tokens": Field(("Response tokens",)),
        }
    ),
    outcomes=(OutcomeRule("Response tokens", re.compile(r"0(\.0)?"), "error"),),
    clock=Clock.FILE,
)
