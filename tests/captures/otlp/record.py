"""Make the captures of this folder from the recording of a vLLM run.

The recording's folder holds ``otlp/*.binpb`` (what vLLM sent) and, of some runs,
``client_requests.jsonl`` (what the client knew)::

    python tests/captures/otlp/record.py RECORDING tests/captures/otlp/RUN

writes ``RUN.otlp.gz``, a line of base64 for each message, and ``RUN.clients.jsonl.gz``, the
client's view as request records.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tailscope.records.outcome import of_status


def _client_row(call: dict[str, Any]) -> dict[str, Any]:
    row = {
        "source": "client",
        "role": "gateway",
        "tenant": call["tenant"],
        "arrived_ns": round(call["start_unix"] * 1e9),
        "span_id": call.get("parent_span_id"),
        "trace_id": call.get("trace_id"),
        "request_id": call.get("request_id"),
        "ttft_seconds": call.get("t_first"),
        "total_seconds": call.get("t_end"),
        "status": call.get("status"),
        "outcome": _outcome(call),
    }
    return {name: value for name, value in row.items() if value is not None}


def _outcome(call: dict[str, Any]) -> str | None:
    if call.get("aborted"):
        return "aborted"
    in_stream = call.get("sse_error") or {}
    return of_status(in_stream.get("code", call.get("status")))


def _write(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main(recording: Path, target: Path) -> None:
    """Write the captures of one run."""
    messages = sorted(recording.glob("otlp/*.binpb"))
    _write(
        target.with_name(f"{target.name}.otlp.gz"),
        (base64.b64encode(message.read_bytes()).decode() for message in messages),
    )
    calls = recording / "client_requests.jsonl"
    if calls.exists():
        rows = map(_client_row, map(json.loads, calls.read_text().splitlines()))
        _write(
            target.with_name(f"{target.name}.clients.jsonl.gz"),
            (json.dumps(row, separators=(",", ":")) for row in rows),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
