"""The writer of one table: an append-only journal, in segments."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from tailscope.records.segments import Segment, frame, last_number, listing

log = logging.getLogger(__name__)


class JournalError(Exception):
    """A file of the store cannot be read or written."""


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
        for left in folder.glob("*.tmp"):
            left.unlink()
        self._number = last_number(folder)
        self._closed_to = self._number
        self._file: int | None = None
        self._size = 0
        self._committed = False

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
            if self._file is not None and not os.fstat(self._file).st_nlink:
                log.error("%s was deleted while it was written", self._path)
                self.roll()
            if self._file is None:
                self._open()
            self._write(frame(batch.serialize()))
            self._committed = True
        except OSError as error:
            self._abandon()
            raise JournalError(f"cannot write to {self.folder}: {error.strerror}") from error

    @property
    def _path(self) -> Path:
        return self.folder / f"{self._number:010d}.journal"

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
        self._size = 0
        self._committed = False
        self._write(frame(self.schema.serialize()))
        sync_folder(self.folder)

    def _write(self, data: bytes) -> None:
        assert self._file is not None  # noqa: S101 - for the type checker
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        self._size += len(data)

    def _abandon(self) -> None:
        """Take back what was written by halves, and go on in a new segment."""
        if self._file is None:
            return
        # What is left if the disk refuses this too is harmless: a frame by halves is passed over,
        # and a whole one that was not acknowledged is what its sender will send again.
        with suppress(OSError):
            if self._committed:
                os.ftruncate(self._file, self._size)
            else:
                self._path.unlink()
        self.roll()

    def roll(self) -> None:
        """Close the open segment; the next commit starts a new one."""
        if self._file is not None:
            try:
                os.close(self._file)
            except OSError as error:
                log.error("closing %s: %s", self._path, error.strerror)
            self._file, self._size = None, 0
            self._closed_to = self._number

    def closed(self) -> list[Segment]:
        """Segments that nothing is appended to any more. Safe to call from another thread."""
        last = self._closed_to
        return [item for item in listing(self.folder)[1] if item.number <= last]
