"""A file of request records that is followed as it grows."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tailscope.exporter.health import SourceError
from tailscope.exporter.intake import Intake
from tailscope.exporter.matcher import Matcher
from tailscope.exporter.sources.requestfile import RequestFileSource
from tailscope.exporter.sources.requestfiles import RequestFilesSource
from tailscope.records.errors import StoreError, StoreFull
from tailscope.records.jsonl import MAX_LINE
from tailscope.records.record import RequestRecord
from tailscope.records.translation import Translator
from tests.foreignrows import DYNAMO, LITELLM, NGINX

NOW_NS = 1_796_000_000_000_000_000


class Taken(Intake):
    """An intake without a store, which remembers what it took, and refuses when it is told to."""

    def __init__(self) -> None:
        matcher = Matcher(lambda pairs: None, expect_gateway=False)
        super().__init__(None, matcher, lambda: (None, None))
        self.ids: list[str | None] = []
        self.spans: list[str | None] = []
        self.rejected: Counter[str] = Counter()
        self.refusal: StoreError | None = None

    def accept(
        self,
        source: str,
        records: Sequence[RequestRecord],
        rejected: Counter[str] | None = None,
        clamped: int = 0,
        *,
        fuller: Sequence[RequestRecord] = (),
    ) -> Counter[str]:
        if self.refusal is not None:
            raise self.refusal
        self.ids += [record.request_id for record in records]
        self.spans += [record.span_id for record in records]
        self.rejected += rejected or Counter()
        return super().accept(source, records, rejected, clamped, fuller=fuller)


@pytest.fixture
def taken() -> Taken:
    return Taken()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


Start = Callable[..., RequestFileSource]


@pytest.fixture
def start(path: Path, tmp_path: Path, taken: Taken) -> Iterator[Start]:
    """Makes the source of an exporter that has just started."""
    started: list[RequestFileSource] = []

    def make(notes: Path | None = tmp_path, **more: Any) -> RequestFileSource:
        started.append(RequestFileSource(path, taken, notes, **more))
        return started[-1]

    yield make
    for source in started:
        source.close()


@pytest.fixture
def source(start: Start) -> RequestFileSource:
    return start()


def line(number: int, **more: Any) -> str:
    row = {"arrived_ns": NOW_NS + number, "request_id": str(number), "tenant": "a", **more}
    return json.dumps(row) + "\n"


def add(path: Path, *texts: str | bytes) -> None:
    with path.open("ab") as file:
        for text in texts:
            file.write(text if isinstance(text, bytes) else text.encode())


def test_lines_are_taken_as_they_come(source: RequestFileSource, path: Path, taken: Taken) -> None:
    add(path, line(1), line(2))
    assert source.read() == f"follows {path}"
    add(path, line(3))
    source.read()
    source.read()
    assert taken.ids == ["1", "2", "3"]


def test_a_half_line_waits_for_its_end(source: RequestFileSource, path: Path, taken: Taken) -> None:
    text = line(1)
    for length in range(0, len(text), 7):
        add(path, text[length : length + 7])
        source.read()
        assert taken.ids == (["1"] if length + 7 >= len(text) else [])
    assert not taken.rejected


def test_a_half_line_is_not_lost_in_a_restart(start: Start, path: Path, taken: Taken) -> None:
    add(path, line(1), line(2)[:20])
    first = start()
    first.read()
    first.close()
    add(path, line(2)[20:])
    start().read()
    assert taken.ids == ["1", "2"]


def test_gzip_members_are_taken_as_they_are_added(
    start: Start, tmp_path: Path, path: Path, taken: Taken
) -> None:
    packed = path.with_suffix(".jsonl.gz")
    notes = tmp_path / "notes"
    notes.mkdir()

    def running() -> RequestFileSource:
        return RequestFileSource(packed, taken, notes)

    source = running()
    for number in range(3):
        add(packed, gzip.compress(f"{line(2 * number)}{line(2 * number + 1)}".encode()))
        source.read()
        source.read()
    whole = gzip.compress((line(6) + line(7)).encode())
    add(packed, whole[:-20])
    source.read()
    source.close()
    source = running()
    add(packed, whole[-20:])
    source.read()
    assert taken.ids == [str(number) for number in range(8)]
    packed.write_bytes(gzip.compress(line(8).encode()))
    source.read()
    assert taken.ids[8:] == ["8"], "it was cut and begun anew"
    add(packed, gzip.compress(line(9).encode()), b"no gzip at all")
    source.read()
    assert taken.ids[9:] == ["9"], "what comes before the damage is taken"
    with pytest.raises(SourceError, match="no gzip"):
        source.read()
    source.close()


def test_gzip_that_was_there_before_is_passed_over(path: Path, taken: Taken) -> None:
    packed = path.with_suffix(".jsonl.gz")
    add(packed, gzip.compress(line(1).encode()))
    source = RequestFileSource(packed, taken, None)
    source.read()
    add(packed, gzip.compress(line(2).encode()))
    source.read()
    source.close()
    assert taken.ids == ["2"]


def test_equal_lines_without_an_id_are_told_apart_by_their_place(
    start: Start, path: Path, taken: Taken
) -> None:
    rejected = {**NGINX, "http_x_request_id": "", "http_traceparent": "", "status": "503"}
    add(path, *[json.dumps(rejected) + "\n"] * 3)
    start().read()
    start(None, fresh=True).read()
    assert len(taken.spans) == 6
    assert len(set(taken.spans)) == 3, "read again they are the same"


def test_a_restart_goes_on_where_it_was(start: Start, path: Path, taken: Taken) -> None:
    for number in range(3):
        add(path, line(number))
        running = start()
        running.read()
        running.close()
    assert taken.ids == ["0", "1", "2"]


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"offset": 5}', '{"device": 1, "inode": 2, "offset": 9}', "\0"]
)
def test_a_note_that_is_of_no_use_is_none(
    source: RequestFileSource, path: Path, tmp_path: Path, taken: Taken, note: str
) -> None:
    (tmp_path / "requests.jsonl.offset.json").write_text(note)
    add(path, line(1))
    source.read()
    assert taken.ids == ["1"]


def test_a_note_beyond_the_end_is_of_a_file_that_was_cut(
    start: Start, path: Path, taken: Taken
) -> None:
    add(path, line(1), line(2))
    start().read()
    os.truncate(path, 0)
    add(path, line(3))
    start().read()
    assert taken.ids == ["1", "2", "3"]


def test_without_notes_it_begins_at_the_end(start: Start, path: Path, taken: Taken) -> None:
    add(path, line(1))
    source = start(None)
    source.read()
    add(path, line(2))
    source.read()
    assert taken.ids == ["2"]


def test_without_notes_a_file_that_appears_later_is_new(
    start: Start, path: Path, taken: Taken
) -> None:
    source = start(None)
    with pytest.raises(SourceError) as caught:
        source.read()
    assert caught.value.reason == "no_file"
    add(path, line(1))
    source.read()
    assert taken.ids == ["1"]


def test_a_file_that_is_rotated(source: RequestFileSource, path: Path, taken: Taken) -> None:
    add(path, line(1))
    source.read()
    old = path.rename(path.with_suffix(".1"))
    add(old, line(2))  # its writer has not noticed yet
    with pytest.raises(SourceError, match="is not there yet"):
        source.read()
    assert taken.ids == ["1", "2"]
    path.touch()
    add(old, line(3))
    source.read()
    add(old, line(4))
    add(path, line(5))
    source.read()
    add(path, line(6))
    source.read()
    assert taken.ids == ["1", "2", "3", "4", "5", "6"]


def test_a_file_that_was_rotated_while_nobody_looked(
    start: Start, path: Path, taken: Taken
) -> None:
    add(path, line(1))
    start().read()
    path.rename(path.with_suffix(".1"))
    add(path, line(2))
    start().read()
    assert taken.ids == ["1", "2"]


def test_a_file_that_is_cut(source: RequestFileSource, path: Path, taken: Taken) -> None:
    add(path, line(1), line(2))
    source.read()
    os.truncate(path, 0)
    source.read()
    add(path, line(3))
    source.read()
    assert taken.ids == ["1", "2", "3"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_is_cut_and_has_grown_beyond(
    start: Start, path: Path, taken: Taken, restart: bool
) -> None:
    add(path, line(1), line(2))
    source = start()
    source.read()
    with path.open("r+b") as file:  # the same file, as a shell's > writes it
        file.truncate()
        for number in range(3, 9):
            file.write(line(number).encode())
    (start() if restart else source).read()
    assert taken.ids == [str(number) for number in range(1, 9)]


def test_a_file_that_is_cut_and_written_while_it_is_read(
    source: RequestFileSource, path: Path, taken: Taken
) -> None:
    add(path, *(line(number) for number in range(100)))
    source.read()
    with path.open("r+b") as file:
        file.truncate()
    source.read()
    add(path, *(line(number) for number in range(100, 300)))
    source.read()
    source.read()
    assert taken.ids == [str(number) for number in range(300)]


def test_a_note_of_an_older_version_is_good(start: Start, path: Path, taken: Taken) -> None:
    add(path, line(1), line(2))
    stat = path.stat()
    note = {"device": stat.st_dev, "inode": stat.st_ino, "offset": len(line(1))}
    path.with_name("requests.jsonl.offset.json").write_text(json.dumps(note))
    start().read()
    assert taken.ids == ["2"]


def test_rows_of_other_formats_are_recognised_line_by_line(
    source: RequestFileSource, path: Path, taken: Taken
) -> None:
    add(path, line(1), *(json.dumps(row) + "\n" for row in (NGINX, LITELLM, DYNAMO)))
    add(path, json.dumps({**DYNAMO, "event_type": "tool_end"}) + "\n")
    source.read()
    assert taken.ids == ["1", "client-1", "r1", "client-1"]
    assert not taken.rejected


# Many files


@pytest.mark.parametrize("notes", [True, False])
def test_files_of_a_pattern_are_followed_as_they_appear(
    tmp_path: Path, taken: Taken, notes: bool
) -> None:
    def files() -> RequestFilesSource:
        folder = tmp_path if notes else None
        return RequestFilesSource(tmp_path / "*" / "x-*.log", taken, folder, Translator())

    source = files()
    with pytest.raises(SourceError, match="matches no file yet"):
        source.read()
    for name in "ab":
        (tmp_path / name).mkdir()
        add(tmp_path / name / "x-1.log", line(ord(name)))
    assert source.read().endswith("2 files")
    add(tmp_path / "a" / "x-2.log", line(1))
    add(tmp_path / "b" / "x-1.log", line(2))
    source.read()
    assert sorted(taken.ids, key=str) == ["1", "2", "97", "98"]
    add(tmp_path / "a" / "x-1.log", line(4))
    (tmp_path / "a" / "x-1.log").unlink()
    assert source.read().endswith("2 files")
    source.close()
    again = files()
    add(tmp_path / "b" / "x-1.log", line(3))
    again.read()
    assert taken.ids[4:] == ["4", *(["3"] if notes else [])]
    again.close()


def test_one_bad_file_of_a_pattern_does_not_stop_the_others(tmp_path: Path, taken: Taken) -> None:
    source = RequestFilesSource(tmp_path / "x-*", taken, tmp_path, Translator())
    (tmp_path / "x-1").mkdir()
    add(tmp_path / "x-2", line(1))
    with pytest.raises(SourceError, match="Is a directory"):
        source.read()
    assert taken.ids == ["1"]
    source.close()


def test_junk_is_counted_and_the_rest_taken(
    source: RequestFileSource, path: Path, taken: Taken
) -> None:
    add(path, "no json\n", "\n", "  \n", "[1]\n", b"\xff\xfe\n", line(1), '{"tenant": "a"}\n')
    add(path, b"\0" * 1000 + b"\n", line(2, ttft_seconds=-1.0), line(3, role="x"))
    source.read()
    assert taken.ids == ["1", "2"]
    assert taken.rejected == {"json": 4, "no_arrival": 1, "role": 1}
    counts = {text.series: text.value for lines in taken.lines().values() for text in lines}
    assert counts['tailscope_records_total{source="file:requests.jsonl"}'] == 2
    assert counts['tailscope_records_clamped_total{source="file:requests.jsonl"}'] == 1
    rejected = 'tailscope_records_rejected_total{source="file:requests.jsonl",reason="json"}'
    assert counts[rejected] == 4


def test_a_line_without_end_is_passed_over(
    source: RequestFileSource, path: Path, taken: Taken
) -> None:
    add(path, line(1), b"x" * (3 * MAX_LINE))
    source.read()
    add(path, b"y" * MAX_LINE)
    source.read()
    add(path, b"\n", line(2))
    source.read()
    assert taken.ids == ["1", "2"]
    assert taken.rejected == {"too_long": 1}


def test_what_the_store_refuses_is_read_again(
    source: RequestFileSource, path: Path, taken: Taken
) -> None:
    add(path, line(1))
    for refusal in (StoreFull("too many"), StoreError("the disk is full")):
        taken.refusal = refusal
        with pytest.raises(SourceError) as caught:
            source.read()
        assert (caught.value.reason, str(caught.value)) == ("store", str(refusal))
    taken.refusal = None
    add(path, line(2))
    source.read()
    assert taken.ids == ["1", "2"]


def test_a_long_file_is_read_in_parts_and_says_how_far_it_is(
    start: Start, path: Path, taken: Taken
) -> None:
    pad = "x" * 200
    add(path, *(line(number, model=pad) for number in range(12_000)))
    source = start(seconds=0)
    assert source.read() == f"follows {path}, {(path.stat().st_size - (2 << 20)) >> 20} MiB behind"
    assert 0 < len(taken.ids) < 12_000
    while source.read() != f"follows {path}":
        pass
    assert taken.ids == [str(number) for number in range(12_000)]


def test_a_path_that_is_no_file(tmp_path: Path, taken: Taken) -> None:
    with pytest.raises(SourceError) as caught:
        RequestFileSource(tmp_path, taken, tmp_path).read()
    assert caught.value.reason == "unreadable"
    assert "Is a directory" in str(caught.value)


def test_a_note_that_cannot_be_written_is_told_once(
    start: Start, path: Path, taken: Taken, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    source = start(tmp_path / "missing")
    for number in range(3):
        add(path, line(number))
        source.read()
    assert taken.ids == ["0", "1", "2"]
    assert caplog.text.count("cannot note how far") == 1
