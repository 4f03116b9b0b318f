"""Segments, their sealing, and what is left of them after a fault."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailscope.records.journal import Journal, JournalError
from tailscope.records.retention import expire
from tailscope.records.schema import VERSION
from tailscope.records.sealing import seal
from tailscope.records.segments import Segment, batches, frame, frames, listing, sweep
from tests.process import environment

SCHEMA = pa.schema([("n", pa.int64())], {"tailscope.schema": VERSION})
NEWER = SCHEMA.with_metadata({"tailscope.schema": str(int(VERSION) + 1)})


def batch(*numbers: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=schema)


def numbers(path: Path) -> list[int]:
    return [n for found in batches(path) for n in found.column(0).to_pylist()]


def everything(folder: Path) -> list[int]:
    """The rows of a folder, as a reader finds them."""
    sealed, segments = listing(folder)
    rows = [n for file in sealed for n in pq.read_table(file.path)["n"].to_pylist()]
    return rows + [n for segment in segments for n in numbers(segment.path)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path, SCHEMA)
    yield journal
    journal.roll()


def one_segment(journal: Journal, *rows: int) -> Path:
    for row in rows:
        journal.append(batch(row))
    journal.roll()
    return listing(journal.folder)[1][-1].path


def test_what_is_appended_is_read_in_order(journal: Journal) -> None:
    journal.append(batch(1, 2))
    journal.append(batch(3))
    assert numbers(journal.folder / "0000000001.journal") == [1, 2, 3]


def test_a_torn_tail_is_left_out_wherever_it_is_torn(journal: Journal, tmp_path: Path) -> None:
    whole = one_segment(journal, 1, 2, 3)
    ends = [offset for offset, _ in frames(whole)]
    data = whole.read_bytes()
    torn = tmp_path / "torn"
    for length in range(ends[-2], ends[-1]):
        torn.write_bytes(data[:length])
        assert numbers(torn) == [1, 2], length
        assert [offset for offset, _ in frames(torn)] == ends[:-1]
    torn.write_bytes(data)
    assert numbers(torn) == [1, 2, 3]


def test_a_tail_may_end_in_zeros_or_anything(journal: Journal) -> None:
    path = one_segment(journal, 1)
    for tail in (b"\0" * 100, b"tsj1", b"tsj1" + b"\xff" * 8, os.urandom(50)):
        data = path.read_bytes()
        path.write_bytes(data + tail)
        assert numbers(path) == [1]
        path.write_bytes(data)


def test_a_flipped_bit_costs_one_frame_only(journal: Journal, tmp_path: Path) -> None:
    whole = one_segment(journal, 1, 2, 3)
    ends = [offset for offset, _ in frames(whole)]
    data = whole.read_bytes()
    flipped = tmp_path / "flipped"
    for position in range(ends[1], ends[2]):
        for bit in (1, 0x80):
            broken = bytearray(data)
            broken[position] ^= bit
            flipped.write_bytes(broken)
            assert numbers(flipped) == [1, 3], (position, bit)


def test_a_damaged_segment_is_told(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    path = one_segment(journal, 1, 2)
    data = bytearray(path.read_bytes())
    data[next(iter(frames(path)))[0] + 20] ^= 1
    path.write_bytes(data)
    assert numbers(path) == [2]
    assert "0000000001.journal" in caplog.text
    assert "are damaged" in caplog.text


def test_reading_goes_on_where_it_stopped(journal: Journal) -> None:
    journal.append(batch(1))
    path = journal.folder / "0000000001.journal"
    *_, (offset, _) = frames(path)
    assert list(frames(path, offset)) == []
    journal.append(batch(2))
    assert len(list(frames(path, offset))) == 1


def test_a_restart_begins_a_segment_of_its_own(tmp_path: Path) -> None:
    for row in (1, 2):
        journal = Journal(tmp_path, SCHEMA)
        journal.append(batch(row))
        journal.roll()
    assert names(tmp_path) == ["0000000001.journal", "0000000002.journal"]
    assert everything(tmp_path) == [1, 2]


def test_numbers_go_on_behind_sealed_files(tmp_path: Path) -> None:
    (tmp_path / "0000000003-0000000007.parquet").touch()
    journal = Journal(tmp_path, SCHEMA)
    journal.append(batch(1))
    assert (tmp_path / "0000000008.journal").exists()
    journal.roll()


def test_the_open_segment_is_not_closed(journal: Journal) -> None:
    journal.append(batch(1))
    assert journal.closed() == []
    journal.roll()
    assert [segment.number for segment in journal.closed()] == [1]


# Sealing


def test_sealing_keeps_every_row_once(journal: Journal) -> None:
    one_segment(journal, 1, 2)
    one_segment(journal, 3)
    journal.append(batch(4))
    sealed = seal(journal.folder, journal.closed(), SCHEMA)
    assert sealed == journal.folder / "0000000001-0000000002.parquet"
    assert names(journal.folder) == ["0000000001-0000000002.parquet", "0000000003.journal"]
    assert everything(journal.folder) == [1, 2, 3, 4]


def test_nothing_becomes_of_segments_without_rows(journal: Journal) -> None:
    (journal.folder / "0000000001.journal").touch()
    assert seal(journal.folder, [Segment(1, journal.folder / "0000000001.journal")], SCHEMA) is None
    assert names(journal.folder) == []


def test_a_crash_after_the_rename_repeats_nothing(journal: Journal) -> None:
    first, second = one_segment(journal, 1), one_segment(journal, 2)
    kept = {path: path.read_bytes() for path in (first, second)}
    seal(journal.folder, journal.closed(), SCHEMA)
    for path, data in kept.items():  # as if the process had ended before it removed them
        path.write_bytes(data)
    assert everything(journal.folder) == [1, 2]
    sweep(journal.folder)
    assert names(journal.folder) == ["0000000001-0000000002.parquet"]


def test_a_wider_sealed_file_covers_a_narrower_one(journal: Journal) -> None:
    one_segment(journal, 1)
    seal(journal.folder, journal.closed(), SCHEMA)
    narrow = journal.folder / "0000000001-0000000001.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), journal.folder / "0000000001-0000000002.parquet")
    assert everything(journal.folder) == [1, 2]
    sweep(journal.folder)
    assert not narrow.exists()


def test_a_half_written_sealed_file_is_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "0000000001-0000000002.parquet.tmp").write_bytes(b"half")
    assert everything(tmp_path) == []
    Journal(tmp_path, SCHEMA)
    assert names(tmp_path) == []


def test_sealing_ends_when_it_is_told_to(journal: Journal) -> None:
    one_segment(journal, 1, 2)
    assert seal(journal.folder, journal.closed(), SCHEMA, lambda: True) is None
    assert names(journal.folder) == ["0000000001.journal"]
    assert everything(journal.folder) == [1, 2]


def test_an_older_segment_lacks_columns_and_is_sealed_with_nulls(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SCHEMA)
    one_segment(journal, 1)
    wider = pa.schema([("n", pa.int64()), ("tenant", pa.string())], SCHEMA.metadata)
    sealed = seal(tmp_path, journal.closed(), wider)
    assert sealed is not None
    assert pq.read_table(sealed).to_pylist() == [{"n": 1, "tenant": None}]


def test_a_newer_segment_is_left_as_it_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NEWER)
    journal.append(batch(1, schema=NEWER))
    journal.roll()
    with pytest.raises(JournalError, match="install a newer tailscope"):
        seal(tmp_path, journal.closed(), SCHEMA)
    assert names(tmp_path) == ["0000000001.journal"]


def test_a_frame_that_is_whole_but_no_batch_does_not_quote_itself(journal: Journal) -> None:
    path = one_segment(journal, 1)
    with path.open("ab") as file:
        file.write(frame(b"s3cret" * 100))
    with pytest.raises(JournalError, match="cannot seal") as caught:
        seal(journal.folder, journal.closed(), SCHEMA)
    assert "s3cret" not in str(caught.value)
    assert path.exists()


# Faults of the disk


def limited(tmp_path: Path, program: str) -> str:
    """Run a program that may write files of 4 KiB only; returns what it prints."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    head = """
import signal, sys
from pathlib import Path
import pyarrow as pa
from tailscope.records.journal import Journal, JournalError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
schema = pa.schema([("n", pa.int64())], {"tailscope.schema": "1"})

def batch(*rows):
    return pa.RecordBatch.from_arrays([pa.array(rows)], schema=schema)

"""
    done = subprocess.run(
        [sys.executable, "-c", head + program, str(tmp_path)],
        preexec_fn=limit,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    told = limited(
        tmp_path,
        """
journal = Journal(folder, schema)
journal.append(batch(1))
for _ in range(3):
    try:
        journal.append(batch(*range(10_000)))
    except JournalError as error:
        print(error)
journal.append(batch(2))
journal.append(batch(3))
""",
    )
    assert told.splitlines() == [f"cannot write to {tmp_path}: {os.strerror(errno.EFBIG)}"] * 3
    assert everything(tmp_path) == [1, 2, 3]
    # What was begun and came to nothing is not left about.
    assert len(names(tmp_path)) == 2


def test_a_segment_that_is_deleted_is_begun_anew(journal: Journal) -> None:
    journal.append(batch(1))
    (journal.folder / "0000000001.journal").unlink()
    journal.append(batch(2))
    assert everything(journal.folder) == [2]


def test_a_folder_that_is_deleted_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    journal = Journal(folder, SCHEMA)
    journal.append(batch(1))
    (folder / "0000000001.journal").unlink()
    folder.rmdir()
    journal.append(batch(2))
    assert everything(folder) == [2]
    journal.roll()


# Retention


def sealed_files(folder: Path, *ages: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = []
    for number, age in enumerate(ages, 1):
        path = folder / f"{number:010d}-{number:010d}.parquet"
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 - age, 1000 - age))
        files.append(path)
    return files


def test_old_files_go(tmp_path: Path) -> None:
    old, new = sealed_files(tmp_path, 100, 5)
    expire([tmp_path], 1000, 50, None)
    assert (old.exists(), new.exists()) == (False, True)


def test_the_oldest_go_over_all_tables_while_there_are_too_many_bytes(tmp_path: Path) -> None:
    a_old, a_new = sealed_files(tmp_path / "a", 90, 10)
    b_old, b_new = sealed_files(tmp_path / "b", 80, 20)
    (tmp_path / "a" / "0000000003.journal").write_bytes(b"x" * 50)
    expire([tmp_path / "a", tmp_path / "b"], 1000, None, 250)
    assert [path.exists() for path in (a_old, b_old, b_new, a_new)] == [False, False, True, True]


def test_without_limits_nothing_goes(tmp_path: Path) -> None:
    sealed_files(tmp_path, 10**6)
    expire([tmp_path, tmp_path / "missing"], 1e9, None, None)
    assert len(names(tmp_path)) == 1
