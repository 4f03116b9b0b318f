"""``tailscope import``: request records from files into a store."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from pathlib import Path

from tailscope.errors import UsageError
from tailscope.records.errors import StoreError, StoreFull
from tailscope.records.formats import formats, told_format
from tailscope.records.record import EARLIEST_NS, RequestRecord
from tailscope.records.recordfile import LeftOut, read_records
from tailscope.records.store import Store
from tailscope.records.tenancy import Pseudonyms
from tailscope.records.tenantflags import configure_tenants, parse_tenants
from tailscope.records.translation import Translator, instant

_CHUNK = 5_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="request records: JSON lines or CSV, the same as .gz, or .parquet, with the record's "
        "columns or in a format that is known by its keys; FORMAT=FILE tells the format: "
        + ", ".join(formats()),
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="directory of the store")
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="move the first arrival of each file to this time, as 2026-11-30T02:10:00Z, and all "
        "others with it; recordings without a date begin in 2000 otherwise",
    )
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="take the first N records of each file; rates such as ServeGen's make millions",
    )
    configure_tenants(parser)


def run(arguments: argparse.Namespace) -> int:
    """Import every file; a bad row is named and left out, a bad file stops the command."""
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: at least 1, or leave it out")
    rules, pseudonyms = parse_tenants(arguments)
    start = _start(arguments.start)
    files = [told_format("FILE", name) for name in arguments.files]
    for _, path in files:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
    try:
        store = Store(Path(arguments.data))
        try:
            for form, path in files:
                translator = Translator(form, rules=rules, start_ns=start)
                _import(path, store, translator, pseudonyms, arguments.limit)
        finally:
            store.close()
    except StoreError as error:
        raise UsageError(f"--data {arguments.data}: {error}") from None
    return 0


def _start(text: str | None) -> int | None:
    if not text:
        return None
    found = instant(text)
    if found is None or found < EARLIEST_NS:
        raise UsageError(f"--start {text}: give a time such as 2026-11-30T02:10:00Z")
    return found


def _import(
    path: Path,
    store: Store,
    translator: Translator,
    pseudonyms: Pseudonyms | None,
    limit: int | None,
) -> None:
    left_out = LeftOut()
    writes: deque[Future[None]] = deque()
    taken = 0
    try:
        for chunk in _chunks(path, left_out, translator, limit):
            if pseudonyms is not None:
                for record in chunk:
                    pseudonyms.veil(record)
            _submit(store, chunk, writes)
            taken += len(chunk)
            _progress(path, taken)
    finally:
        while writes:
            writes.popleft().result()
        print(f"{path.name}: {taken:,} records", file=sys.stderr)
        if text := left_out.text():
            print(text, file=sys.stderr)
    if left_out.reasons and not taken:
        raise UsageError(f"{path}: no line of it is a request record")


def _chunks(
    path: Path, left_out: LeftOut, translator: Translator, limit: int | None
) -> Iterator[list[RequestRecord]]:
    """Yield the records of a file; of one that breaks off, those that come before."""
    chunk: list[RequestRecord] = []
    try:
        for record in islice(read_records(path, left_out, translator), limit):
            chunk.append(record)
            if len(chunk) == _CHUNK:
                yield chunk
                chunk = []
    except UsageError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _submit(store: Store, chunk: list[RequestRecord], writes: deque[Future[None]]) -> None:
    """Hand a chunk to the store, and wait for earlier ones while it is full."""
    while True:
        try:
            writes.append(store.submit(chunk))
        except StoreFull:
            writes.popleft().result()
        else:
            break
    while writes[0].done():
        writes.popleft().result()
        if not writes:
            return


def _progress(path: Path, taken: int) -> None:
    if sys.stderr.isatty():
        print(f"{path.name}: {taken:,} records", end="\r", file=sys.stderr, flush=True)
