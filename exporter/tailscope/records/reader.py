"""Reads a store while an exporter writes it, and joins engine rows with gateway rows.

Needs the ``app`` extra (DuckDB, pandas). It never writes, and works on a read-only mount.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tailscope.records.journal import conform, frames, listing
from tailscope.records.record import COLUMNS, RequestRecord
from tailscope.records.schema import TABLES, VERSION, request_batch

_MARGIN_NS = 600 * 10**9
"""A partner row may have arrived this much earlier or later than the row that it belongs to."""

_ATTEMPTS = 10
_MAX_NS = 2**63 - 1


class ReaderError(Exception):
    """The store cannot be read."""


@dataclass(slots=True)
class _Tail:
    """What was read of a segment so far."""

    offset: int = 0
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

    def exists(self) -> bool:
        """Whether an exporter has ever opened the directory."""
        return (self.directory / "requests").is_dir()

    def requests(self, start_ns: int = 0, end_ns: int = _MAX_NS) -> pd.DataFrame:
        """Return one row per request that arrived in ``[start_ns, end_ns)``, oldest first.

        See ``join`` for the columns.

        Raises:
            ReaderError: If a file is damaged or was written by a newer version.
        """
        low, high = max(start_ns - _MARGIN_NS, 0), min(end_ns + _MARGIN_NS, _MAX_NS)
        sources = self._sources("requests", "arrived_ns", low, high)
        return join(sources, start_ns, end_ns)

    def samples(
        self, metrics: Iterable[str], start_ns: int = 0, end_ns: int = _MAX_NS
    ) -> pd.DataFrame:
        """Return stored samples of the metrics, oldest first.

        Returns:
            Columns ``time_ns``, ``metric``, ``value`` and one per label that occurs.
        """
        wanted = list(metrics)
        tables = self._sources("samples", "time_ns", start_ns, end_ns)
        with duckdb.connect() as connection:
            union = _register(connection, tables)
            frame = connection.execute(
                f"SELECT * FROM ({union}) WHERE time_ns >= ? AND time_ns < ? "  # noqa: S608
                "AND list_contains(?, metric) ORDER BY time_ns",
                [start_ns, end_ns, wanted],
            ).df()
        texts = frame.pop("labels")
        parsed = {text: json.loads(text) for text in texts.unique()}
        for name in sorted({key for labels in parsed.values() for key in labels}):
            frame[name] = texts.map({text: labels.get(name) for text, labels in parsed.items()})
        return frame

    def span(self) -> tuple[int, int] | None:
        """Return the arrival of the oldest and of the newest request; None if there is none."""
        tables = self._sources("requests", "arrived_ns", 0, _MAX_NS)
        with duckdb.connect() as connection:
            union = _register(connection, tables)
            low, high = connection.execute(
                f"SELECT min(arrived_ns), max(arrived_ns) FROM ({union})"  # noqa: S608
            ).fetchall()[0]
        return None if low is None else (low, high)

    def _sources(self, table: str, column: str, start_ns: int, end_ns: int) -> list[pa.Table]:
        schema = TABLES[table]
        for _ in range(_ATTEMPTS):
            try:
                return self._read(table, column, start_ns, end_ns, schema)
            except FileNotFoundError:
                continue  # sealed or expired since the listing: list again
            except (pa.ArrowException, duckdb.Error) as error:
                raise ReaderError(f"cannot read {self.directory / table}: {error}") from error
        raise ReaderError(f"{self.directory / table} changes faster than it can be read")

    def _read(
        self, table: str, column: str, start_ns: int, end_ns: int, schema: pa.Schema
    ) -> list[pa.Table]:
        sealed, segments = listing(self.directory / table)
        found = [pa.Table.from_batches([], schema)]
        for file in sealed:
            found.append(_sealed_rows(file.path, column, start_ns, end_ns, schema))
        with self._lock:
            live = {segment.path for segment in segments}
            for path in [path for path in self._tails if path.parent.name == table]:
                if path not in live:
                    del self._tails[path]
            for path in sorted(live):
                tail = self._tails.setdefault(path, _Tail())
                for offset, payload in frames(path, tail.offset):
                    tail.offset = offset
                    buffer = pa.py_buffer(payload)
                    if tail.schema is None:
                        tail.schema = pa.ipc.read_schema(buffer)
                        _check_version(tail.schema, path)
                    else:
                        tail.batches.append(pa.ipc.read_record_batch(buffer, tail.schema))
                if tail.batches and tail.schema is not None:
                    found.append(conform(pa.Table.from_batches(tail.batches, tail.schema), schema))
        return found


def _check_version(schema: pa.Schema, path: Path) -> None:
    version = (schema.metadata or {}).get(b"tailscope.schema", b"?").decode("ascii", "replace")
    if not version.isdigit() or int(version) > int(VERSION):
        raise ReaderError(
            f"{path.name} has schema version {version}; this version reads up to {VERSION}: "
            "install a newer tailscope"
        )


def _sealed_rows(
    path: Path, column: str, start_ns: int, end_ns: int, schema: pa.Schema
) -> pa.Table:
    with pq.ParquetFile(path) as file:
        _check_version(file.schema_arrow, path)
        index = file.schema_arrow.get_field_index(column)
        groups = []
        for number in range(file.num_row_groups):
            statistics = file.metadata.row_group(number).column(index).statistics
            known = statistics is not None and statistics.has_min_max
            if not known or (statistics.max >= start_ns and statistics.min < end_ns):
                groups.append(number)
        return conform(file.read_row_groups(groups), schema)


def _register(connection: duckdb.DuckDBPyConnection, tables: Sequence[pa.Table]) -> str:
    names = []
    for number, table in enumerate(tables):
        connection.register(f"part{number}", table)
        names.append(f"SELECT * FROM part{number}")  # noqa: S608
    return " UNION ALL BY NAME ".join(names)


# Engine rows meet gateway rows by identity, never by time: first the span that called the engine,
# then a trace that holds one gateway row only, then the client's request id where it is unique.
# Where a trace holds several gateway rows, only what they agree on is taken.
_JOIN = """
WITH once AS (
    SELECT * FROM ({union})
    WHERE arrived_ns >= $low AND arrived_ns < $high
    QUALIFY row_number() OVER (
        PARTITION BY role, coalesce(
            span_id, concat_ws('/', source, trace_id, request_id, arrived_ns, ended_ns))
        ORDER BY arrived_ns) = 1
),
engine AS (SELECT *, row_number() OVER () AS row_id FROM once WHERE role = 'engine'),
gateway AS (SELECT *, row_number() OVER () AS row_id FROM once WHERE role = 'gateway'),
by_parent AS (
    SELECT e.row_id AS engine_id, min(g.row_id) AS gateway_id, 'parent' AS joined
    FROM engine e JOIN gateway g
      ON e.trace_id = g.trace_id AND e.parent_span_id = g.span_id
    GROUP BY e.row_id
),
lone_trace AS (
    SELECT trace_id, min(row_id) AS gateway_id FROM gateway
    WHERE trace_id IS NOT NULL GROUP BY trace_id HAVING count(*) = 1
),
by_trace AS (
    SELECT e.row_id AS engine_id, t.gateway_id, 'trace' AS joined
    FROM engine e JOIN lone_trace t USING (trace_id)
    WHERE e.row_id NOT IN (SELECT engine_id FROM by_parent)
),
lone_request AS (
    SELECT request_id, min(row_id) AS gateway_id FROM gateway
    WHERE request_id IS NOT NULL GROUP BY request_id HAVING count(*) = 1
),
by_request AS (
    SELECT e.row_id AS engine_id, r.gateway_id, 'request' AS joined
    FROM engine e JOIN lone_request r USING (request_id)
    WHERE e.row_id NOT IN (SELECT engine_id FROM by_parent)
      AND e.row_id NOT IN (SELECT engine_id FROM by_trace)
),
partner AS (
    SELECT * FROM by_parent UNION ALL SELECT * FROM by_trace UNION ALL SELECT * FROM by_request
),
agreed AS (
    SELECT trace_id, min(tenant) AS tenant FROM gateway
    WHERE trace_id IS NOT NULL GROUP BY trace_id
    HAVING count(*) > 1 AND count(DISTINCT tenant) = 1 AND count(*) = count(tenant)
)
SELECT {columns},
    g.total_seconds AS client_seconds, g.ttft_seconds AS client_ttft_seconds,
    CASE WHEN p.joined IS NOT NULL THEN p.joined
         WHEN e.tenant IS NULL AND a.tenant IS NOT NULL THEN 'agreed' END AS joined
FROM engine e
LEFT JOIN partner p ON p.engine_id = e.row_id
LEFT JOIN gateway g ON g.row_id = p.gateway_id
LEFT JOIN agreed a ON p.gateway_id IS NULL AND a.trace_id = e.trace_id
WHERE e.arrived_ns >= $start AND e.arrived_ns < $end
UNION ALL BY NAME
SELECT g.* EXCLUDE (row_id), g.total_seconds AS client_seconds,
    g.ttft_seconds AS client_ttft_seconds, NULL AS joined
FROM gateway g
WHERE g.row_id NOT IN (SELECT gateway_id FROM partner)
  AND g.arrived_ns >= $start AND g.arrived_ns < $end
ORDER BY arrived_ns, span_id
"""

_FROM_BOTH = {
    "tenant": "coalesce(e.tenant, g.tenant, a.tenant)",
    # The engine ends a request well that its client has given up: the client is right.
    "outcome": "CASE WHEN g.outcome IS NOT NULL AND g.outcome <> 'ok' THEN g.outcome "
    "ELSE coalesce(e.outcome, g.outcome) END",
    **{
        name: f"coalesce(e.{name}, g.{name})"
        for name in (
            "request_id",
            "model",
            "cached_tokens",
            "max_tokens",
            "status",
            "finish_reason",
            "session",
            "attempt",
            "priority",
            "adapter",
        )
    },
}


def join(tables: Sequence[pa.Table], start_ns: int = 0, end_ns: int = _MAX_NS) -> pd.DataFrame:
    """Join engine and gateway rows to one row per request.

    An engine row keeps its own values and takes from its gateway row what it lacks. A row without
    a partner stays as it is, with its nulls. A row that was sent twice counts once.

    Args:
        tables: Arrow tables with the schema of the requests table.
        start_ns: First arrival that counts.
        end_ns: First arrival that no longer counts.

    Returns:
        The record's columns, ``client_seconds`` and ``client_ttft_seconds`` (the gateway's view),
        and ``joined``: ``parent``, ``trace``, ``request``, ``agreed`` (only the tenant, because
        all gateway rows of the trace name the same one) or null. Oldest first.
    """
    columns = ", ".join(
        f"{_FROM_BOTH.get(name, 'e.' + name)} AS {name}" for name in TABLES["requests"].names
    )
    with duckdb.connect() as connection:
        union = _register(connection, tables)
        frame = connection.execute(
            _JOIN.format(union=union, columns=columns),
            {
                "start": start_ns,
                "end": end_ns,
                "low": max(start_ns - _MARGIN_NS, 0),
                "high": min(end_ns + _MARGIN_NS, _MAX_NS),
            },
        ).df()
    # A column without any value has no type of its own in DuckDB.
    texts = [name for name, kind in COLUMNS.items() if kind is str]
    return frame.astype(dict.fromkeys([*texts, "joined"], "str"))


def join_records(records: Sequence[RequestRecord]) -> pd.DataFrame:
    """Join records that are in memory, for example those of a file."""
    return join([pa.Table.from_batches([request_batch(records)])])
