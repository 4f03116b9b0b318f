"""Segments: the files in which a table lies, and their format.

A table is a folder of numbered files::

    0000000007.journal              a segment: what was committed, in order
    0000000001-0000000006.parquet   sealed: all rows of the segments 1 to 6

A segment is a run of frames, each with a length and a CRC-32; the first holds the Arrow schema,
every other one an Arrow record batch. A frame is on the disk before its commit returns. What
follows the last whole frame was never acknowledged and is left out. A damaged frame with whole ones
behind it, as a failing disk leaves, is passed over.

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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tailscope.records.schema import check_version

log = logging.getLogger(__name__)

_FRAME = struct.Struct("<4sII")
_MAGIC = b"tsj1"
_SEGMENT = re.compile(r"(\d{10})\.journal")
_SEALED = re.compile(r"(\d{10})-(\d{10})\.parquet")


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


def last_number(folder: Path) -> int:
    """Return the highest number that any file of the folder has; 0 if there is none."""
    numbers = [0]
    for name in _names(folder):
        if hit := _SEGMENT.fullmatch(name):
            numbers.append(int(hit[1]))
        elif hit := _SEALED.fullmatch(name):
            numbers.append(int(hit[2]))
    return max(numbers)


def frame(payload: bytes | pa.Buffer) -> bytes:
    """Write a frame."""
    view = memoryview(payload)
    return _FRAME.pack(_MAGIC, len(view), zlib.crc32(view)) + bytes(view)


def frames(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the whole frames of a segment from ``offset`` on.

    Yields:
        Offset behind the frame, and its payload. The first frame of a segment is the schema.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while True:
            payload = _payload(file, offset, size)
            if payload is None:
                whole = _next_whole(file, offset, size)
                if whole is None:
                    return
                log.error("%s: %d bytes at %d are damaged", path.name, whole - offset, offset)
                offset = whole
                continue
            offset += _FRAME.size + len(payload)
            yield offset, payload


def head(path: Path, offset: int) -> bytes:
    """Read the head of the frame at ``offset``: as good as its name, for it has the checksum."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_FRAME.size)


def _payload(file: BinaryIO, offset: int, size: int) -> bytes | None:
    """Read the frame at ``offset``; None if none is whole there."""
    file.seek(offset)
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    magic, length, crc = _FRAME.unpack(head)
    if magic != _MAGIC or length > size - offset - _FRAME.size:
        return None
    payload = file.read(length)
    return payload if len(payload) == length and zlib.crc32(payload) == crc else None


def _next_whole(file: BinaryIO, offset: int, size: int) -> int | None:
    """Find the next whole frame behind a damaged one; None if there is none."""
    file.seek(offset)
    rest = file.read()
    position = rest.find(_MAGIC, 1)
    while position >= 0:
        if _payload(file, offset + position, size) is not None:
            return offset + position
        position = rest.find(_MAGIC, position + 1)
    return None


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a segment, to its last whole one.

    Raises:
        OSError: If the segment cannot be read.
        NewerSchema: If a newer version wrote it.
        pa.ArrowException: If a frame is whole, but holds something else.
    """
    schema: pa.Schema | None = None
    for _, payload in frames(path):
        if schema is None:
            schema = pa.ipc.read_schema(pa.py_buffer(payload))
            check_version(schema, path)
        else:
            yield pa.ipc.read_record_batch(pa.py_buffer(payload), schema)


def sweep(folder: Path) -> None:
    """Remove files that a crash left behind although a sealed file covers them."""
    # The names first: what the writer begins after that is none of them.
    names = _names(folder)
    sealed, _ = listing(folder)
    for name in names:
        hit = _SEGMENT.fullmatch(name) or _SEALED.fullmatch(name)
        if hit is None:
            continue
        first, last = int(hit[1]), int(hit[hit.re.groups])
        if any(
            file.first <= first and last <= file.last and file.path.name != name for file in sealed
        ):
            log.info("removing %s: a sealed file covers it", name)
            (folder / name).unlink(missing_ok=True)
