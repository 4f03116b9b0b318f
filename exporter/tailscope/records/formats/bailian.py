"""The Qwen-Bailian usage traces: turns of chats, arrivals in seconds from the start.

https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon
"""

from __future__ import annotations

from types import MappingProxyType

from tailscope.records.formats.model import Clock, Field, Format

FORMAT = Format(
    name="bailian",
    title="Qwen-Bailian usage trace",
    role="gateway",
    recognise=("chat_id", "timestamp", "input_length", "output_length", "turn"),
    fields=MappingProxyType(
        {
            "arrived_ns": Field(("timestamp",)),
            "request_id": Field(("chat_id",)),
            "input_tokens": Field(("input_length",)),
            "output_tokens": Field(("output_length",)),
        }
    ),
    clock=Clock.FILE,
)
