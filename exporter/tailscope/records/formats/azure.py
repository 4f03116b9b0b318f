"""The Azure LLM inference traces (2023, 2024): arrivals with lengths.

https://github.com/Azure/AzurePublicDataset
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.records.formats.model import Field, Format

FORMAT = Format(
    name="azure",
    title="Azure LLM inference trace",
    role="gateway",
    recognise=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(("TIMESTAMP",)),
            "input_tokens": Field(("ContextTokens",)),
            "output_tokens": Field(("GeneratedTokens",)),
        }
    ),
)
