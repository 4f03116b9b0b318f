"""Cuts a captured run to a recording that can be shown: ``python -m tailscope.demo.cut``.

A capture is a folder with what was seen from outside while a load generator ran against a server::

    metrics_scrapes.jsonl.gz   {"t", "text"}: /metrics every second or two; t in Unix seconds
    metrics_after.txt          /metrics after the last request
    phases.json                [{"phase", "t"}, ...]; the run is from the first to the last
    endpoints.jsonl            {"path", "body"}: among others the answer of /version
    otlp/batches.jsonl         {"file", "recv_unix"}, and the files: ExportTraceServiceRequest
    client_requests.jsonl      one request a line, as its client saw it

What a recording leaves out: the times of the single chunks, resource attributes other than the
engine's own, all attributes of start-up spans, all but the last two start-up requests, and the
folders of label values that are paths.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailscope.demo.recording import Export, Piece, Recording, Scrape, ended_ns, save
from tailscope.records.outcome import of_status

_START_UP_REQUESTS = 2
_RESOURCE = ("service.", "telemetry.", "vllm.")
# The routes of the server's own API are the one kind of path that is to stay.
_PATH_LABEL = re.compile(r'(?<=[{,])(?!handler=)(\w+)="[/~](?:[^"]*/)?([^"/]*)"')
_MODEL_LABEL = re.compile(r'model_name="([^"]+)"')


def cut(capture: Path, calm: Sequence[tuple[float, float]] = ()) -> Recording:
    """Cut a capture to a recording.

    Args:
        capture: The folder.
        calm: Parts of the run in which nothing happens, seconds from its start.

    Raises:
        OSError: If a file of the capture is missing.
        ValueError: If a file of the capture is damaged.
    """
    phases = json.loads((capture / "phases.json").read_text(encoding="utf-8"))
    start_ns, end_ns = _ns(phases[0]["t"]), _ns(phases[-1]["t"])
    scrapes = tuple(_scrapes(capture, end_ns))
    found = _MODEL_LABEL.search(scrapes[-1].text)
    return Recording(
        engine=f"vLLM {_version(capture)}",
        whole=Piece(start_ns, end_ns),
        calm=tuple(Piece(start_ns + _ns(begin), start_ns + _ns(end)) for begin, end in calm),
        scrapes=scrapes,
        exports=tuple(_exports(capture, start_ns)),
        gateway=tuple(
            sorted(
                (
                    _gateway_row(row, found[1] if found else None)
                    for row in _jsonl(capture / "client_requests.jsonl")
                ),
                key=ended_ns,
            )
        ),
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _version(capture: Path) -> str:
    for row in _jsonl(capture / "endpoints.jsonl"):
        if row["path"] == "/version":
            return str(json.loads(row["body"])["version"])
    raise ValueError("endpoints.jsonl has no answer of /version")


def _scrapes(capture: Path, end_ns: int) -> Iterator[Scrape]:
    with gzip.open(capture / "metrics_scrapes.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Scrape(_ns(row["t"]), _PATH_LABEL.sub(r'\1="\2"', row["text"]))
    last = (capture / "metrics_after.txt").read_text(encoding="utf-8")
    yield Scrape(end_ns, _PATH_LABEL.sub(r'\1="\2"', last))


def _exports(capture: Path, start_ns: int) -> Iterator[Export]:
    early: list[Export] = []
    for row in _jsonl(capture / "otlp" / "batches.jsonl"):
        body = _without_surroundings((capture / "otlp" / row["file"]).read_bytes())
        export = Export(_ns(row["recv_unix"]), body)
        if export.at_ns < start_ns:
            early.append(export)
        else:
            yield from early[-_START_UP_REQUESTS:]
            early.clear()
            yield export


def _without_surroundings(body: bytes) -> bytes:
    """Drop what a span says of the machine that it ran on."""
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        kept = [item for item in resource.resource.attributes if item.key.startswith(_RESOURCE)]
        del resource.resource.attributes[:]
        resource.resource.attributes.extend(kept)
        for scope in resource.scope_spans:
            for span in scope.spans:
                if span.name != "llm_request":
                    del span.attributes[:]
    return request.SerializeToString()


def _gateway_row(row: dict[str, Any], model: str | None) -> dict[str, Any]:
    """Write what a client saw of one request as a gateway's request record."""
    usage, reason = row.get("usage") or {}, row.get("finish_reason")
    arrived_ns = _ns(row["start_unix"])
    record = {
        "source": "client",
        "role": "gateway",
        "arrived_ns": arrived_ns,
        "ended_ns": arrived_ns + _ns(row["t_end"]) if row.get("t_end") is not None else None,
        "span_id": row.get("parent_span_id"),
        "trace_id": row.get("trace_id"),
        "request_id": row.get("request_id"),
        "tenant": row.get("tenant"),
        "model": model,
        "ttft_seconds": row.get("t_first"),
        "total_seconds": row.get("t_end"),
        "input_tokens": usage.get("prompt_tokens"),
        "cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "max_tokens": row.get("max_tokens"),
        "outcome": _outcome(row),
        "status": row.get("status"),
        "finish_reason": reason if isinstance(reason, str) else None,  # a list where n > 1
        "session": row.get("user"),
        "attempt": 1,
        "priority": row.get("priority"),
    }
    return {name: value for name, value in record.items() if value is not None}


def _outcome(row: dict[str, Any]) -> str | None:
    if row.get("aborted"):
        return "aborted"
    in_stream = row.get("sse_error") or {}
    told = of_status(in_stream.get("code", row.get("status")))
    return told if told != "ok" or row.get("finish_reason") else None


def _calm(text: str) -> tuple[float, float]:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)", text)
    if found is None or float(found[1]) >= float(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no part of the run such as 10-14")
    return float(found[1]), float(found[2])


def main(arguments: list[str] | None = None) -> int:
    """Cut one capture."""
    parser = argparse.ArgumentParser(
        prog="python -m tailscope.demo.cut",
        description="Cut a captured run to a recording for `tailscope demo --recording`.",
    )
    parser.add_argument("capture", type=Path, help="folder with the capture")
    parser.add_argument("recording", type=Path, help="folder to write; made if it is missing")
    parser.add_argument(
        "--calm",
        type=_calm,
        action="append",
        default=[],
        metavar="FROM-TO",
        help="part of the run in which nothing happens, in seconds from its start, for example "
        "10-14; may be given several times. These are repeated between two plays of the whole",
    )
    chosen = parser.parse_args(arguments)
    try:
        save(cut(chosen.capture, chosen.calm), chosen.recording)
    except (OSError, ValueError, KeyError) as error:
        print(f"cannot cut {chosen.capture}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
