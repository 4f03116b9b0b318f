"""The bundled recording, played without end, and the engine of it."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import urllib3

from tailscope.demo.engine import RecordedEngine
from tailscope.demo.exposition import Exposition
from tailscope.demo.recording import BUNDLED, Piece, Recording, RecordingError, Scrape, load
from tailscope.demo.replay import Replay
from tailscope.demo.schedule import Pass, Schedule
from tailscope.records.jsonl import parse_line
from tailscope.records.record import COLUMNS
from tests.demorecording import (
    DEADLINE,
    HISTORY_NS,
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
    early = [export for export in recording.exports if export.at_ns < recording.whole.start_ns]
    assert 1 <= len(early) <= 2
    assert not requests([export.body for export in early])
    assert recording.whole.length_ns == pytest.approx(60.1e9, abs=0.1e9)
    assert "vLLM 0.32 (run of 60 s" in recording.notice
    assert "whole every 16 minutes; in between, its 24 calm seconds" in recording.notice


def test_calm_parts_are_calm(recording: Recording) -> None:
    """Nobody waits when one begins or ends, and the tenant of the bursts has nothing in them."""
    assert recording.calm
    for piece in recording.calm:
        assert recording.whole.start_ns <= piece.start_ns < piece.end_ns <= recording.whole.end_ns
        rows = [row for row in recording.gateway if piece.holds(row["arrived_ns"])]
        assert rows
        assert "initech" not in {row["tenant"] for row in rows}
        assert max(row["ttft_seconds"] for row in rows) < 0.5
    # One whole, and calm for as long as the app's first window is.
    assert recording.round[0] == recording.whole
    assert set(recording.round[1:]) == set(recording.calm)
    assert sum(piece.length_ns for piece in recording.round[1:]) >= 900e9


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


@pytest.mark.parametrize("damage", ["missing", "no gzip", "no json", "no scrape", "no end"])
def test_damaged_recording_is_named(tmp_path: Path, damage: str) -> None:
    for path in BUNDLED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    scrapes = tmp_path / "scrapes.jsonl.gz"
    if damage == "missing":
        scrapes.unlink()
    elif damage == "no end":
        meta = json.loads((tmp_path / "meta.json").read_text())
        meta["calm"][1].reverse()
        (tmp_path / "meta.json").write_text(json.dumps(meta))
    else:
        scrapes.write_bytes(
            {"no gzip": b"x", "no json": gzip.compress(b"{"), "no scrape": gzip.compress(b"")}[
                damage
            ]
        )
    with pytest.raises(RecordingError, match=re.escape(str(tmp_path))):
        load(tmp_path)


# Passes


def _whole(schedule: Schedule, nth: int = 0) -> Pass:
    """A pass over the whole recording."""
    whole = schedule.pieces[0]
    return next(itertools.islice((p for p in _passes(schedule) if p.piece == whole), nth, None))


def _passes(schedule: Schedule) -> Iterator[Pass]:
    return map(schedule.one, itertools.count())


def test_ids_are_new_in_each_pass_and_agree(recording: Recording, schedule: Schedule) -> None:
    replay = Replay(recording)
    seen: set[str] = set()
    for one in (_whole(schedule), _whole(schedule, 1), _whole(schedule, 3)):
        rows = [json.loads(line) for _, line in replay.rows(one)]
        found = requests([body for _, body in replay.exports(one)])
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
        list(Replay(recording).exports(Schedule.of(recording, live_ns=at, history_ns=0).one(0)))
        for at in (NOW_NS, NOW_NS, NOW_NS + recording.whole.length_ns)
    )
    assert first == again
    ours = {span.trace_id for span in requests([body for _, body in first])}
    theirs = {span.trace_id for span in requests([body for _, body in other])}
    assert not ours & theirs


def test_shift_keeps_durations_and_attributes(recording: Recording, schedule: Schedule) -> None:
    one = _whole(schedule, 1)
    new = requests([body for _, body in Replay(recording).exports(one)])
    old = requests([export.body for export in recording.exports])
    assert len(new) == len(old)
    for was, now in zip(old, new, strict=True):
        assert now.start_time_unix_nano - was.start_time_unix_nano == one.shift_ns
        assert now.end_time_unix_nano - was.end_time_unix_nano == one.shift_ns
        assert {**attributes(now), "gen_ai.request.id": ""} == {
            **attributes(was),
            "gen_ai.request.id": "",
        }
        assert (now.kind, now.status, now.flags) == (was.kind, was.status, was.flags)
    rows = [json.loads(line) for _, line in Replay(recording).rows(one)]
    changed = {"arrived_ns", "ended_ns", "trace_id", "span_id", "request_id"}
    for row, recorded in zip(rows, recording.gateway, strict=True):
        assert row["ended_ns"] - row["arrived_ns"] == recorded["ended_ns"] - recorded["arrived_ns"]
        assert {k: v for k, v in row.items() if k not in changed} == {
            k: v for k, v in recorded.items() if k not in changed
        }


def test_a_calm_pass_holds_what_arrived_in_its_piece(
    recording: Recording, schedule: Schedule
) -> None:
    replay = Replay(recording)
    for one in itertools.islice(_passes(schedule), 1, 8):
        rows = [json.loads(line) for _, line in replay.rows(one)]
        found = requests([body for _, body in replay.exports(one)])
        assert len(rows) == sum(one.piece.holds(row["arrived_ns"]) for row in recording.gateway)
        end_ns = one.begins_ns + one.piece.length_ns
        assert all(one.begins_ns <= row["arrived_ns"] < end_ns for row in rows)
        assert all(one.begins_ns <= span.start_time_unix_nano < end_ns for span in found)
        # A request that a client sent at the very edge may arrive at the engine in the next piece.
        theirs = {row["trace_id"] for row in rows}
        assert len(theirs ^ {span.trace_id.hex() for span in found}) <= 1


def test_start_up_spans_are_sent_once(recording: Recording, schedule: Schedule) -> None:
    replay = Replay(recording)
    early = [
        sum(not requests([body]) for _, body in replay.exports(schedule.one(number)))
        for number in range(8)
    ]
    assert early == [2, 0, 0, 0, 0, 0, 0, 0]


def test_passes_join_without_gap(recording: Recording, schedule: Schedule) -> None:
    passes = list(itertools.islice(_passes(schedule), 500))
    for before, after in itertools.pairwise(passes):
        assert before.begins_ns + before.piece.length_ns == after.begins_ns
    assert passes[0].begins_ns <= NOW_NS - HISTORY_NS
    wholes = [one for one in passes if one.piece == recording.whole]
    assert [one.begins_ns for one in wholes[:2]] == [
        NOW_NS - recording.whole.length_ns // 2,
        NOW_NS - recording.whole.length_ns // 2 + schedule.period_ns,
    ]
    for one in passes:
        assert schedule.position(one.begins_ns) == (one.number, one.piece.start_ns)
        assert schedule.position(one.begins_ns - 1)[0] == one.number - 1


def test_without_calm_parts_the_whole_is_repeated(recording: Recording) -> None:
    alone = replace(recording, calm=())
    schedule = Schedule.of(alone, live_ns=NOW_NS, history_ns=0)
    assert "in a loop" in alone.notice
    passes = list(itertools.islice(_passes(schedule), 3))
    assert [one.piece for one in passes] == [recording.whole] * 3
    assert passes[0].begins_ns == NOW_NS


def test_what_was_played_is_counted(schedule: Schedule) -> None:
    counts = dict.fromkeys(schedule.pieces, 0)
    for one in itertools.islice(_passes(schedule), 300):
        assert schedule.played(one.number) == counts
        counts[one.piece] += 1


def test_long_sleep_leaves_passes_out(schedule: Schedule) -> None:
    now = [NOW_NS]
    passes = schedule.passes(lambda: now[0])
    live = schedule.position(NOW_NS)[0]
    assert [next(passes).number for _ in range(live + 2)] == list(range(live + 2))
    now[0] += 100 * schedule.period_ns
    late = next(passes)
    assert late.number > live + 100 * len(schedule.pieces) - 20
    assert now[0] - late.begins_ns <= 60e9 + late.piece.length_ns
    assert next(passes).number == late.number + 1


# The recorded engine


def test_counters_go_on_over_the_edges(recording: Recording, schedule: Schedule) -> None:
    exposition = Exposition(recording.scrapes, schedule)
    whole = _whole(schedule)
    edges = [schedule.one(number).begins_ns for number in range(whole.number - 2, whole.number + 4)]
    times = sorted([*edges, *(edge - 1 for edge in edges), _whole(schedule, 1).begins_ns])
    before = series(exposition.at(times[0]))
    steps = 0
    for at_ns in times[1:]:
        after = series(exposition.at(at_ns))
        for key, (kind, value) in before.items():
            if kind in {"counter", "histogram", "summary"} and not key[0].endswith("_created"):
                assert after[key][1] >= value, (at_ns, key)
                steps += after[key][1] > value
        before = after
    assert steps > 1000


def test_counters_grow_by_the_recorded_gain(recording: Recording) -> None:
    alone = replace(recording, calm=())
    schedule = Schedule.of(alone, live_ns=NOW_NS, history_ns=0)
    exposition = Exposition(recording.scrapes, schedule)
    first, latest, last = (series(recording.scrapes[index].text) for index in (0, -2, -1))
    later = series(exposition.at(NOW_NS + 4 * schedule.period_ns - 1))
    start = series(exposition.at(NOW_NS))
    assert set(start) <= set(later)
    for key, (kind, _) in last.items():
        if kind == "gauge" or key[0].endswith("_created"):
            continue
        had = first.get(key, ("", 0.0))[1]
        assert start[key][1] == had
        expected = latest.get(key, ("", 0.0))[1] + 3 * (last[key][1] - had)
        assert later[key][1] == pytest.approx(expected, rel=1e-12)


def test_a_calm_pass_counts_what_ended_in_it(recording: Recording, schedule: Schedule) -> None:
    """Of what the engine counted, about as much as there are records."""
    exposition = Exposition(recording.scrapes, schedule)

    def done(at_ns: int) -> float:
        found = series(exposition.at(at_ns)).items()
        return sum(v for (name, _), (_, v) in found if name == "vllm:request_success_total")

    whole = next(one for one in _passes(schedule) if one.piece == recording.whole)
    begin = schedule.one(whole.number + 1).begins_ns
    counted = done(begin + 120_000_000_000) - done(begin)
    calm = sum(p.holds(r["arrived_ns"]) for p in recording.calm for r in recording.gateway)
    assert counted == pytest.approx(5 * calm, rel=0.05)
    assert done(begin) - done(whole.begins_ns) == 278


def test_gauges_and_bucket_sums_are_as_recorded(recording: Recording, schedule: Schedule) -> None:
    exposition = Exposition(recording.scrapes, schedule)
    scrape = recording.scrapes[18]
    now = series(exposition.at(_whole(schedule, 1).time(scrape.at_ns) + 1_000_000_000))
    waiting = 0.0
    for key, (kind, value) in series(scrape.text).items():
        if kind == "gauge":
            assert now[key][1] == value
            waiting += value * (key[0] == "vllm:num_requests_waiting")
    assert waiting > 0
    tokens = {key[1]: value for key, (_, value) in now.items() if "iteration_tokens" in key[0]}
    assert tokens
    inf = now["vllm:iteration_tokens_total_bucket", next(k for k in tokens if '"+Inf"' in k)][1]
    count = next(v for k, (_, v) in now.items() if k[0] == "vllm:iteration_tokens_total_count")
    assert inf == count > 0


def test_a_calm_pass_begins_with_the_scrape_of_its_begin(
    recording: Recording, schedule: Schedule
) -> None:
    """And not with the one before, when the engine was still full."""
    exposition = Exposition(recording.scrapes, schedule)
    whole = _whole(schedule)
    for number in range(1, 1 + len(recording.calm)):
        one = schedule.one(whole.number + number)
        assert one.piece in recording.calm
        text = exposition.at(one.begins_ns)
        found = re.findall(r"^vllm:num_requests_waiting\{.*\} (\S+)$", text, re.MULTILINE)
        assert found == ["0.0"]


def test_quantiles_of_a_summary_are_not_added_up(recording: Recording) -> None:
    text = '# TYPE s summary\ns{quantile="0.5"} 3.0\ns_count 10\ns_sum 4.5\n'
    start = text.replace("10", "0").replace("4.5", "0")
    scrapes = (Scrape(1, start), Scrape(2, text))
    tiny = replace(recording, whole=Piece(1, 3), calm=(), scrapes=scrapes)
    exposition = Exposition(scrapes, Schedule.of(tiny, live_ns=NOW_NS, history_ns=0))
    assert exposition.at(NOW_NS + 5).splitlines()[1:] == [
        's{quantile="0.5"} 3.0',
        "s_count 30.0",
        "s_sum 13.5",
    ]


def test_engine_answers_like_vllm(recording: Recording, schedule: Schedule) -> None:
    now = [NOW_NS]
    engine = RecordedEngine(recording, schedule, lambda: now[0])
    engine.start()
    try:
        with urllib3.PoolManager(retries=False, timeout=DEADLINE) as pool:
            answer = pool.request("GET", f"{engine.url}/metrics")
            assert answer.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
            text = Exposition(recording.scrapes, schedule).at(NOW_NS)
            assert answer.data.decode() == text
            now[0] += 30_000_000_000
            assert pool.request("GET", f"{engine.url}/metrics").data.decode() != text
            assert pool.request("GET", f"{engine.url}/version").json() == {"version": "0.32.0"}
            assert pool.request("GET", f"{engine.url}/health").status == 200
            assert pool.request("GET", f"{engine.url}/nothing").status == 404
    finally:
        engine.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(engine.url.rpartition(":")[2]))) != 0
