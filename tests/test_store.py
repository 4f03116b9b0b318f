"""The store as its writers see it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tailscope.records.errors import StoreError, StoreFull, StoreLocked, StoreUnfit
from tailscope.records.reader import Reader
from tailscope.records.record import RequestRecord
from tailscope.records.samples import Sample, label_text
from tailscope.records.segments import listing
from tailscope.records.store import Store
from tests.process import environment, until

NOW_NS = 1_796_000_000_000_000_000
PATIENCE = 60.0


def record(number: int, **values: Any) -> RequestRecord:
    return RequestRecord("vllm", "engine", NOW_NS + number, span_id=f"{number + 1:016x}", **values)


def kept(directory: Path) -> list[int]:
    return [arrived - NOW_NS for arrived in Reader(directory).requests()["arrived_ns"].tolist()]


class Blocked(RequestRecord):
    """A record that is not read before it is let go; so the writer hangs, as on a slow disk."""

    let_go = threading.Event()
    reached = threading.Event()

    def __getattribute__(self, name: str) -> Any:
        if name == "arrived_ns":
            Blocked.reached.set()
            Blocked.let_go.wait(PATIENCE)
        return super().__getattribute__(name)


class Faulty(RequestRecord):
    """A record that fails in a way that nobody expects."""

    def __getattribute__(self, name: str) -> Any:
        if name == "model":
            raise RuntimeError("a fault of ours")
        return super().__getattribute__(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    Blocked.let_go.clear()
    Blocked.reached.clear()
    store = Store(tmp_path)
    yield store
    Blocked.let_go.set()
    store.close()


def block(store: Store) -> None:
    """Keep the writer busy until ``Blocked.let_go`` is set."""
    store.submit([Blocked("vllm", "engine", NOW_NS + 10**6)])
    assert Blocked.reached.wait(PATIENCE)


def test_what_is_submitted_can_be_read_when_the_future_is_done(
    store: Store, tmp_path: Path
) -> None:
    store.submit([record(1), record(2)]).result(PATIENCE)
    assert kept(tmp_path) == [1, 2]
    assert (store.pending, store.failure, store.commits) == (0, "", 1)


def test_many_wait_for_one_commit(store: Store, tmp_path: Path) -> None:
    block(store)
    futures = [store.submit([record(number)]) for number in range(200)]
    assert store.pending == 200
    assert not any(future.done() for future in futures)
    Blocked.let_go.set()
    for future in futures:
        future.result(PATIENCE)
    assert store.commits == 2
    assert kept(tmp_path) == [*range(200), 10**6]


def test_nothing_to_submit_is_done_soon(store: Store, tmp_path: Path) -> None:
    assert store.submit([]).result(PATIENCE) is None
    assert store.commits == 0


def test_a_record_that_does_not_fit_harms_no_other(store: Store, tmp_path: Path) -> None:
    block(store)
    good = store.submit([record(1)])
    bad = [
        store.submit([record(2, input_tokens=2**70)]),
        store.submit([record(3, tenant="\ud800")]),
        store.submit([record(4, total_seconds="s3cret")]),
        store.submit([record(5), record(6, request_id=7)]),
    ]
    better = store.submit([record(7)])
    Blocked.let_go.set()
    for future in bad:
        with pytest.raises(StoreUnfit) as caught:
            future.result(PATIENCE)
        assert "s3cret" not in str(caught.value)
    assert good.result(PATIENCE) is better.result(PATIENCE) is None
    assert kept(tmp_path) == [1, 7, 10**6]


@pytest.mark.parametrize("others", [0, 1])
def test_a_fault_of_ours_leaves_nobody_waiting(
    store: Store, tmp_path: Path, others: int, caplog: pytest.LogCaptureFixture
) -> None:
    block(store)
    futures = [store.submit([Faulty("vllm", "engine", NOW_NS)])]
    futures += [store.submit([record(1)]) for _ in range(others)]
    Blocked.let_go.set()
    for future in futures:
        with pytest.raises(StoreError, match="see its log"):
            future.result(PATIENCE)
    assert "a fault of ours" in caplog.text
    store.submit([record(2)]).result(PATIENCE)
    assert kept(tmp_path) == [2, 10**6]


def test_too_many_waiting_records_are_not_taken(store: Store) -> None:
    block(store)
    store.submit([record(1)] * 40_000)
    with pytest.raises(StoreFull, match="40000 records wait for the disk"):
        store.submit([record(2)] * 20_000)
    assert store.pending == 40_000
    Blocked.let_go.set()
    until(lambda: store.pending == 0)
    store.submit([record(2)] * 20_000).result(PATIENCE)


def test_who_waits_while_the_store_is_closed_is_served(store: Store, tmp_path: Path) -> None:
    block(store)
    futures = [store.submit([record(number)]) for number in range(50)]
    closing = threading.Thread(target=store.close)
    closing.start()
    until(lambda: _refuses(store))
    Blocked.let_go.set()
    closing.join(PATIENCE)
    for future in futures:
        assert future.result(0) is None
    assert kept(tmp_path) == [*range(50), 10**6]


def _refuses(store: Store) -> bool:
    try:
        store.submit([])
    except StoreError as error:
        return str(error) == "the store is closed"
    return False


def test_acknowledged_means_kept_while_it_is_closed(tmp_path: Path) -> None:
    store = Store(tmp_path, segment_bytes=4096)
    acknowledged: list[int] = []
    lock = threading.Lock()

    def submit(worker: int) -> None:
        number = worker * 10_000
        while True:
            try:
                store.submit([record(number)]).result(PATIENCE)
            except StoreError:
                return
            with lock:
                acknowledged.append(number)
            number += 1

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(submit, worker) for worker in range(4)]
        until(lambda: len(acknowledged) > 100)
        store.close()
        for worker in workers:
            worker.result(PATIENCE)
    assert kept(tmp_path) == sorted(acknowledged)


def test_an_idle_store_writes_nothing(tmp_path: Path) -> None:
    Store(tmp_path).close()
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == ["lock", "requests", "samples"]


def test_closing_twice_is_no_fault(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.close()
    store.close()
    Store(tmp_path).close()


def test_one_process_at_a_time(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreLocked, match=r"another exporter writes into .*give each one its own"):
        Store(tmp_path)


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot open the store .*: Not a directory"):
        Store(tmp_path / "file" / "data")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "samples").touch()
    with pytest.raises(StoreError, match=r"cannot open the store .*: File exists"):
        Store(tmp_path / "data")
    (tmp_path / "data" / "samples").unlink()
    Store(tmp_path / "data").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_directory_of_somebody_else_is_refused_with_the_reason(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom tailscope.records.store import Store\n"
        "from tailscope.records.errors import StoreError\n"
        "os.setgid(65534)\nos.setuid(65534)\n"
        "try:\n    Store(Path(sys.argv[1]))\n"
        "except StoreError as error:\n    print(error)\n"
    )
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"cannot open the store {tmp_path}: Permission denied\n"


def test_samples_are_kept_by_the_end(store: Store, tmp_path: Path) -> None:
    labels = label_text({"server": "a:1", "engine": "vllm"})
    store.submit_samples([Sample(NOW_NS, "m", labels, 1.0), Sample(NOW_NS + 1, "m", labels, 2.0)])
    store.submit_samples([Sample(NOW_NS + 1, "other", label_text({}), 7.0)])
    store.close()
    frame = Reader(tmp_path).samples(["m"])
    assert frame["value"].tolist() == [1.0, 2.0]
    assert frame["engine"].tolist() == ["vllm", "vllm"]


def sealed(directory: Path, table: str = "requests") -> list[str]:
    return [file.path.name for file in listing(directory / table)[0]]


def test_full_segments_are_sealed(tmp_path: Path) -> None:
    store = Store(tmp_path, segment_bytes=2000)
    for number in range(30):
        store.submit([record(number)]).result(PATIENCE)
    until(lambda: len(sealed(tmp_path)) >= 2)
    assert kept(tmp_path) == list(range(30))
    store.close()
    assert kept(tmp_path) == list(range(30))


def test_an_hour_that_is_over_is_sealed(tmp_path: Path) -> None:
    clock = [7200.0]
    store = Store(tmp_path, now=lambda: clock[0])
    store.submit([record(1)]).result(PATIENCE)
    assert sealed(tmp_path) == []
    clock[0] += 3600
    until(lambda: sealed(tmp_path) == ["0000000001-0000000001.parquet"])
    store.submit([record(2)]).result(PATIENCE)
    assert kept(tmp_path) == [1, 2]
    store.close()


def test_what_an_earlier_run_left_is_sealed(tmp_path: Path) -> None:
    for number in range(3):
        store = Store(tmp_path)
        store.submit([record(number)]).result(PATIENCE)
        store.close()
    store = Store(tmp_path)
    until(lambda: sealed(tmp_path) and not listing(tmp_path / "requests")[1])
    store.close()
    assert kept(tmp_path) == [0, 1, 2]


def test_old_records_go(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.submit([record(1)]).result(PATIENCE)
    store.close()
    later = Store(tmp_path, retention_seconds=60, now=lambda: 4e9)
    until(lambda: not listing(tmp_path / "requests")[1] and not sealed(tmp_path))
    later.submit([record(2)]).result(PATIENCE)
    later.close()
    assert kept(tmp_path) == [2]


def test_a_segment_that_cannot_be_sealed_does_not_stop_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "requests" / "0000000001.journal").mkdir(parents=True)
    store = Store(tmp_path, segment_bytes=100)
    until(lambda: "sealing requests" in caplog.text)
    store.submit_samples([Sample(NOW_NS, "m", "{}", 1.0)])
    store.submit([record(1)]).result(PATIENCE)
    store.close()
    again = Store(tmp_path)
    until(lambda: sealed(tmp_path, "samples"))
    again.close()
