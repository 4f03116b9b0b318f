"""Small files become one, and nobody who reads notices."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailscope.records import compaction
from tailscope.records.compaction import compact
from tailscope.records.journal import Journal, JournalError
from tailscope.records.reader import Reader
from tailscope.records.sealing import seal
from tailscope.records.segments import listing, sweep
from tailscope.records.store import Store
from tailscope.records.wallclock import DOUBT_SECONDS, WallClock
from tests.process import until
from tests.test_journal import NEWER, SCHEMA, batch, everything, names
from tests.test_store import kept, record

HOUR = 3600
LATER = 100 * HOUR


def seal_one(folder: Path, row: int, when: float) -> Path:
    journal = Journal(folder, SCHEMA)
    journal.append(batch(row))
    journal.roll()
    path = seal(folder, journal.closed(), SCHEMA)
    assert path is not None
    os.utime(path, (when, when))
    return path


def test_those_of_an_hour_become_one(tmp_path: Path) -> None:
    for row, when in enumerate((10, 20, HOUR - 1, HOUR, HOUR + 5, 3 * HOUR), 1):
        seal_one(tmp_path, row, when)
    compact(tmp_path, SCHEMA, LATER)
    assert names(tmp_path) == [
        f"{first:010d}-{last:010d}.parquet" for first, last in ((1, 3), (4, 5), (6, 6))
    ]
    assert everything(tmp_path) == [1, 2, 3, 4, 5, 6]
    times = [int(file.path.stat().st_mtime) for file in listing(tmp_path)[0]]
    assert times == [HOUR - 1, HOUR + 5, 3 * HOUR], "retention goes by the newest of each"
    before = names(tmp_path)
    compact(tmp_path, SCHEMA, LATER)
    assert names(tmp_path) == before


def test_the_present_hour_waits_unless_they_are_many(tmp_path: Path) -> None:
    for row in range(16):
        seal_one(tmp_path, row, 10)
    compact(tmp_path, SCHEMA, HOUR - 1)
    assert len(names(tmp_path)) == 16
    seal_one(tmp_path, 16, 10)
    compact(tmp_path, SCHEMA, HOUR - 1)
    assert names(tmp_path) == ["0000000001-0000000017.parquet"]
    assert everything(tmp_path) == list(range(17))


def test_a_segment_between_two_files_is_not_covered(tmp_path: Path) -> None:
    seal_one(tmp_path, 1, 10)
    journal = Journal(tmp_path, SCHEMA)
    journal.append(batch(2))
    journal.roll()
    pq.write_table(pa.table({"n": [3]}, SCHEMA), tmp_path / "0000000003-0000000003.parquet")
    os.utime(tmp_path / "0000000003-0000000003.parquet", (10, 10))
    compact(tmp_path, SCHEMA, LATER)
    assert sorted(everything(tmp_path)) == [1, 2, 3]
    assert len(names(tmp_path)) == 3


def test_files_do_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [seal_one(tmp_path, row, 10).stat().st_size for row in range(6)]
    monkeypatch.setattr(compaction, "_MAX_BYTES", 2 * max(sizes))
    compact(tmp_path, SCHEMA, LATER)
    assert len(names(tmp_path)) == 3
    assert everything(tmp_path) == list(range(6))


def test_a_crash_before_the_old_files_are_removed_repeats_nothing(tmp_path: Path) -> None:
    old = {path: path.read_bytes() for path in (seal_one(tmp_path, row, 10) for row in (1, 2))}
    compact(tmp_path, SCHEMA, LATER)
    for path, data in old.items():
        path.write_bytes(data)
    assert everything(tmp_path) == [1, 2]
    sweep(tmp_path)
    assert names(tmp_path) == ["0000000001-0000000002.parquet"]


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_it_ends_when_it_is_told_to(tmp_path: Path, asked: int) -> None:
    for row in (1, 2, 3):
        seal_one(tmp_path, row, 10)
    answers = iter([False] * asked)
    compact(tmp_path, SCHEMA, LATER, lambda: next(answers, True))
    assert len(names(tmp_path)) == 3
    assert everything(tmp_path) == [1, 2, 3]


def test_a_file_that_cannot_be_read_costs_no_row(tmp_path: Path) -> None:
    seal_one(tmp_path, 1, 10)
    newer = seal_one(tmp_path, 2, 10)
    pq.write_table(pa.table({"n": [2]}, NEWER), newer)
    os.utime(newer, (10, 10))
    with pytest.raises(JournalError, match="install a newer tailscope"):
        compact(tmp_path, SCHEMA, LATER)
    assert everything(tmp_path) == [1, 2]


def test_a_store_that_is_often_restarted_is_one_file_an_hour_and_is_read_meanwhile(
    tmp_path: Path,
) -> None:
    reader = Reader(tmp_path)
    for number in range(5):
        store = Store(tmp_path)
        store.submit([record(number)]).result(60)
        # The open one may be sealed as well: it is so when an hour ends.
        until(lambda: len(listing(tmp_path / "requests")[1]) <= 1, "what was left is sealed")
        assert len(reader.requests()) == number + 1
        store.close()
    later = Store(tmp_path, now=lambda: 4e9)
    until(lambda: one_an_hour(tmp_path / "requests"))
    later.close()
    assert kept(tmp_path) == list(range(5))
    assert len(reader.requests()) == 5


def one_an_hour(folder: Path) -> bool:
    sealed, segments = listing(folder)
    hours = [file.path.stat().st_mtime // HOUR for file in sealed]
    return not segments and len(set(hours)) == len(hours) > 0


# A clock that is set


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_clock_that_jumps_is_doubted_for_an_hour(
    jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    running, offset = [0.0], [1e9]
    clock = WallClock(lambda: running[0] + offset[0], lambda: running[0])
    running[0] += 1e5
    assert clock.steady()
    offset[0] += jump
    with caplog.at_level(logging.WARNING):
        assert not clock.steady()
    assert f"{jump:+.0f} s" in caplog.text
    running[0] += DOUBT_SECONDS - 1
    assert not clock.steady()
    running[0] += 2
    assert clock.steady()


def test_a_clock_that_jumps_ahead_deletes_nothing(tmp_path: Path) -> None:
    clock = [1e9]
    store = Store(tmp_path, retention_seconds=60, now=lambda: clock[0])
    store.submit([record(1)]).result(60)
    clock[0] = 4e9
    until(lambda: len(listing(tmp_path / "requests")[0]) == 1, "the hour is sealed")
    store.submit([record(2)]).result(60)
    clock[0] += HOUR
    until(lambda: not listing(tmp_path / "requests")[1], "the next hour is sealed, too")
    store.close()
    assert kept(tmp_path) == [1, 2]
    clock[0] = 1e9  # and back again
    again = Store(tmp_path, now=lambda: clock[0])
    again.submit([record(3)]).result(60)
    again.close()
    assert kept(tmp_path) == [1, 2, 3]
