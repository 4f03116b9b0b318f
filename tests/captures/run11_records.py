"""Make ``run11_records.jsonl.gz``: request records of a recorded vLLM run, engine and client rows.

Run it on the folder of a recording that holds ``otlp/*.binpb`` (what vLLM sent) and
``client_requests.jsonl`` (what the client knew)::

    python tests/captures/run11_records.py RECORDING tests/captures/run11_records.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.catalogue.engines.vllm import SPANS

MODEL, SERVER = "tiny-llama", "127.0.0.1:18000"  # of the recorded command line


def _spans(folder: Path) -> Iterator[Span]:
    for path in sorted(folder.glob("otlp/*.binpb")):
        export = ExportTraceServiceRequest()
        export.ParseFromString(path.read_bytes())
        for resource in export.resource_spans:
            for scope in resource.scope_spans:
                yield from (span for span in scope.spans if span.name == SPANS.name)


def _engine_row(span: Span) -> dict[str, Any]:
    row: dict[str, Any] = {
        "source": "vllm",
        "role": "engine",
        "engine": "vllm",
        "server": SERVER,
        "model": MODEL,
        "arrived_ns": span.start_time_unix_nano,
        "ended_ns": span.end_time_unix_nano,
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex(),
        "trace_id": span.trace_id.hex(),
        "outcome": "ok",
    }
    for attribute in span.attributes:
        if column := SPANS.attributes.get(attribute.key):
            value = attribute.value
            row[column] = getattr(value, value.WhichOneof("value") or "string_value")
    for pattern in SPANS.patterns["request_id"]:
        if hit := pattern.fullmatch(row["request_id"]):
            row["request_id"] = hit[1]
            break
    return row


def _gateway_row(call: dict[str, Any]) -> dict[str, Any]:
    started = int(call["start_unix"] * 1e9)
    return {
        "source": "client",
        "role": "gateway",
        "tenant": call["tenant"],
        "arrived_ns": started,
        "span_id": call["parent_span_id"],
        "trace_id": call["trace_id"],
        "request_id": call["request_id"],
        "ttft_seconds": call["t_first"],
        "total_seconds": call["t_end"],
        "cached_tokens": call["usage"]["prompt_tokens_details"]["cached_tokens"],
        "status": call["status"],
        "finish_reason": call["finish_reason"],
        "outcome": "ok" if call["status"] == 200 and call.get("done") else "error",
    }


def main(recording: Path, target: Path) -> None:
    """Write the records of a recording, oldest first."""
    calls = (recording / "client_requests.jsonl").read_text().splitlines()
    rows = [_engine_row(span) for span in _spans(recording)]
    rows += [_gateway_row(json.loads(line)) for line in calls]
    rows.sort(key=lambda row: (row["arrived_ns"], row["role"]))
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
