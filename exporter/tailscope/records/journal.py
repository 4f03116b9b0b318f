"""An append-only journal of one table, and its sealing into Parquet.

A table is a folder of numbered files::

    0000000007.journal              a segment: what was committed, in order
    0000000001-0000000006.parquet   sealed: all rows of the segments 1 to 6

A segment is a run of frames, each with a length and a CRC-32; the first holds the Arrow schema,
every other one an Arrow record batch. A frame is on the disk before its commit returns. What
follows the last whole frame was never acknowledged and is left out.

A sealed file appears by one rename, and covers its segments from that moment on: a segment, or a
narrower sealed file, that is covered is no longer read. So a crash at any point loses and repeats
nothing.
"""

from __future__ import annotations

import logging
import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

log = logging.getLogger(__name__)

_FRAME = struct.Struct("<4sII")
_MAGIC = b"tsj1"
_SEGMENT = re.compile(r"(\d{10})\.journal")
_SEALED = re.compile(r"(\d{10})-(\d{10})\.parquet")
_MAX_FRAME = 1 << 30
_ROW_GROUP = 32_768


class JournalError(Exception):
    """A file of the store cannot be read or written."""


@dataclass(frozen=True, slots=True, order=True)
class Sealed:
    """A Parquet file that covers the segments ``first`` to ``last``."""

    first: int
    last: int
    path: Path


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A segment that no sealed file covers yet."""

    number: int
    path: Path


def listing(folder: Path) -> tuple[list[Sealed], list[Segment]]:
    """Return the sealed files and the segments that together hold each row once.

    Segments are listed first: one that is sealed in between is then covered, never lost.
    """
    names = _names(folder)
    segments = [
        Segment(int(hit[1]), folder / name) for name in names if (hit := _SEGMENT.fullmatch(name))
    ]
    sealed = [
        Sealed(int(hit[1]), int(hit[2]), folder / name)
        for name in _names(folder)
        if (hit := _SEALED.fullmatch(name))
    ]
    whole = [
        file
        for file in sealed
        if not any(
            other is not file and other.first <= file.first and file.last <= other.last
            for other in sealed
        )
    ]
    live = [
        segment
        for segment in segments
        if not any(file.first <= segment.number <= file.last for file in whole)
    ]
    return sorted(whole), sorted(live)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _last_number(folder: Path) -> int:
    numbers = [0]
    for name in _names(folder):
        if hit := _SEGMENT.fullmatch(name):
            numbers.append(int(hit[1]))
        elif hit := _SEALED.fullmatch(name):
            numbers.append(int(hit[2]))
    return max(numbers)


def _frame(payload: bytes | pa.Buffer) -> bytes:
    view = memoryview(payload)
    return _FRAME.pack(_MAGIC, len(view), zlib.crc32(view)) + bytes(view)


def frames(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the whole frames of a segment from ``offset`` on.

    Yields:
        Offset behind the frame, and its payload. The first frame of a segment is the schema.
    """
    with path.open("rb") as file:
        file.seek(offset)
        while True:
            head = file.read(_FRAME.size)
            if len(head) < _FRAME.size:
                return
            magic, length, crc = _FRAME.unpack(head)
            if magic != _MAGIC or length > _MAX_FRAME:
                return
            payload = file.read(length)
            if len(payload) < length or zlib.crc32(payload) != crc:
                return
            offset += _FRAME.size + length
            yield offset, payload


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a segment, to its last whole one."""
    schema: pa.Schema | None = None
    for _, payload in frames(path):
        if schema is None:
            schema = pa.ipc.read_schema(pa.py_buffer(payload))
        else:
            yield pa.ipc.read_record_batch(pa.py_buffer(payload), schema)


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Journal:
    """The writer of one table. One process at a time; the store holds the lock.

    Args:
        folder: The table's folder; made if it is missing.
        schema: Schema of the batches.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder = folder
        self.schema = schema
        folder.mkdir(parents=True, exist_ok=True)
        for name in _names(folder):
            if name.endswith(".tmp"):
                (folder / name).unlink()
        self._number = _last_number(folder)
        self._closed_to = self._number
        self._file: int | None = None
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes in the open segment; 0 if none is open."""
        return self._size

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a batch and wait until it is on the disk.

        Raises:
            JournalError: If the disk refuses; the segment is then as it was before.
        """
        try:
            if self._file is None:
                self._open()
            self._write(_frame(batch.serialize()))
        except OSError as error:
            self._abandon()
            raise JournalError(f"cannot write to {self.folder}: {error.strerror}") from error

    def _open(self) -> None:
        self._number += 1
        path = self.folder / f"{self._number:010d}.journal"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
        self._size = 0
        self._write(_frame(self.schema.serialize()))
        sync_folder(self.folder)

    def _write(self, data: bytes) -> None:
        assert self._file is not None  # noqa: S101 - for the type checker
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        self._size += len(data)

    def _abandon(self) -> None:
        """Cut off what was written by halves and go on in a new segment."""
        if self._file is not None:
            # A frame by halves at the end is harmless; cutting it only frees the space.
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            self.roll()

    def roll(self) -> None:
        """Close the open segment; the next commit starts a new one."""
        if self._file is not None:
            os.close(self._file)
            self._file, self._size = None, 0
            self._closed_to = self._number

    def closed(self) -> list[Segment]:
        """Segments that nothing is appended to any more. Safe to call from another thread."""
        last = self._closed_to
        return [item for item in listing(self.folder)[1] if item.number <= last]


def seal(folder: Path, segments: list[Segment], schema: pa.Schema) -> Path | None:
    """Turn a run of segments into one Parquet file and remove them.

    Args:
        folder: The table's folder.
        segments: Neighbours in order, none of them open.
        schema: Schema of the table; columns that an older segment lacks become null.

    Returns:
        The new file; None if the segments held no row.

    Raises:
        JournalError: If the disk refuses; the segments are then still there.
    """
    target = folder / f"{segments[0].number:010d}-{segments[-1].number:010d}.parquet"
    temporary = target.with_suffix(".parquet.tmp")
    rows = 0
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            pending: list[pa.RecordBatch] = []
            waiting = 0
            for segment in segments:
                for batch in batches(segment.path):
                    pending.append(batch)
                    waiting += batch.num_rows
                    if waiting >= _ROW_GROUP:
                        rows += _write_group(writer, pending, schema)
                        waiting = 0
            rows += _write_group(writer, pending, schema)
        if rows:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.rename(target)
            sync_folder(folder)
        else:
            temporary.unlink()
        for segment in segments:
            segment.path.unlink(missing_ok=True)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise JournalError(f"cannot seal {target.name}: {error.strerror or error}") from error
    return target if rows else None


def _write_group(writer: pq.ParquetWriter, pending: list[pa.RecordBatch], schema: pa.Schema) -> int:
    if not pending:
        return 0
    table = pa.concat_tables([conform(batch, schema) for batch in pending])
    writer.write_table(table)
    pending.clear()
    return int(table.num_rows)


def conform(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring rows of an older schema to ``schema``: missing columns become null."""
    if batch.schema.equals(schema):
        return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    have = set(batch.schema.names)
    return pa.Table.from_arrays(
        [
            batch.column(field.name).cast(field.type)
            if field.name in have
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def sweep(folder: Path) -> None:
    """Remove files that a crash left behind although a sealed file covers them."""
    sealed, segments = listing(folder)
    keep = {file.path.name for file in sealed} | {segment.path.name for segment in segments}
    for name in _names(folder):
        if (_SEGMENT.fullmatch(name) or _SEALED.fullmatch(name)) and name not in keep:
            log.info("removing %s: a sealed file covers it", name)
            (folder / name).unlink(missing_ok=True)
