"""Files of request records: every form, whatever is in them, and how far they get."""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.cli import main
from tailscope.records import command, store
from tailscope.records.errors import StoreFull
from tailscope.records.jsonl import MAX_LINE
from tailscope.records.reader import Reader
from tailscope.records.record import COLUMNS, OUTCOMES
from tailscope.records.recordfile import MAX_NAMED, LeftOut, read_records
from tailscope.records.store import Store

NOW_NS = 1_796_000_000_000_000_001  # odd, and beyond what a float holds
SECRET = "sk-verysecret"
FORMS = ["jsonl", "jsonl.gz", "parquet"]

Row = dict[str, Any]


def row(number: int, **more: Any) -> Row:
    return {
        "arrived_ns": NOW_NS + number,
        "role": "gateway",
        "source": "litellm",
        "request_id": f"r{number}",
        "tenant": "acme",
        "total_seconds": 0.5,
        "output_tokens": 7,
        **more,
    }


def lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in rows).encode()


def write(path: Path, rows: list[Row]) -> Path:
    """A file of rows, of the form that its name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_bytes(gzip.compress(lines(rows)) if path.suffix == ".gz" else lines(rows))
    return path


Import = Callable[..., tuple[int, str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def imported(data: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    """Runs the command; returns its exit status and what it said, a line for each step."""

    def command_(*paths: Path) -> tuple[int, str]:
        status = main(["import", "--data", str(data), *map(str, paths)])
        told = capsys.readouterr()
        assert told.out == ""
        return status, told.err.replace("\r", "\n")

    return command_


def kept(data: Path) -> pd.DataFrame:
    return Reader(data).requests()


def ids(data: Path) -> list[str]:
    names: list[str] = kept(data)["request_id"].tolist()
    return names


# What is taken


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_each_form(tmp_path: Path, data: Path, imported: Import, form: str) -> None:
    rows = [row(number) for number in range(12)]
    status, told = imported(write(tmp_path / f"requests.{form}", rows))
    assert (status, told) == (0, f"requests.{form}: 12 records\n")
    found = kept(data)
    assert found["arrived_ns"].tolist() == [NOW_NS + number for number in range(12)]
    for name in ("role", "source", "request_id", "tenant", "total_seconds", "output_tokens"):
        assert found[name].tolist() == [one[name] for one in rows]
    assert found["ended_ns"].tolist() == [NOW_NS + number + 500_000_000 for number in range(12)]
    for name in ("span_id", "queue_seconds", "input_tokens", "outcome"):
        assert found[name].isna().all(), "what is not told is absent"


def test_rows_of_both_sides_meet(tmp_path: Path, data: Path, imported: Import) -> None:
    trace = {"trace_id": "A" * 32, "request_id": None}
    mine = row(0, **trace, role="engine", source="vllm", tenant=None, queue_seconds=0.25)
    files = [
        write(tmp_path / "engine.parquet", [{**mine, "parent_span_id": "0F" * 8}]),
        write(tmp_path / "gateway.jsonl", [row(1, **trace, span_id="0f" * 8)]),
    ]
    assert imported(*files)[0] == 0
    found = kept(data)
    assert found[["role", "tenant", "joined"]].values.tolist() == [["engine", "acme", "parent"]]


def test_what_is_imported_twice_counts_once(tmp_path: Path, data: Path, imported: Import) -> None:
    """Whatever the form, and whether or not the rows have an identity."""
    rows = [row(n, span_id=f"{n + 1:016x}" if n % 2 else None) for n in range(10)]
    for form in (*FORMS, "jsonl"):
        assert imported(write(tmp_path / f"requests.{form}", rows))[0] == 0
    assert ids(data) == [f"r{number}" for number in range(10)]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_in_the_table_is_not_kept(
    tmp_path: Path, data: Path, imported: Import, form: str
) -> None:
    more = {"prompt": SECRET, "headers": {"authorization": SECRET}, "messages": [SECRET]}
    status, told = imported(write(tmp_path / f"requests.{form}", [row(1, **more)]))
    assert status == 0
    assert SECRET not in told
    assert ids(data) == ["r1"]
    files = [path for path in data.rglob("*") if path.is_file()]
    assert any(b"acme" in path.read_bytes() for path in files), "texts can be found like this"
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


# Parquet of others


def test_parquet_with_some_columns_in_another_order(
    tmp_path: Path, data: Path, imported: Import
) -> None:
    names = ["tenant", "note", "ttft_seconds", "arrived_ns"]
    table = pa.table([["a", None], ["x", "y"], [0.5, None], [NOW_NS, NOW_NS + 1]], names)
    pq.write_table(table, tmp_path / "some.parquet")
    assert imported(tmp_path / "some.parquet")[0] == 0
    found = kept(data)
    assert found["arrived_ns"].tolist() == [NOW_NS, NOW_NS + 1]
    assert found["tenant"].fillna("-").tolist() == ["a", "-"]
    assert found["ttft_seconds"].fillna(-1).tolist() == [0.5, -1]
    assert set(found["source"]) == {"file"}
    assert set(found["role"]) == {"gateway"}


def test_parquet_as_pandas_writes_it(tmp_path: Path, data: Path, imported: Import) -> None:
    """Whole numbers become floats and gaps NaN where a value is missing; texts are categories."""
    frame = pd.DataFrame(
        {
            "arrived_ns": [NOW_NS, NOW_NS + 1],
            "tenant": pd.Categorical(["a", "b"]),
            "input_tokens": [100, None],
            "queue_seconds": [math.nan, 0.25],
            "outcome": ["ok", None],
        },
        index=[5, 6],
    )
    frame.to_parquet(tmp_path / "frame.parquet")
    assert imported(tmp_path / "frame.parquet")[0] == 0
    found = kept(data)
    assert found["tenant"].tolist() == ["a", "b"]
    assert found["input_tokens"].fillna(-1).tolist() == [100, -1]
    assert found["queue_seconds"].fillna(-1).tolist() == [-1, 0.25]
    assert found["outcome"].fillna("-").tolist() == ["ok", "-"]


def test_parquet_values_that_are_not_what_their_column_says(
    tmp_path: Path, data: Path, imported: Import
) -> None:
    """Text that is no UTF-8; its row is left out, and the others are kept."""
    texts = pa.array([b"r0", b"\xff" + SECRET.encode(), b"r2"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    arrived = pa.array([NOW_NS, NOW_NS + 1, NOW_NS + 2])
    pq.write_table(
        pa.table([arrived, broken], ["arrived_ns", "request_id"]), tmp_path / "a.parquet"
    )
    status, told = imported(tmp_path / "a.parquet")
    assert status == 0
    assert "left out: row 2: a value is not of the type of its column\n" in told
    assert SECRET not in told
    assert ids(data) == ["r0", "r2"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**60], pa.int64()).cast(pa.timestamp("us")),  # beyond the year 9999
        pa.array([NOW_NS], pa.timestamp("ns")),
        pa.array([str(NOW_NS)]),
        pa.array([[NOW_NS]]),
        pa.array([b"1"]),
    ],
    ids=["far", "time", "text", "list", "bytes"],
)
def test_parquet_columns_of_another_type(
    tmp_path: Path, imported: Import, column: pa.Array
) -> None:
    pq.write_table(pa.table([column], ["arrived_ns"]), tmp_path / "a.parquet")
    status, told = imported(tmp_path / "a.parquet")
    assert status == 2
    assert "left out: row 1: " in told
    assert "is a request record" in told


def test_parquet_without_any_of_the_columns(tmp_path: Path, imported: Import) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    status, told = imported(tmp_path / "a.parquet")
    assert status == 2
    assert "left out: row 2: arrived_ns is missing" in told


TEXT = st.none() | st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = {
    **{name: TEXT for name, kind in COLUMNS.items() if kind is str},
    **{name: st.none() | st.floats(-2, 1e9) for name, kind in COLUMNS.items() if kind is float},
    **{name: st.none() | st.integers(-2, 2**62) for name, kind in COLUMNS.items() if kind is int},
    "role": st.sampled_from([None, "engine", "gateway", "other"]),
    "outcome": st.sampled_from([None, *OUTCOMES, "other"]),
    "arrived_ns": st.none() | st.integers(0, NOW_NS),
}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.fixed_dictionaries(VALUES), max_size=8))
def test_every_form_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    folder = tmp_path_factory.mktemp("forms")
    # Arrow would take a column that holds nothing for one of no type, and drop it.
    schema = pa.schema(
        [(name, {str: pa.string(), int: pa.int64(), float: pa.float64()}[kind])
         for name, kind in COLUMNS.items()]
    )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "a.parquet")
    write(folder / "a.jsonl", rows)
    write(folder / "a.jsonl.gz", rows)
    left_out = {form: LeftOut() for form in FORMS}
    found = {form: list(read_records(folder / f"a.{form}", left_out[form])) for form in FORMS}
    assert found["parquet"] == found["jsonl"] == found["jsonl.gz"]
    reasons = [one.reasons for one in left_out.values()]
    assert reasons[0] == reasons[1] == reasons[2]
    assert reasons[0].total() + len(found["jsonl"]) == len(rows)


# What is left out


BAD = [
    ("json", b"no json"),
    ("json", b'["a list"]'),
    ("json", b"\xff\xfe\x00"),
    ("no_arrival", b'{"tenant": "%s"}' % SECRET.encode()),
    ("range", b'{"arrived_ns": 1796000000, "tenant": "%s"}' % SECRET.encode()),
    ("range", b'{"arrived_ns": %d, "ttft_seconds": NaN}' % NOW_NS),
    ("type", b'{"arrived_ns": %d, "input_tokens": "%s"}' % (NOW_NS, SECRET.encode())),
    ("type", b'{"arrived_ns": %d, "status": 1.5}' % NOW_NS),
    ("role", b'{"arrived_ns": %d, "role": "%s"}' % (NOW_NS, SECRET.encode())),
    ("outcome", b'{"arrived_ns": %d, "outcome": "%s"}' % (NOW_NS, SECRET.encode())),
    ("text_too_long", b'{"arrived_ns": %d, "tenant": "%s"}' % (NOW_NS, SECRET.encode() * 99)),
]


@pytest.mark.parametrize(("reason", "line"), BAD, ids=[str(at) for at in range(len(BAD))])
def test_a_bad_line_is_named_and_the_others_are_taken(
    tmp_path: Path, data: Path, imported: Import, reason: str, line: bytes
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(lines([row(0)]) + line + b"\n\n" + lines([row(1)]))
    status, told = imported(path)
    assert status == 0
    assert re.search(r"^left out: line 2: \S", told, re.MULTILINE), told
    assert told.count("left out") == 1
    assert SECRET not in told, "a message never quotes a text of the file"
    assert ids(data) == ["r0", "r1"]
    left_out = LeftOut()
    list(read_records(path, left_out))
    assert left_out.reasons == {reason: 1}


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz"])
def test_many_bad_lines_are_counted_by_reason(
    tmp_path: Path, data: Path, imported: Import, form: str
) -> None:
    body = b"".join(line + b"\n" + lines([row(at)]) for at, (_, line) in enumerate(BAD))
    path = tmp_path / f"requests.{form}"
    path.write_bytes(gzip.compress(body) if form.endswith("gz") else body)
    status, told = imported(path)
    assert status == 0
    assert [int(number) for number in re.findall(r"left out: line (\d+):", told)] == [
        1 + 2 * at for at in range(MAX_NAMED)
    ]
    assert told.splitlines()[-1] == (
        "left out: 6 more (in all: json 3, no_arrival 1, range 2, type 2, role 1, outcome 1, "
        "text_too_long 1)"
    )
    assert len(ids(data)) == len(BAD)


def test_a_huge_line_is_passed_over(tmp_path: Path, data: Path, imported: Import) -> None:
    path = tmp_path / "requests.jsonl"
    huge = b'{"tenant": "' + SECRET.encode() + b"x" * (3 * MAX_LINE) + b'"}\n'
    path.write_bytes(lines([row(0)]) + huge + lines([row(1)]) + b"bad\n" + huge.strip())
    status, told = imported(path)
    assert status == 0
    named = re.findall(r"left out: (line \d+): (.{14})", told)
    assert named == [
        ("line 2", "the line has 1"),
        ("line 4", "the line is no"),
        ("line 5", "the line has 1"),
    ]
    assert len(told) < 1000
    assert SECRET not in told
    assert ids(data) == ["r0", "r1"]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_without_any_record_stops_the_command(
    tmp_path: Path, data: Path, imported: Import, form: str
) -> None:
    bad = write(tmp_path / f"bad.{form}", [{"tenant": SECRET}, {"tenant": SECRET}])
    good = write(tmp_path / "good.jsonl", [row(1)])
    status, told = imported(bad, good)
    assert status == 2
    assert f"bad.{form}: 0 records\n" in told
    assert told.count("arrived_ns is missing; it is needed, in UTC nanoseconds") == 2
    assert told.endswith(f"tailscope import: {bad}: no line of it is a request record\n")
    assert SECRET not in told
    assert ids(data) == [], "a later file is not begun"


# What cannot be read


@pytest.mark.parametrize("cut", [1, 8, 40, 0.5])
def test_of_a_cut_gz_what_comes_before_is_kept(
    tmp_path: Path, data: Path, imported: Import, monkeypatch: pytest.MonkeyPatch, cut: float
) -> None:
    monkeypatch.setattr(command, "_CHUNK", 500)
    rows = [row(n, session=f"{n * 2654435761 % 2**32:08x}") for n in range(1_800)]
    whole = gzip.compress(lines(rows))
    end = len(whole) - cut if cut >= 1 else len(whole) * cut
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: int(end)])
    status, told = imported(path)
    assert status == 2
    *_, total, error = told.splitlines()
    assert error.startswith(f"tailscope import: {path}: cannot be read: ")
    taken = ids(data)
    assert total == f"cut.jsonl.gz: {len(taken):,} records", "what is told is what is there"
    assert taken == [f"r{number}" for number in range(len(taken))]
    assert (800 if cut < 1 else 1_700) < len(taken) <= 1_800
    assert cut < 1 or len(taken) % 500, "also the last ones, that fill no chunk"


def test_a_damaged_parquet_file(tmp_path: Path, imported: Import) -> None:
    path = write(tmp_path / "a.parquet", [row(number) for number in range(100)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert imported(path)[0] == 2
    middle = len(whole) // 3
    path.write_bytes(whole[:middle] + b"\x55" * middle + whole[2 * middle :])
    status, told = imported(path)
    assert status == 2
    assert f"tailscope import: {path}: " in told


# The store


def test_a_store_that_is_written_by_another(tmp_path: Path, data: Path, imported: Import) -> None:
    path = write(tmp_path / "requests.jsonl", [row(1)])
    writer = Store(data)
    try:
        assert imported(path) == (
            2,
            f"tailscope import: --data {data}: another exporter writes into {data}; "
            "give each one its own --data\n",
        )
    finally:
        writer.close()
    assert ids(data) == []
    assert imported(path)[0] == 0, "and when it has ended"
    assert ids(data) == ["r1"]


def test_a_directory_that_is_none(tmp_path: Path, data: Path, imported: Import) -> None:
    data.write_text("a file")
    status, told = imported(write(tmp_path / "requests.jsonl", [row(1)]))
    assert status == 2
    assert told.startswith(f"tailscope import: --data {data}: cannot open the store {data}: ")
    assert data.read_text() == "a file"


@pytest.mark.parametrize(
    "arguments", [["import"], ["import", "a.jsonl"], ["import", "--data", "d"]]
)
def test_what_is_missing_on_the_command_line_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "the following arguments are required: " in capsys.readouterr().err


def test_progress_is_told_as_it_goes(
    tmp_path: Path, data: Path, imported: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_CHUNK", 600)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    path = write(tmp_path / "requests.jsonl.gz", [row(number) for number in range(2_000)])
    status, told = imported(path)
    assert status == 0
    counts = [int(text.replace(",", "")) for text in re.findall(r"gz: ([\d,]+) records", told)]
    assert counts == [600, 1_200, 1_800, 2_000, 2_000]
    assert all(one <= other for one, other in pairwise(counts))
    assert told.endswith("\nrequests.jsonl.gz: 2,000 records\n")
    assert len(ids(data)) == 2_000


def test_a_disk_that_is_slower_than_the_file_is_waited_for(
    tmp_path: Path, data: Path, imported: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_CHUNK", 1)
    monkeypatch.setattr(store, "_MAX_PENDING", 3)
    refused = 0
    submit = Store.submit

    def counting(self: Store, records: Any) -> Any:
        nonlocal refused
        try:
            return submit(self, records)
        except StoreFull:
            refused += 1
            raise

    monkeypatch.setattr(Store, "submit", counting)
    path = write(tmp_path / "requests.jsonl", [row(number) for number in range(300)])
    assert imported(path)[0] == 0
    assert refused > 0
    assert ids(data) == [f"r{number}" for number in range(300)]
