"""The bundled recording, played in loops, and the engine of it."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import socket
from pathlib import Path

import pytest
import urllib3

from tailscope.demo.engine import RecordedEngine
from tailscope.demo.exposition import Exposition
from tailscope.demo.recording import BUNDLED, Recording, RecordingError, Scrape, load
from tailscope.demo.replay import Replay
from tailscope.demo.schedule import Schedule
from tailscope.records.jsonl import parse_line
from tailscope.records.record import COLUMNS
from tests.demorecording import (
    DEADLINE,
    MACHINE_PATH,
    NOW_NS,
    attributes,
    recording,
    request_id,
    requests,
    schedule,
    series,
)

__all__ = ["recording", "schedule"]


# The recording


def test_bundle_is_small() -> None:
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) < 400_000


def test_bundle_names_no_machine_and_no_prompt(recording: Recording) -> None:
    texts = [path.read_bytes() for path in BUNDLED.iterdir() if path.suffix != ".gz"]
    texts += [gzip.decompress(path.read_bytes()) for path in BUNDLED.glob("*.gz")]
    texts += [export.body for export in recording.exports]
    for text in texts:
        assert not MACHINE_PATH.search(text)
        assert not re.search(rb"(?i)gen_ai\.(prompt|completion)\b|\"content\"|messages\":", text)
    for row in recording.gateway:
        assert set(row) <= set(COLUMNS)
        assert all(len(value) <= 64 for value in row.values() if isinstance(value, str))


def test_bundle_is_whole(recording: Recording) -> None:
    found = requests([export.body for export in recording.exports])
    assert len(found) == 278
    by_call = {(row["trace_id"], row["span_id"]): row for row in recording.gateway}
    assert len(by_call) == 278
    for span in found:
        row = by_call[span.trace_id.hex(), span.parent_span_id.hex()]
        assert row["request_id"] in request_id(span)
        assert row["tenant"] in {"acme", "umbrella", "initech", "globex"}
    early = [export for export in recording.exports if export.at_ns < recording.start_ns]
    assert 1 <= len(early) <= 2
    assert not requests([export.body for export in early])
    assert recording.period_ns == pytest.approx(60.1e9, abs=0.1e9)
    assert "vLLM 0.32 (run of 60 s" in recording.notice


def test_gateway_rows_are_records(recording: Recording) -> None:
    for row in recording.gateway:
        record, clamped = parse_line(json.dumps(row).encode())
        assert (record.role, record.source, record.outcome, clamped) == (
            "gateway",
            "client",
            "ok",
            0,
        )
        assert record.ended_ns is not None
        assert record.total_seconds is not None
        assert record.ttft_seconds is not None
        assert record.ttft_seconds <= record.total_seconds
        assert (record.ended_ns - record.arrived_ns) / 1e9 == pytest.approx(record.total_seconds)


@pytest.mark.parametrize("damage", ["missing", "no gzip", "no json", "no scrape"])
def test_damaged_recording_is_named(tmp_path: Path, damage: str) -> None:
    for path in BUNDLED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    scrapes = tmp_path / "scrapes.jsonl.gz"
    if damage == "missing":
        scrapes.unlink()
    else:
        scrapes.write_bytes(
            {"no gzip": b"x", "no json": gzip.compress(b"{"), "no scrape": gzip.compress(b"")}[
                damage
            ]
        )
    with pytest.raises(RecordingError, match=re.escape(str(tmp_path))):
        load(tmp_path)


# Loops


def test_ids_are_new_in_each_loop_and_agree(recording: Recording, schedule: Schedule) -> None:
    replay = Replay(recording)
    seen: set[str] = set()
    for loop in (schedule.loop(0), schedule.loop(1), schedule.loop(7)):
        rows = [json.loads(line) for _, line in replay.rows(loop)]
        found = requests([body for _, body in replay.exports(loop)])
        by_call = {(row["trace_id"], row["span_id"]): row["request_id"] for row in rows}
        ids = {span.trace_id.hex() for span in found} | {span.span_id.hex() for span in found}
        ids |= {row["request_id"] for row in rows} | {row["span_id"] for row in rows}
        assert len(ids) == 4 * 278
        assert not ids & seen
        seen |= ids
        for span in found:
            client = by_call[span.trace_id.hex(), span.parent_span_id.hex()]
            assert re.fullmatch(rf"chatcmpl-{client}|cmpl-{client}-\d+", request_id(span))


def test_ids_are_the_same_when_asked_again_and_others_in_another_run(recording: Recording) -> None:
    first, again, other = (
        list(Replay(recording).exports(Schedule.of(recording, live_ns=at, before=0).loop(0)))
        for at in (NOW_NS, NOW_NS, NOW_NS + recording.period_ns)
    )
    assert first == again
    ours = {span.trace_id for span in requests([body for _, body in first])}
    theirs = {span.trace_id for span in requests([body for _, body in other])}
    assert not ours & theirs


def test_shift_keeps_durations_and_attributes(recording: Recording, schedule: Schedule) -> None:
    loop = schedule.loop(2)
    new = requests([body for _, body in Replay(recording).exports(loop)])
    old = requests([export.body for export in recording.exports])
    assert len(new) == len(old)
    for was, now in zip(old, new, strict=True):
        assert now.start_time_unix_nano - was.start_time_unix_nano == loop.shift_ns
        assert now.end_time_unix_nano - was.end_time_unix_nano == loop.shift_ns
        assert {**attributes(now), "gen_ai.request.id": ""} == {
            **attributes(was),
            "gen_ai.request.id": "",
        }
        assert (now.kind, now.status, now.flags) == (was.kind, was.status, was.flags)
    rows = [json.loads(line) for _, line in Replay(recording).rows(loop)]
    changed = {"arrived_ns", "ended_ns", "trace_id", "span_id", "request_id"}
    for row, recorded in zip(rows, recording.gateway, strict=True):
        assert row["ended_ns"] - row["arrived_ns"] == recorded["ended_ns"] - recorded["arrived_ns"]
        assert {k: v for k, v in row.items() if k not in changed} == {
            k: v for k, v in recorded.items() if k not in changed
        }


def test_start_up_spans_are_sent_once(recording: Recording, schedule: Schedule) -> None:
    replay = Replay(recording)
    counts = [len(list(replay.exports(schedule.loop(number)))) for number in range(3)]
    assert counts == [len(recording.exports), counts[0] - 2, counts[0] - 2]


def test_loops_join_without_gap(recording: Recording, schedule: Schedule) -> None:
    loops = [schedule.loop(number) for number in range(4)]
    for before, after in itertools.pairwise(loops):
        assert before.time(recording.end_ns) == after.time(recording.start_ns)
    assert loops[2].time(recording.start_ns) == NOW_NS
    assert schedule.position(NOW_NS) == (2, recording.start_ns)
    assert schedule.position(NOW_NS - 1) == (1, recording.end_ns - 1)


def test_long_sleep_leaves_loops_out(schedule: Schedule) -> None:
    now = [NOW_NS]
    loops = schedule.loops(lambda: now[0])
    assert [next(loops).number for _ in range(3)] == [0, 1, 2]
    now[0] += 100 * schedule.period_ns
    assert [next(loops).number, next(loops).number] == [101, 102]


# The recorded engine


def test_counters_go_on_over_the_edges(recording: Recording) -> None:
    exposition = Exposition(recording.scrapes)
    times = [scrape.at_ns for scrape in recording.scrapes]
    before = series(exposition.at(0, times[0]))
    assert exposition.at(0, times[0]) == recording.scrapes[0].text
    steps = 0
    for loop in range(3):
        for at_ns in times:
            after = series(exposition.at(loop, at_ns))
            for key, (kind, value) in before.items():
                if kind in {"counter", "histogram", "summary"} and not key[0].endswith("_created"):
                    assert after[key][1] >= value, (loop, key)
                    steps += after[key][1] > value
            before = after
    assert steps > 1000


def test_counters_grow_by_the_recorded_gain(recording: Recording) -> None:
    exposition = Exposition(recording.scrapes)
    first, last = (series(recording.scrapes[index].text) for index in (0, -1))
    later = series(exposition.at(3, recording.end_ns))
    assert set(later) == set(last)
    for key, (kind, value) in last.items():
        gained = value - first.get(key, ("", 0.0))[1]
        if kind == "gauge" or key[0].endswith("_created"):
            assert later[key][1] == value
        else:
            assert later[key][1] == pytest.approx(value + 3 * gained, rel=1e-12)
    done = ("vllm:request_success_total", '"length"')
    assert sum(
        v for (n, labels), (_, v) in later.items() if n == done[0] and done[1] in labels
    ) == (4 * 278)


def test_gauges_and_bucket_sums_are_as_recorded(recording: Recording) -> None:
    exposition = Exposition(recording.scrapes)
    scrape = recording.scrapes[15]
    now = series(exposition.at(4, scrape.at_ns + 1_000_000_000))
    for key, (kind, value) in series(scrape.text).items():
        if kind == "gauge":
            assert now[key][1] == value
    tokens = {key[1]: value for key, (_, value) in now.items() if "iteration_tokens" in key[0]}
    assert tokens
    inf = now["vllm:iteration_tokens_total_bucket", next(k for k in tokens if '"+Inf"' in k)][1]
    count = next(v for k, (_, v) in now.items() if k[0] == "vllm:iteration_tokens_total_count")
    assert inf == count > 0


def test_quantiles_of_a_summary_are_not_added_up() -> None:
    text = '# TYPE s summary\ns{quantile="0.5"} 3.0\ns_count 10\ns_sum 4.5\n'
    start = text.replace("10", "0").replace("4.5", "0")
    exposition = Exposition([Scrape(1, start), Scrape(2, text)])
    assert exposition.at(2, 2).splitlines()[1:] == [
        's{quantile="0.5"} 3.0',
        "s_count 30.0",
        "s_sum 13.5",
    ]


def test_engine_answers_like_vllm(recording: Recording, schedule: Schedule) -> None:
    now = [NOW_NS - 2 * schedule.period_ns]
    engine = RecordedEngine(recording, schedule, lambda: now[0])
    engine.start()
    try:
        with urllib3.PoolManager(retries=False, timeout=DEADLINE) as pool:
            answer = pool.request("GET", f"{engine.url}/metrics")
            assert answer.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
            assert answer.data.decode() == recording.scrapes[0].text
            now[0] += 30_000_000_000
            later = pool.request("GET", f"{engine.url}/metrics").data.decode()
            assert later in {scrape.text for scrape in recording.scrapes[10:20]}
            assert pool.request("GET", f"{engine.url}/version").json() == {"version": "0.32.0"}
            assert pool.request("GET", f"{engine.url}/health").status == 200
            assert pool.request("GET", f"{engine.url}/nothing").status == 404
    finally:
        engine.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(engine.url.rpartition(":")[2]))) != 0
