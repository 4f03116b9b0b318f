"""Compaction: the many small Parquet files that restarts leave become one per hour.

The new file covers the old ones from its rename on, as a sealed file covers its segments; so a
crash at any point neither loses nor repeats a row, and who reads an old file reads it to its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tailscope.records.schema import check_version
from tailscope.records.sealing import write_sealed
from tailscope.records.segments import Sealed, Segment, listing

_HOUR = 3600
_MAX_BYTES = 256 << 20
_MAX_FILES = 16


def compact(
    folder: Path, schema: pa.Schema, now: float, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Merge neighbours that were sealed in the same hour.

    Those of the present hour are left until it is over, or until they are many. The new file keeps
    the time of the newest that is in it, which is what retention goes by.

    Args:
        folder: The table's folder.
        schema: Schema of the table.
        now: Wall clock, seconds.
        stopped: Asked now and then; True ends the work.

    Raises:
        JournalError: If the disk refuses, or a file is damaged; all files are then still there.
    """
    files, segments = listing(folder)
    for group in _groups(files, segments):
        over = _hour(group[-1]) != int(now // _HOUR)
        if len(group) > 1 and (over or len(group) > _MAX_FILES) and not stopped():
            newest = max(file.path.stat().st_mtime_ns for file in group)
            target = folder / f"{group[0].first:010d}-{group[-1].last:010d}.parquet"
            if write_sealed(target, _tables(group), schema, stopped):
                os.utime(target, ns=(newest, newest))
                for file in group:
                    file.path.unlink(missing_ok=True)


def _groups(files: list[Sealed], segments: list[Segment]) -> Iterator[list[Sealed]]:
    """Split sealed files, in order, into those that may become one."""
    group = files[:1]
    size = sum(file.path.stat().st_size for file in group)
    for before, file in pairwise(files):
        size += file.path.stat().st_size
        # A segment between two files is not sealed yet, and must not seem to be covered.
        between = any(before.last < segment.number < file.first for segment in segments)
        if between or size > _MAX_BYTES or _hour(before) != _hour(file):
            yield group
            group, size = [], file.path.stat().st_size
        group.append(file)
    if group:
        yield group


def _hour(file: Sealed) -> int:
    return int(file.path.stat().st_mtime // _HOUR)


def _tables(group: list[Sealed]) -> Iterator[pa.Table]:
    for sealed in group:
        with pq.ParquetFile(sealed.path) as file:
            check_version(file.schema_arrow, sealed.path)
            for number in range(file.num_row_groups):
                yield file.read_row_group(number)
