"""What a reader makes of a store: the window, and reading while it is written."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailscope.records.reader import Reader, ReaderError
from tailscope.records.record import RequestRecord
from tailscope.records.samples import Sample
from tailscope.records.schema import REQUESTS, VERSION, request_batch
from tailscope.records.segments import frame, frames, listing
from tailscope.records.store import Store
from tests.process import until
from tests.requestrows import NOW_NS, SECOND, engine, gateway, values

# The window


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    late = [gateway(1, arrived_ns=NOW_NS - 500 * SECOND)]
    far = [gateway(2, arrived_ns=NOW_NS - 700 * SECOND)]
    store.submit([engine(number) for number in range(4)]).result(60)
    store.submit(late + far).result(60)
    store.close()
    return tmp_path


def test_a_window_is_half_open(kept: Path) -> None:
    reader = Reader(kept)
    found = reader.requests(NOW_NS + 1, NOW_NS + 3)
    assert found["arrived_ns"].tolist() == [NOW_NS + 1, NOW_NS + 2]


def test_a_partner_outside_of_the_window_is_found_if_it_is_near(kept: Path) -> None:
    found = Reader(kept).requests(NOW_NS, NOW_NS + 4)
    assert values(found, "tenant") == [None, "t1", None, None]


def test_a_partner_of_a_row_outside_of_the_window_is_not_shown_alone(kept: Path) -> None:
    assert len(Reader(kept).requests(NOW_NS - 501 * SECOND, NOW_NS)) == 0
    assert len(Reader(kept).requests(NOW_NS - 701 * SECOND, NOW_NS - 600 * SECOND)) == 1


def test_the_span_is_that_of_all_rows(kept: Path) -> None:
    assert Reader(kept).span() == (NOW_NS - 700 * SECOND, NOW_NS + 3)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_row_is_found_by_any_of_its_ids(kept: Path, sealed: bool) -> None:
    store = Store(kept)
    store.submit([engine(9, request_id="r9")]).result(60)
    store.close()
    if sealed:
        store = Store(kept)
        until(lambda: not listing(kept / "requests")[1], "the journal is sealed")
        store.close()
    reader = Reader(kept)
    assert reader.arrival("e000000000000003") == NOW_NS + 3
    assert reader.arrival("a000000000000001") == NOW_NS - 500 * SECOND
    assert reader.arrival("r9") == NOW_NS + 9
    # A trace is that of both; the newer row counts.
    trace = engine(1).trace_id
    assert trace is not None
    assert reader.arrival(trace) == NOW_NS + 1
    assert reader.arrival("nobody") is None
    assert reader.arrival("") is None


@pytest.mark.parametrize("there", [False, True])
def test_a_store_that_is_empty_or_not_there(tmp_path: Path, there: bool) -> None:
    directory = tmp_path / "data"
    if there:
        Store(directory).close()
    reader = Reader(directory)
    assert reader.exists() is there
    assert reader.span() is None
    assert len(reader.requests()) == 0
    assert len(reader.samples(["m"])) == 0


def test_a_window_reads_only_the_row_groups_that_it_touches(tmp_path: Path) -> None:
    folder = tmp_path / "requests"
    folder.mkdir()
    rows = [engine(number, arrived_ns=NOW_NS + number * 3600 * SECOND) for number in range(4)]
    table = pa.Table.from_batches([request_batch(rows)])
    path = folder / "0000000001-0000000001.parquet"
    pq.write_table(table, path, row_group_size=1)
    data = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(3).column(0)
    for position in range(group.data_page_offset, group.data_page_offset + 20):
        data[position] ^= 0xFF  # the last hour cannot be read
    path.write_bytes(data)
    reader = Reader(tmp_path)
    assert len(reader.requests(NOW_NS, NOW_NS + 1)) == 1
    with pytest.raises(ReaderError, match="is damaged"):
        reader.requests()


# While it is written


def test_a_tail_is_read_as_it_grows(tmp_path: Path) -> None:
    store, reader = Store(tmp_path), Reader(tmp_path)
    for number in range(5):
        store.submit([engine(number)]).result(60)
        assert len(reader.requests()) == number + 1
    store.close()


def test_every_row_is_seen_once_at_any_moment_of_sealing(tmp_path: Path) -> None:
    store = Store(tmp_path, segment_bytes=20_000)
    reader = Reader(tmp_path)
    enough = threading.Event()
    kept = [0]

    def write() -> None:
        while not enough.is_set():
            store.submit([engine(kept[0])]).result(60)
            kept[0] += 1

    def is_sealed_after_another_look() -> bool:
        at_least = kept[0]
        arrived = (reader.requests()["arrived_ns"] - NOW_NS).tolist()
        assert arrived == list(range(len(arrived)))
        assert len(arrived) >= at_least
        return len(listing(tmp_path / "requests")[0]) > 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert until(is_sealed_after_another_look)
    finally:
        enough.set()
        writer.join()
    store.close()
    assert len(reader.requests()) == kept[0]


def test_two_threads_may_share_a_reader(tmp_path: Path) -> None:
    store, reader = Store(tmp_path), Reader(tmp_path)
    store.submit([engine(number) for number in range(100)]).result(60)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(reader.requests()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert found == [100] * 4


def test_a_store_that_was_deleted_and_begun_anew(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for number in range(2):
        store = Store(tmp_path)
        store.submit([engine(number)]).result(60)
        store.close()
        assert (reader.requests()["arrived_ns"] - NOW_NS).tolist() == [number]
        for path in (tmp_path / "requests").iterdir():
            path.unlink()


def test_a_torn_tail_is_not_shown(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.submit([engine(1)]).result(60)
    store.submit([engine(2)]).result(60)
    store.close()
    path = tmp_path / "requests" / "0000000001.journal"
    data = path.read_bytes()
    *_, before, end = [offset for offset, _ in frames(path)]
    reader = Reader(tmp_path)
    for length in (before, before + 1, before + 12, end - 1):
        path.write_bytes(data[:length])
        assert len(reader.requests()) == 1
    path.write_bytes(data)
    assert len(reader.requests()) == 2


# Other versions, and damage


def segment(directory: Path, *payloads: pa.Buffer) -> None:
    folder = directory / "requests"
    folder.mkdir(exist_ok=True)
    (folder / "0000000001.journal").write_bytes(b"".join(map(frame, payloads)))


def test_an_older_store_lacks_columns(tmp_path: Path) -> None:
    older = pa.schema([REQUESTS.field(name) for name in ("role", "source", "arrived_ns")])
    older = older.with_metadata(REQUESTS.metadata)
    rows = pa.RecordBatch.from_pylist(
        [{"role": "engine", "source": "vllm", "arrived_ns": NOW_NS}], schema=older
    )
    segment(tmp_path, older.serialize(), rows.serialize())
    found = Reader(tmp_path).requests()
    assert (found["arrived_ns"][0], values(found, "tenant")) == (NOW_NS, [None])


def test_a_store_of_version_1_is_read_and_gone_on_with(tmp_path: Path) -> None:
    """It was written by the first version; what it says must not depend on the present one."""
    shutil.copytree(Path(__file__).parent / "captures" / "store" / "version-1", tmp_path / "data")
    store = Store(tmp_path / "data")
    until(lambda: not listing(tmp_path / "data" / "requests")[1], "the journal is sealed")
    store.submit([engine(7)]).result(60)
    store.close()
    found = Reader(tmp_path / "data").requests()
    first, second = NOW_NS, NOW_NS + 1
    assert found["arrived_ns"].tolist() == [first, second, NOW_NS + 7]
    assert values(found, "tenant") == ["tenant-1", "tenant-0", None]
    assert values(found, "outcome") == ["aborted", "ok", "ok"]
    assert values(found, "client_seconds") == [2.0, None, None]
    row = found.iloc[1].to_dict()
    assert {name: row[name] for name in VERSION_1} == VERSION_1
    samples = Reader(tmp_path / "data").samples(["tailscope_engine_requests_running"])
    assert samples[["value", "server"]].to_numpy().tolist() == [[3.0, "a:1"]]


VERSION_1 = {
    "source": "vllm",
    "role": "engine",
    "engine": "vllm",
    "model": "m",
    "ended_ns": NOW_NS + 1 + 2 * SECOND,
    "span_id": f"{2:016x}",
    "trace_id": f"{2:032x}",
    "parent_span_id": f"{102:016x}",
    "request_id": "req-2",
    "server": "127.0.0.1:8000",
    "frontend_seconds": 0.125,
    "queue_seconds": 0.25,
    "prefill_seconds": 0.125,
    "decode_seconds": 1.0,
    "ttft_seconds": 0.5,
    "total_seconds": 1.5,
    "input_tokens": 100,
    "cached_tokens": 40,
    "output_tokens": 11,
    "max_tokens": 256,
    "status": 200,
    "finish_reason": "stop",
    "session": "session",
    "attempt": 1,
    "priority": 0,
    "adapter": "lora",
    "inferred": "server",
}


@pytest.mark.parametrize("form", ["journal", "parquet"])
def test_a_newer_store_is_refused_each_time(tmp_path: Path, form: str) -> None:
    newer = REQUESTS.with_metadata({"tailscope.schema": str(int(VERSION) + 1)})
    rows = request_batch([engine(1)]).replace_schema_metadata(newer.metadata)
    if form == "journal":
        segment(tmp_path, newer.serialize(), rows.serialize())
    else:
        (tmp_path / "requests").mkdir()
        table = pa.Table.from_batches([rows])
        pq.write_table(table, tmp_path / "requests" / "0000000001-0000000001.parquet")
    reader = Reader(tmp_path)
    for _ in range(2):
        with pytest.raises(ReaderError, match=r"schema version 2.*install a newer tailscope"):
            reader.requests()


def test_a_damaged_file_is_named_and_not_quoted(tmp_path: Path) -> None:
    segment(tmp_path, REQUESTS.serialize(), pa.py_buffer(b"s3cret" * 50))
    with pytest.raises(ReaderError, match="requests is damaged") as caught:
        Reader(tmp_path).requests()
    assert "s3cret" not in str(caught.value)
    folder = tmp_path / "requests"
    (folder / "0000000001.journal").unlink()
    (folder / "0000000001-0000000001.parquet").write_bytes(b"s3cret" * 50)
    with pytest.raises(ReaderError, match="requests is damaged"):
        Reader(tmp_path).requests()


def test_samples_of_many_labels(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.submit_samples(
        [
            Sample(NOW_NS + 2, "a", '{"server":"x"}', 1.0),
            Sample(NOW_NS + 1, "a", '{"rank":"0","server":"y"}', 2.0),
            Sample(NOW_NS, "b", "{}", 3.0),
        ]
    )
    store.close()
    frame = Reader(tmp_path).samples(["a", "none"], NOW_NS, NOW_NS + 3)
    assert frame["value"].tolist() == [2.0, 1.0]
    assert values(frame, "server") == ["y", "x"]
    assert values(frame, "rank") == ["0", None]
    assert len(Reader(tmp_path).samples(["a"], NOW_NS + 2, NOW_NS + 3)) == 1


# Some columns only


SOME = ("arrived_ns", "tenant", "outcome", "total_seconds", "client_seconds", "joined")


@pytest.mark.parametrize(
    "rows",
    [
        [engine(2, total_seconds=1.0), engine(1, total_seconds=2.0)],
        [engine(2, total_seconds=1.0), engine(1), engine(1)],
        [engine(1, trace="a" * 32), engine(1, trace="b" * 32)],
        [engine(1), gateway(1, total_seconds=3.0, outcome="aborted"), gateway(2)],
        [engine(1, request_id="r"), gateway(9, trace="c" * 32, request_id="r")],
        [engine(1), *[gateway(5, span_id=None, total_seconds=s) for s in (1.0, 1.0, 2.0)]],
        [],
    ],
    ids=["lone", "again", "same span", "gateway", "request", "no span", "none"],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_some_columns_are_those_of_all(
    tmp_path: Path, rows: list[RequestRecord], sealed: bool
) -> None:
    store = Store(tmp_path)
    for row in rows:
        store.submit([row]).result(60)
    store.close()
    if sealed:
        store = Store(tmp_path)
        until(lambda: not listing(tmp_path / "requests")[1])
        store.close()
    reader = Reader(tmp_path)
    for start, end, columns in (
        (0, NOW_NS + 10, SOME),
        (NOW_NS + 1, NOW_NS + 2, ["ttft_seconds", "span_id"]),
    ):
        found = reader.requests(start, end, columns)
        pd.testing.assert_frame_equal(found, reader.requests(start, end)[list(columns)])


def test_a_column_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no column prompt"):
        Reader(tmp_path).requests(columns=["prompt"])
