"""``tailscope import``."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailscope.cli import main
from tailscope.errors import UsageError
from tailscope.records import command
from tailscope.records.reader import Reader
from tailscope.records.record import RequestRecord
from tailscope.records.recordfile import LeftOut, read_records
from tailscope.records.store import Store
from tests.otlp import NOW_NS, clients
from tests.process import run

SECRET = "s3cret"


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"arrived_ns": NOW_NS + number, "request_id": f"r{number}", "tenant": "a", **more}


def write(path: Path, rows: list[Any]) -> Path:
    text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def kept(data: Path) -> list[str]:
    return [str(name) for name in Reader(data).requests()["request_id"]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


Import = Callable[..., tuple[int, str]]


@pytest.fixture
def imported(data: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    """Runs the command on files; gives its status and what it says."""

    def run_it(*paths: Path) -> tuple[int, str]:
        status = main(["import", "--data", str(data), *map(str, paths)])
        out, said = capsys.readouterr()
        assert out == ""
        return status, said

    return run_it


def test_the_real_command(tmp_path: Path, data: Path) -> None:
    done = run("import", "--data", str(data), str(write(tmp_path / "a.jsonl", [row(1), row(2)])))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "a.jsonl: 2 records\n")
    assert kept(data) == ["r1", "r2"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.log"])
def test_json_lines(tmp_path: Path, data: Path, imported: Import, name: str) -> None:
    assert imported(write(tmp_path / name, [row(1), row(2)])) == (0, f"{name}: 2 records\n")
    assert kept(data) == ["r1", "r2"]


def test_parquet(tmp_path: Path, data: Path, imported: Import) -> None:
    frame = pd.DataFrame([row(1, ttft_seconds=0.5), row(2), row(3, input_tokens=7)])
    frame["prompt"] = SECRET
    path = tmp_path / "a.parquet"
    frame.to_parquet(path)
    status, said = imported(path)
    assert (status, "a.parquet: 3 records" in said) == (0, True)
    found = Reader(data).requests()
    assert found["request_id"].tolist() == ["r1", "r2", "r3"]
    assert found["ttft_seconds"].fillna(-1).tolist() == [0.5, -1, -1]
    assert found["input_tokens"].fillna(-1).tolist() == [-1, -1, 7]


def test_parquet_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "arrived_ns": pa.array([NOW_NS, NOW_NS], pa.timestamp("ns")),
            "tenant": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    left_out = LeftOut()
    assert list(read_records(path, left_out)) == []
    assert left_out.reasons == {"type": 2}
    assert "row 1: arrived_ns is Timestamp; it must be a whole number" in left_out.text()


def test_several_files_and_again(tmp_path: Path, data: Path, imported: Import) -> None:
    files = [write(tmp_path / f"{n}.jsonl", [row(n)]) for n in range(3)]
    for _ in range(2):
        assert imported(*files)[0] == 0
    assert kept(data) == ["r0", "r1", "r2"], "what is imported twice is there once"


def test_bad_lines_are_named_and_left_out(tmp_path: Path, data: Path, imported: Import) -> None:
    path = write(
        tmp_path / "a.jsonl",
        [
            row(1),
            f"{SECRET} no json",
            "",
            {"tenant": SECRET},
            row(2, ttft_seconds=SECRET),
            row(3),
            row(4, role=SECRET),
            row(5, tenant=SECRET * 100),
            *([SECRET] * 20),
        ],
    )
    status, said = imported(path)
    assert status == 0
    assert said.splitlines()[1:] == [
        "left out: line 2: the line is no JSON at column 1",
        "left out: line 4: arrived_ns is missing; it is needed, in UTC nanoseconds",
        "left out: line 5: ttft_seconds is str; it must be a number",
        "left out: line 7: role must be one of engine, gateway",
        "left out: line 8: tenant has 600 characters; at most 256 are kept, so that no prompt can "
        "be stored by mistake",
        "left out: 20 more (in all: json 21, no_arrival 1, type 1, role 1, text_too_long 1)",
    ]
    assert SECRET not in said
    assert kept(data) == ["r1", "r3"]


def test_a_file_without_any_record(tmp_path: Path, data: Path, imported: Import) -> None:
    status, said = imported(write(tmp_path / "a.jsonl", ["x", "y"]))
    assert status == 2
    assert "left out: line 1: the line is no JSON at column 1" in said
    assert f"tailscope import: {tmp_path / 'a.jsonl'}: no line of it is a request record" in (said)


def test_an_empty_file_is_no_fault(tmp_path: Path, data: Path, imported: Import) -> None:
    files = [write(tmp_path / "a.jsonl", []), write(tmp_path / "b.jsonl", [row(1)])]
    assert imported(*files)[0] == 0
    assert kept(data) == ["r1"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl.gz", b"no gzip", "cannot be read: Not a gzipped file"),
        ("a.jsonl.gz", gzip.compress(os.urandom(9000))[:-900], "cannot be read: "),
        ("a.jsonl.gz", gzip.compress(b"x" * 9000)[:20] + b"\xff" * 99, "cannot be read: "),
        ("a.parquet", b"PAR1 no parquet", "is no Parquet file"),
        ("a.parquet", b"", "is no Parquet file"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=told):
        list(read_records(path, LeftOut()))


def test_a_file_that_is_not_there(tmp_path: Path, data: Path, imported: Import) -> None:
    there = write(tmp_path / "there.jsonl", [row(1)])
    status, said = imported(there, tmp_path / "missing")
    assert status == 2
    assert "missing: there is no such file" in said
    assert not data.exists(), "nothing is done by halves"
    assert imported(tmp_path)[0] == 2


def test_a_store_that_an_exporter_writes(tmp_path: Path, data: Path, imported: Import) -> None:
    path = write(tmp_path / "a.jsonl", [row(1)])
    store = Store(data)
    status, said = imported(path)
    store.close()
    assert status == 2
    assert f"--data {data}: another exporter writes into {data}" in said


def test_lines_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = json.dumps(row(1)).encode()
    path.write_bytes(b"x" * (3 << 20) + b"\n" + line + b"\n" + b"y" * (2 << 20))
    left_out = LeftOut()
    assert [record.request_id for record in read_records(path, left_out)] == ["r1"]
    assert left_out.reasons == {"too_long": 2}
    assert [text.partition(":")[0] for text in left_out.named] == ["line 1", "line 3"]


def test_more_than_the_store_takes_at_once(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "a.parquet"
    count = 70_000
    pq.write_table(
        pa.table(
            {
                "arrived_ns": pa.array(range(NOW_NS, NOW_NS + count)),
                "span_id": [f"{number:016x}" for number in range(1, count + 1)],
            }
        ),
        path,
    )
    command.run(_arguments(data, path))
    assert len(Reader(data).requests()) == count


def _arguments(data: Path, path: Path) -> Any:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return parser.parse_args(["--data", str(data), str(path)])


def test_a_disk_that_refuses_a_part_is_told(tmp_path: Path, data: Path) -> None:
    """A chunk in the middle that does not fit is no less lost when the last one fits."""
    rows = [row(n, tenant="x" * 200, span_id=f"{n + 1:016x}") for n in range(5_000)]
    path = write(tmp_path / "a.jsonl", [*rows, row(5_001)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UsageError, match="cannot write to"):
            command.run(_arguments(data, path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_recorded_clients(tmp_path: Path, data: Path, imported: Import) -> None:
    rows: list[RequestRecord] = clients("run11")
    names = RequestRecord.__slots__
    path = write(
        tmp_path / "a.jsonl.gz",
        [
            {name: value for name in names if (value := getattr(one, name)) is not None}
            for one in rows
        ],
    )
    assert imported(path)[0] == 0
    found = Reader(data).requests()
    assert len(found) == 278
    assert found["tenant"].nunique() == 4
