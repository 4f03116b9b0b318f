"""What the demo's page says: worked out from what it plays, by the ordinary triage."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tailscope import cli
from tailscope.catalogue.engines import engines
from tailscope.demo.recording import Recording
from tailscope.demo.replay import Replay
from tailscope.demo.schedule import Schedule
from tailscope.exporter.otlp import read_protobuf
from tailscope.exporter.spans import SpanReader
from tests.demorecording import NOW_NS, recording

__all__ = ["recording"]

_HISTORY_NS = 900 * 10**9


def _file(recording: Recording, folder: Path, end_ns: int) -> Path:
    """The request records of the last 15 minutes before a time."""
    schedule = Schedule.of(recording, live_ns=NOW_NS, history_ns=_HISTORY_NS)
    replay, reader = Replay(recording), SpanReader(engines())
    rows: list[dict[str, Any]] = []
    first = max(schedule.position(end_ns - _HISTORY_NS)[0], 0)
    for number in range(first, schedule.position(end_ns)[0] + 1):
        one = schedule.one(number)
        rows += [json.loads(line) for due_ns, line in replay.rows(one) if due_ns <= end_ns]
        for due_ns, body in replay.exports(one):
            if due_ns <= end_ns:
                found = reader.read(read_protobuf(body)).records
                rows += [{**dataclasses.asdict(row), "server": "demo"} for row in found]
    path = folder / "requests.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_the_tenant_of_the_bursts_is_accused_as_the_page_opens(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(recording, tmp_path, NOW_NS + 5 * 10**9)
    assert cli.main(["diagnose", "--requests", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    accused = [one for one in said["suspects"] if one["accused"]]
    assert [one["name"] for one in accused] == ["initech"]
    assert accused[0]["grade"] in {"A", "B"}
    assert accused[0]["removal_share"] > 0.7
    assert said["slow"]["by_stage"]["queue"] > 0
    assert said["cause"]["evidence"]
    assert said["fixes"]
    assert "at least 20 times as many requests" in said["verdict"]["text"]
