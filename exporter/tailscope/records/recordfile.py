"""Files of request records: JSON lines or CSV, the same as .gz, or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tailscope.errors import UsageError
from tailscope.records import servegen
from tailscope.records.jsonl import MAX_LINE, load_line
from tailscope.records.record import COLUMNS, RecordError, RequestRecord
from tailscope.records.translation import Translator

MAX_NAMED = 5
"""Bad lines that are named one by one."""

_ROWS = 5_000


@dataclass(slots=True)
class LeftOut:
    """Lines or rows of a file that are no request records.

    Attributes:
        reasons: How many, by reason.
        named: The first of them: where, and what is wrong. A text of the file is never quoted.
    """

    reasons: Counter[str] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)

    def add(self, where: str, error: RecordError) -> None:
        """Count one, and name it if it is one of the first."""
        self.reasons[error.reason] += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(f"{where}: {error}")

    def text(self) -> str:
        """Say so in a terminal, a line for each that is named; empty if none was left out."""
        more = self.reasons.total() - len(self.named)
        lines = [f"left out: {text}" for text in self.named]
        if more:
            counts = ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.items())
            lines.append(f"left out: {more:,} more (in all: {counts})")
        return "\n".join(lines)


def read_records(
    path: Path, left_out: LeftOut, translator: Translator | None = None
) -> Iterator[RequestRecord]:
    """Yield the records of a file.

    Args:
        path: A file whose name ends in ``.parquet``, or in ``.csv``, or of JSON lines; the latter
            two also as ``.gz``.
        left_out: Where lines that are no records are noted.
        translator: Makes records of the rows; None for one that recognises them.

    Raises:
        UsageError: If the file cannot be read; also later, while the records are walked.
    """
    translator = translator or Translator()
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path, left_out, translator)
        elif ".csv" in path.suffixes[-2:]:
            yield from _table(path, left_out, translator)
        else:
            yield from _lines(path, left_out, translator)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    except csv.Error:
        # Its text may quote what is in the file.
        raise UsageError(f"{path}: is no CSV file") from None
    except pa.ArrowException as error:
        # Its text may quote what is in the file.
        raise UsageError(f"{path}: is no Parquet file ({type(error).__name__})") from None


def _lines(path: Path, left_out: LeftOut, translator: Translator) -> Iterator[RequestRecord]:
    with _open(path) as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if line.strip():
                try:
                    found = translator.record(load_line(line), number)
                except RecordError as error:
                    left_out.add(f"line {number}", error)
                else:
                    if found is not None:
                        yield found[0]
            while len(line) > MAX_LINE and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE + 1)


def _table(path: Path, left_out: LeftOut, translator: Translator) -> Iterator[RequestRecord]:
    with _open(path) as file, io.TextIOWrapper(file, "utf-8-sig", "replace", newline="") as text:
        table = csv.DictReader(text)
        if servegen.recognises(path, table.fieldnames or ()):
            text.seek(0)
            for position, record in enumerate(servegen.arrivals(path, text)):
                translator.finish(record, position)
                yield record
            return
        for number, row in enumerate(table, 2):
            try:
                found = translator.record(row, number)
            except RecordError as error:
                left_out.add(f"line {number}", error)
            else:
                if found is not None:
                    yield found[0]


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _parquet(path: Path, left_out: LeftOut, translator: Translator) -> Iterator[RequestRecord]:
    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name in COLUMNS]
        number = 0
        for batch in file.iter_batches(_ROWS, columns=names):
            for row in _rows(batch):
                number += 1
                try:
                    if row is None:
                        raise RecordError("type", "a value is not of the type of its column")
                    # pandas writes NaN for what is not there.
                    known = {name: value for name, value in row.items() if not _nan(value)}
                    if (found := translator.record(known, number)) is not None:
                        yield found[0]
                except RecordError as error:
                    left_out.add(f"row {number}", error)


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any] | None]:
    """Return the rows; None for one that holds what its column's type does not allow."""
    try:
        rows: list[dict[str, Any] | None] = batch.to_pylist()
    except (ValueError, OverflowError):  # for example text that is no UTF-8
        if batch.num_rows == 1:
            return [None]
        rows = [row for at in range(batch.num_rows) for row in _rows(batch.slice(at, 1))]
    return rows


def _nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
