"""Reads a store while an exporter writes it, and joins engine rows with gateway rows.

Needs the ``app`` extra (DuckDB, pandas). It never writes, and works on a read-only mount.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailscope.records.clocks import COLUMNS as CLOCKS
from tailscope.records.clocks import Skew, skews
from tailscope.records.joining import (
    MARGIN_NS,
    MAX_NS,
    join,
    join_records,
    needed_columns,
)
from tailscope.records.lone import LONE_KEYS, lone
from tailscope.records.schema import TABLES, NewerSchema, check_version
from tailscope.records.sealing import conform
from tailscope.records.segments import frames, head, listing

__all__ = ["Reader", "ReaderError", "join", "join_records"]

_ATTEMPTS = 10

_IDENTITIES = ("span_id", "trace_id", "request_id")
"""Columns that a row can be known by."""


class ReaderError(Exception):
    """The store cannot be read."""


@dataclass(slots=True)
class _Tail:
    """What was read of a segment so far, and the last frame of it: its offset and its head."""

    offset: int = 0
    last: tuple[int, bytes] = (0, b"")
    schema: pa.Schema | None = None
    batches: list[pa.RecordBatch] = field(default_factory=list)


class Reader:
    """Read access to a store directory. Safe to share between threads.

    Args:
        directory: The exporter's ``--data``. It need not exist yet: it is then empty.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._tails: dict[Path, _Tail] = {}
        self._lock = threading.Lock()
        # Whether, as far as is known, no row has a partner: then the keys need not be read.
        self._lone = True

    def exists(self) -> bool:
        """Whether an exporter has ever opened the directory."""
        return (self.directory / "requests").is_dir()

    def requests(
        self,
        start_ns: int = 0,
        end_ns: int = MAX_NS,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Return one row per request that arrived in ``[start_ns, end_ns)``, oldest first.

        Args:
            start_ns: First arrival that counts.
            end_ns: First arrival that no longer counts.
            columns: Those of ``join`` that are wanted; all if left out. Few are read much sooner.

        Raises:
            ReaderError: If a file is damaged or was written by a newer version.
        """
        low, high = max(start_ns - MARGIN_NS, 0), min(end_ns + MARGIN_NS, MAX_NS)
        if columns is None:
            return join(self._sources("requests", "arrived_ns", low, high), start_ns, end_ns)
        if self._lone:
            needed = {*LONE_KEYS, *needed_columns(columns, keys=False)}
            sources = self._sources("requests", "arrived_ns", low, high, needed)
            self._lone = lone(sources)
            if self._lone:
                return join(sources, start_ns, end_ns, columns, alone=True)
        sources = self._sources("requests", "arrived_ns", low, high, needed_columns(columns))
        return join(sources, start_ns, end_ns, columns)

    def samples(
        self, metrics: Iterable[str], start_ns: int = 0, end_ns: int = MAX_NS
    ) -> pd.DataFrame:
        """Return stored samples of the metrics, oldest first.

        Returns:
            Columns ``time_ns``, ``metric``, ``value`` and one per label that occurs.
        """
        wanted = pa.array(list(metrics), pa.string())
        tables = []
        for table in self._sources("samples", "time_ns", start_ns, end_ns):
            times = table["time_ns"]
            within = pc.and_(pc.greater_equal(times, start_ns), pc.less(times, end_ns))
            tables.append(table.filter(pc.and_(within, pc.is_in(table["metric"], wanted))))
        found = pa.concat_tables(tables).sort_by("time_ns")
        # There are few texts of labels and many samples: each text is read once.
        texts = found["labels"].combine_chunks().dictionary_encode()
        labels = [json.loads(text) for text in texts.dictionary.to_pylist()]
        for name in sorted({name for one in labels for name in one}):
            values = pa.array([one.get(name) for one in labels], pa.string())
            found = found.append_column(name, values.take(texts.indices))
        frame: pd.DataFrame = found.drop(["labels"]).to_pandas()
        return frame

    def span(self) -> tuple[int, int] | None:
        """Return the arrival of the oldest and of the newest request; None if there is none."""
        tables = self._sources("requests", "arrived_ns", 0, MAX_NS, {"arrived_ns"})
        # The journal's tail has all columns.
        arrived = pa.concat_tables([table.select(["arrived_ns"]) for table in tables])
        bounds = pc.min_max(arrived["arrived_ns"]).as_py()
        return None if bounds["min"] is None else (bounds["min"], bounds["max"])

    def arrival(self, identity: str) -> int | None:
        """Return when a row arrived that has this span, trace or request id; None if none has.

        It goes through the whole store, of which it keeps one file at a time in memory.

        Args:
            identity: What is looked for. Of several rows the newest counts.

        Raises:
            ReaderError: If a file is damaged or was written by a newer version.
        """
        needed = {"arrived_ns", *_IDENTITIES}
        tables = self._sources("requests", "arrived_ns", 0, MAX_NS, needed, identity)
        arrived = pa.concat_tables([table.select(["arrived_ns"]) for table in tables])
        found: int | None = pc.max(arrived["arrived_ns"]).as_py()
        return found

    def skews(self, start_ns: int = 0, end_ns: int = MAX_NS) -> tuple[Skew, ...]:
        """Return how far the clocks of engines and gateways are apart, from requests of a time.

        Raises:
            ReaderError: If a file is damaged or was written by a newer version.
        """
        low, high = max(start_ns - MARGIN_NS, 0), min(end_ns + MARGIN_NS, MAX_NS)
        needed = {*needed_columns(()), *CLOCKS}
        return skews(self._sources("requests", "arrived_ns", low, high, needed), start_ns, end_ns)

    def _sources(
        self,
        table: str,
        column: str,
        start_ns: int,
        end_ns: int,
        needed: Collection[str] | None = None,
        identity: str | None = None,
    ) -> list[pa.Table]:
        schema, folder = TABLES[table], self.directory / table
        part = _Part(column, start_ns, end_ns, schema, needed, identity)
        for _ in range(_ATTEMPTS):
            try:
                return self._read(folder, part)
            except FileNotFoundError:
                continue  # sealed or expired since the listing: list again
            except NewerSchema as error:
                raise ReaderError(str(error)) from None
            except (OSError, pa.ArrowException) as error:
                if isinstance(error, OSError) and error.strerror:
                    raise ReaderError(f"cannot read {folder}: {error.strerror}") from error
                # The text of an Arrow error may quote what is in the file.
                raise ReaderError(f"{folder} is damaged ({type(error).__name__})") from error
        raise ReaderError(f"{folder} changes faster than it can be read")

    def _read(self, folder: Path, part: _Part) -> list[pa.Table]:
        sealed, segments = listing(folder)
        found = [pa.Table.from_batches([], part.schema)]
        # The segments first, for they are what may be gone soon: sealed in the meantime.
        with self._lock:
            live = {segment.path for segment in segments}
            for path in [path for path in self._tails if path.parent == folder]:
                if path not in live:
                    del self._tails[path]
            for path in sorted(live):
                tail = self._tail(path)
                if tail.batches and tail.schema is not None:
                    whole = pa.Table.from_batches(tail.batches, tail.schema)
                    found.append(conform(whole, part.schema))
        found = [part.cut(table) for table in found]
        for file in sealed:
            found.append(_sealed_rows(file.path, part))
        return found

    def _tail(self, path: Path) -> _Tail:
        """Read what was added to a segment."""
        tail = self._tails.get(path)
        # A store that was deleted and begun anew has other frames under the old names.
        if tail is None or (tail.offset and head(path, tail.last[0]) != tail.last[1]):
            tail = self._tails[path] = _Tail()
        for offset, payload in frames(path, tail.offset):
            buffer = pa.py_buffer(payload)
            if tail.schema is None:
                schema = pa.ipc.read_schema(buffer)
                check_version(schema, path)
                tail.schema = schema
            else:
                tail.batches.append(pa.ipc.read_record_batch(buffer, tail.schema))
            tail.last = (tail.offset, head(path, tail.offset))
            tail.offset = offset
        return tail


@dataclass(frozen=True, slots=True)
class _Part:
    """What is read of a table.

    Attributes:
        column: Its time.
        start_ns: First time that counts.
        end_ns: First time that no longer counts.
        schema: All of its columns.
        needed: Columns to read; None for all. Others may be read, too.
        identity: Only rows that are known by it; None for all.
    """

    column: str
    start_ns: int
    end_ns: int
    schema: pa.Schema
    needed: Collection[str] | None
    identity: str | None = None

    def cut(self, table: pa.Table, *, whole: bool | None = None) -> pa.Table:
        """Leave out columns and rows that are not needed."""
        if self.identity is not None:
            table, whole = self._identified(table), False
        if self.needed is None or (_unknown(table) if whole is None else whole):
            return table
        return table.select([name for name in self.schema.names if name in self.needed])

    def _identified(self, table: pa.Table) -> pa.Table:
        same = [pc.equal(table[name], self.identity) for name in _IDENTITIES]
        return table.filter(functools.reduce(pc.or_kleene, same))

    def groups(self, file: pq.ParquetFile) -> list[int]:
        """Find the row groups that may have rows of the time."""
        index = file.schema_arrow.get_field_index(self.column)
        found = []
        for number in range(file.num_row_groups):
            statistics = file.metadata.row_group(number).column(index).statistics
            known = statistics is not None and statistics.has_min_max
            if not known or (statistics.max >= self.start_ns and statistics.min < self.end_ns):
                found.append(number)
        return found


def _sealed_rows(path: Path, part: _Part) -> pa.Table:
    with pq.ParquetFile(path) as file:
        check_version(file.schema_arrow, path)
        groups, names = part.groups(file), None
        if part.needed is not None:
            names = [name for name in file.schema_arrow.names if name in part.needed]
        rows = file.read_row_groups(groups, columns=names)
        if names is not None and part.identity is None and _unknown(rows):
            rows, names = file.read_row_groups(groups), None
        return part.cut(conform(rows, part.schema), whole=names is None)


def _unknown(rows: pa.Table) -> bool:
    """Whether a row has no span, so that only all of its columns tell it from another one."""
    return "span_id" in rows.column_names and rows["span_id"].null_count > 0
