"""Mooncake's traces: arrivals in milliseconds from the start, lengths, prefix blocks.

https://github.com/kvcache-ai/Mooncake
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.records.formats.model import MILLISECONDS, Clock, Field, Format

FORMAT = Format(
    name="mooncake",
    title="Mooncake trace",
    role="gateway",
    recognise=("timestamp", "input_length", "output_length"),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(("timestamp",), MILLISECONDS),
            "input_tokens": Field(("input_length",)),
            "output_tokens": Field(("output_length",)),
            "priority": Field(("priority",)),
        }
    ),
    clock=Clock.FILE,
)
