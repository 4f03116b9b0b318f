"""``tailscope import``: request records from files into a store."""

from __future__ import annotations

import argparse
import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from tailscope.errors import UsageError
from tailscope.records.errors import StoreError, StoreFull
from tailscope.records.jsonl import parse_line
from tailscope.records.record import COLUMNS, RecordError, RequestRecord, complete, from_mapping
from tailscope.records.store import Store

_CHUNK = 5_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="request records: JSON lines, the same as .gz, or .parquet, with the record's columns",
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="directory of the store")


def run(arguments: argparse.Namespace) -> int:
    """Import every file; a bad row is counted and left out, a bad file stops the command."""
    paths = [Path(name) for name in arguments.files]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
    try:
        store = Store(Path(arguments.data))
    except StoreError as error:
        raise UsageError(f"--data {arguments.data}: {error}") from None
    try:
        for path in paths:
            _import(path, store)
    except StoreError as error:
        raise UsageError(f"--data {arguments.data}: {error}") from None
    finally:
        store.close()
    return 0


def _import(path: Path, store: Store) -> None:
    rejected: Counter[str] = Counter()
    taken = 0
    chunk: list[RequestRecord] = []
    last: Future[None] | None = None
    for record in read_file(path, rejected):
        chunk.append(record)
        if len(chunk) == _CHUNK:
            last = _submit(store, chunk, last)
            taken, chunk = taken + len(chunk), []
            print(f"\r{path.name}: {taken:,} records", end="", file=sys.stderr, flush=True)
    last = _submit(store, chunk, last)
    if last is not None:
        last.result()
    taken += len(chunk)
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejected.items()))
    print(
        f"\r{path.name}: {taken:,} records" + (f"; left out: {left_out}" if left_out else ""),
        file=sys.stderr,
    )
    if not taken and rejected:
        raise UsageError(f"{path}: no row is a request record ({left_out})")


def _submit(
    store: Store, chunk: list[RequestRecord], last: Future[None] | None
) -> Future[None] | None:
    if not chunk:
        return last
    try:
        return store.submit(chunk)
    except StoreFull:
        if last is not None:
            last.result()
        return store.submit(chunk)


def read_file(path: Path, rejected: Counter[str]) -> Iterator[RequestRecord]:
    """Yield the records of a file; rows that are none are counted in ``rejected`` by reason.

    Raises:
        UsageError: If the file cannot be read at all.
    """
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path, rejected)
        else:
            with _open(path) as file:
                yield from _lines(file, rejected)
    except (OSError, EOFError, pa.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return path.open("rb")


def _lines(file: IO[bytes], rejected: Counter[str]) -> Iterator[RequestRecord]:
    for line in file:
        if line.strip():
            try:
                yield parse_line(line)[0]
            except RecordError as error:
                rejected[error.reason] += 1


def _parquet(path: Path, rejected: Counter[str]) -> Iterator[RequestRecord]:
    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name in COLUMNS]
        for batch in file.iter_batches(_CHUNK, columns=names):
            for row in batch.to_pylist():
                try:
                    record = from_mapping(row)
                    complete(record)
                    yield record
                except RecordError as error:
                    rejected[error.reason] += 1
