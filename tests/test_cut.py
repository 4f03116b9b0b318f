"""A recording cut from a capture."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from tailscope.demo import cut
from tailscope.demo.recording import BUNDLED, Recording, load, save
from tailscope.records.jsonl import parse_line
from tailscope.records.record import COLUMNS
from tests.demorecording import recording, spans

__all__ = ["recording"]


def _capture(folder: Path) -> None:
    (folder / "otlp").mkdir(parents=True)
    start = 1_795_000_000.0
    text = 'up{model_name="/home/me/llama",handler="/v1/completions"} 1.0\n'
    with gzip.open(folder / "metrics_scrapes.jsonl.gz", "wt") as file:
        file.write(json.dumps({"t": start, "text": text}) + "\n")
    (folder / "metrics_after.txt").write_text(text)
    phases = [{"phase": "a", "t": start}, {"phase": "end", "t": start + 10}]
    (folder / "phases.json").write_text(json.dumps(phases))
    version = {"path": "/version", "body": '{"version": "1.2.3"}'}
    (folder / "endpoints.jsonl").write_text(json.dumps(version) + "\n")
    batches = []
    for number, name in enumerate(["Early", "Load model", "Worker init", "llm_request"]):
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        for key in ("service.name", "host.name"):
            resource.resource.attributes.add(key=key).value.string_value = "secret"
        span = resource.scope_spans.add().spans.add(name=name, span_id=bytes([number + 1] * 8))
        span.attributes.add(key="code.file").value.string_value = "/home/me/x.py"
        (folder / "otlp" / f"{number}.binpb").write_bytes(request.SerializeToString())
        batches.append({"file": f"{number}.binpb", "recv_unix": start - 3.5 + number * 1.5})
    (folder / "otlp" / "batches.jsonl").write_text("".join(json.dumps(b) + "\n" for b in batches))
    clients = [
        {"start_unix": start + 2, "t_end": 1.5, "status": 200, "aborted": True, "tenant": "a"},
        {"start_unix": start + 1, "t_end": 0.5, "status": 503, "chunk_times": [1], "user": "u"},
        {"start_unix": start + 3, "status": None, "finish_reason": ["stop", "length"]},
    ]
    (folder / "client_requests.jsonl").write_text("".join(json.dumps(c) + "\n" for c in clients))


def test_cut_keeps_what_is_needed_and_nothing_private(tmp_path: Path) -> None:
    _capture(tmp_path / "capture")
    target = tmp_path / "recording"
    calm = ["--calm", "2-4.5", "--calm", "8-10"]
    assert cut.main([str(tmp_path / "capture"), str(target), *calm]) == 0
    recording = load(target)
    assert (recording.engine, recording.whole.length_ns) == ("vLLM 1.2.3", 10_000_000_000)
    start_ns = recording.whole.start_ns
    assert [(p.start_ns - start_ns, p.end_ns - start_ns) for p in recording.calm] == [
        (2_000_000_000, 4_500_000_000),
        (8_000_000_000, 10_000_000_000),
    ]
    assert recording.scrapes[0].text == 'up{model_name="llama",handler="/v1/completions"} 1.0\n'
    names = [span.name for export in recording.exports for span in spans(export.body)]
    assert names == ["Load model", "Worker init", "llm_request"]
    for export in recording.exports[:2]:
        assert b"/home/me" not in export.body
        assert b"host.name" not in export.body
    assert [row.get("outcome") for row in recording.gateway] == ["rejected", None, "aborted"]
    assert {row["model"] for row in recording.gateway} == {"llama"}
    for row in recording.gateway:
        assert set(row) <= set(COLUMNS)
        parse_line(json.dumps(row).encode())


def test_what_is_saved_again_is_the_same(recording: Recording, tmp_path: Path) -> None:
    save(recording, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (BUNDLED / path.name).read_bytes()


def test_cut_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cut.main([str(tmp_path), str(tmp_path / "x")]) == 2
    assert "phases.json" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["4", "4-2", "2-2", "a-b", "-1-2"])
def test_cut_refuses_what_is_no_part(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cut.main([str(tmp_path), str(tmp_path / "x"), f"--calm={part}"])
    assert ended.value.code == 2
    assert "is no part of the run such as 10-14" in capsys.readouterr().err
