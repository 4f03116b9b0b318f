"""Reads request records from a file: JSON lines, the same as .gz, or Parquet."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tailscope.errors import UsageError
from tailscope.records.jsonl import MAX_LINE, parse_line
from tailscope.records.record import COLUMNS, RecordError, RequestRecord, complete, from_mapping

MAX_NAMED = 5
"""Bad lines that are named one by one."""


@dataclass(slots=True)
class RecordFile:
    """What a file held.

    Attributes:
        records: Its request records.
        rejected: Lines or rows that were none, by reason.
        named: The first of them: where, and what is wrong.
        clamped: Negative times that were set to 0.
    """

    records: list[RequestRecord] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)
    clamped: int = 0

    def take(self, record: RequestRecord, clamped: int) -> None:
        """Keep a record."""
        self.records.append(record)
        self.clamped += clamped

    def leave_out(self, where: str, error: RecordError) -> None:
        """Count what is no record, and name it if it is one of the first."""
        self.rejected[error.reason] += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(f"{where}: {error}")


def read(path: Path) -> RecordFile:
    """Read a file of request records.

    Raises:
        UsageError: If it cannot be read, holds nothing, or holds no record at all.
    """
    found = RecordFile()
    try:
        if path.suffix == ".parquet":
            _read_parquet(path, found)
        else:
            _read_lines(path, found)
    except FileNotFoundError:
        raise UsageError(f"--requests {path}: there is no such file") from None
    except (OSError, EOFError, pa.ArrowException) as error:
        raise UsageError(f"--requests {path}: cannot be read: {error}") from None
    if not found.records:
        raise UsageError(_no_record(path, found))
    return found


def _no_record(path: Path, found: RecordFile) -> str:
    if not found.rejected:
        return f"--requests {path}: the file is empty"
    return (
        f"--requests {path}: no line is a request record ({found.rejected.total():,} were tried); "
        f"{found.named[0]}"
    )


def _read_lines(path: Path, found: RecordFile) -> None:
    for number, line in _lines(path):
        if line.strip():
            try:
                found.take(*parse_line(line))
            except RecordError as error:
                found.leave_out(f"line {number}", error)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines and their numbers; of an overlong one no more than shows that it is so."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            yield number, line
            while len(line) > MAX_LINE and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE + 1)


def _read_parquet(path: Path, found: RecordFile) -> None:
    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name in COLUMNS]
        number = 0
        for batch in file.iter_batches(10_000, columns=names):
            for row in batch.to_pylist():
                number += 1
                try:
                    record = from_mapping(row)
                    found.take(record, complete(record))
                except RecordError as error:
                    found.leave_out(f"row {number}", error)


def rejected_text(found: RecordFile) -> str:
    """Name the lines that were left out, for a terminal; empty if none was."""
    if not found.rejected:
        return ""
    more = found.rejected.total() - len(found.named)
    lines = [f"left out: {text}" for text in found.named]
    if more:
        lines.append(f"left out: {more:,} more ({json.dumps(dict(found.rejected))})")
    return "\n".join(lines)
