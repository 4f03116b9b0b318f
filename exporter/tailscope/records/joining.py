"""Joins engine rows with gateway rows to one row per request.

DuckDB finds out which rows belong together, on the identifying columns alone; Arrow then gathers
the rest. Needs the ``app`` extra (DuckDB, pandas).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tailscope.records import twins
from tailscope.records.lone import lone
from tailscope.records.record import COLUMNS, RequestRecord
from tailscope.records.schema import REQUESTS, request_batch
from tailscope.records.sealing import conform

MARGIN_NS = 600 * 10**9
"""A partner row may have arrived this much earlier or later than the row that it belongs to."""

MAX_NS = 2**63 - 1

# A gateway row whose span called that of another gateway row, or that stands alone beside a
# middleware's in a trace, is an outer view of the same request: it gives what the inner one lacks
# and is no request of its own. Several inner ones are the attempts of one call: they share its
# tenant and its session.
# A row is known by its span, and the fuller one counts; one without a span is the same only if it
# is so in every column that its source told: what was inferred may be another thing when a file is
# read again. A twin is another view that an engine gives of a request: no request of its own.
# Engine rows meet gateway rows by identity, never by time: first the span that called the engine,
# then a trace that holds one gateway row only, then the client's request id where it is unique.
# Where a trace holds several gateway rows, only what they agree on is taken.
_PAIRS = """
WITH keys AS MATERIALIZED (
    SELECT row, role, source, arrived_ns, trace_id, span_id, parent_span_id, request_id, tenant,
        queue_seconds, CASE WHEN span_id IS NULL THEN hash(WHOLE) END AS whole
    FROM records
),
first AS (
    SELECT coalesce(min(row) FILTER (queue_seconds IS NOT NULL), min(row)) AS row
    FROM keys GROUP BY role, trace_id, span_id, whole
),
once AS MATERIALIZED (SELECT * FROM keys SEMI JOIN first USING (row)),
seen AS (SELECT * FROM once WHERE role = 'engine'),
twins AS MATERIALIZED (TWINS),
engine AS (SELECT * FROM seen s WHERE NOT EXISTS (FROM twins t WHERE t.twin = s.row)),
twin_of AS (SELECT own, min(twin) AS twin FROM twins GROUP BY own),
views AS MATERIALIZED (SELECT * FROM once WHERE role = 'gateway'),
called AS (
    SELECT i.row AS near, min(o.row) AS far
    FROM views i JOIN views o ON i.trace_id = o.trace_id AND i.parent_span_id = o.span_id
    WHERE i.row != o.row
    GROUP BY i.row
),
beside AS (
    SELECT min(row) FILTER (source = 'middleware') AS near,
        min(row) FILTER (source != 'middleware') AS far
    FROM views WHERE trace_id IS NOT NULL GROUP BY trace_id
    HAVING count(*) = 2 AND count(*) FILTER (source = 'middleware') = 1
),
linked AS (
    SELECT * FROM called
    UNION ALL
    SELECT * FROM beside b
    WHERE NOT EXISTS (FROM called c WHERE c.near IN (b.near, b.far))
),
outer_view AS MATERIALIZED (
    SELECT near, far, count(*) OVER (PARTITION BY far) AS attempts FROM linked
),
gateway AS MATERIALIZED (
    SELECT * FROM views v WHERE NOT EXISTS (FROM outer_view o WHERE o.far = v.row)
),
by_parent AS MATERIALIZED (
    SELECT e.row AS engine, min(g.row) AS gateway, 'parent' AS joined
    FROM engine e JOIN gateway g ON e.trace_id = g.trace_id AND e.parent_span_id = g.span_id
    GROUP BY e.row
),
lone_trace AS (
    SELECT trace_id, min(row) AS gateway FROM gateway
    WHERE trace_id IS NOT NULL GROUP BY trace_id HAVING count(*) = 1
),
by_trace AS MATERIALIZED (
    SELECT e.row AS engine, t.gateway, 'trace' AS joined
    FROM engine e JOIN lone_trace t USING (trace_id)
    WHERE NOT EXISTS (FROM by_parent p WHERE p.engine = e.row)
),
lone_request AS (
    SELECT request_id, min(row) AS gateway FROM gateway
    WHERE request_id IS NOT NULL GROUP BY request_id HAVING count(*) = 1
),
by_request AS (
    SELECT e.row AS engine, r.gateway, 'request' AS joined
    FROM engine e JOIN lone_request r USING (request_id)
    WHERE NOT EXISTS (FROM by_parent p WHERE p.engine = e.row)
      AND NOT EXISTS (FROM by_trace t WHERE t.engine = e.row)
),
partner AS MATERIALIZED (
    SELECT *, count(*) OVER (PARTITION BY gateway) AS parts FROM (
        SELECT * FROM by_parent UNION ALL SELECT * FROM by_trace UNION ALL SELECT * FROM by_request
    )
),
agreed AS (
    SELECT trace_id, min(tenant) AS tenant FROM gateway
    WHERE trace_id IS NOT NULL GROUP BY trace_id
    HAVING count(*) > 1 AND count(DISTINCT tenant) = 1 AND count(*) = count(tenant)
)
SELECT e.row AS own, w.twin AS twin, p.gateway AS partner, p.parts AS parts, o.far AS far,
    o.attempts AS attempts, a.tenant AS agreed,
    CASE WHEN p.joined IS NOT NULL THEN p.joined
         WHEN e.tenant IS NULL AND a.tenant IS NOT NULL THEN 'agreed' END AS joined,
    e.arrived_ns AS arrived_ns
FROM engine e
LEFT JOIN twin_of w ON w.own = e.row
LEFT JOIN partner p ON p.engine = e.row
LEFT JOIN outer_view o ON o.near = p.gateway
LEFT JOIN agreed a ON p.gateway IS NULL AND a.trace_id = e.trace_id
WHERE e.arrived_ns >= $start AND e.arrived_ns < $end
UNION ALL
SELECT g.row, NULL, g.row, 1, o.far, o.attempts, NULL, NULL, g.arrived_ns
FROM gateway g
LEFT JOIN outer_view o ON o.near = g.row
WHERE NOT EXISTS (FROM partner p WHERE p.gateway = g.row)
  AND g.arrived_ns >= $start AND g.arrived_ns < $end
ORDER BY arrived_ns, own
"""

_FROM_PARTNER = (
    "tenant",
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
"""What an engine row takes from its gateway row where it lacks it."""

_OF_CALL = ("tenant", "session", "priority")
"""What the attempts of one call share."""

_OF_WHOLE = ("input_tokens", "output_tokens")
"""What it takes only if it is the one engine row of its gateway row, which has the sum of all."""

_OF_PARTNER = ("outcome", "total_seconds", "ttft_seconds")
_CLIENT = {"client_seconds": "total_seconds", "client_ttft_seconds": "ttft_seconds"}
_KEYS = (
    "role",
    "source",
    "arrived_ns",
    "trace_id",
    "span_id",
    "parent_span_id",
    "request_id",
    "tenant",
    "queue_seconds",
)

_INFERRED = {
    "server": "server",
    "model": "model",
    "arrived_ns": "arrived_ns",
    "ended_ns": "arrived_ns",
}
"""Columns that are inferred sometimes, and the mark of it."""

JOINED_COLUMNS = (*COLUMNS, *_CLIENT, "joined")
"""Columns of a joined row."""
_TYPES = {pa.string(): pd.StringDtype(na_value=np.nan), pa.int64(): pd.Int64Dtype()}


def needed_columns(columns: Iterable[str], *, keys: bool = True) -> set[str]:
    """Return the columns of the requests table that are needed for some of the joined ones.

    Args:
        columns: Columns of the joined rows.
        keys: Whether those that rows are joined by are among them.

    Raises:
        KeyError: If there is no such column.
    """
    if unknown := set(columns) - set(JOINED_COLUMNS):
        raise KeyError(f"no column {min(unknown)}")
    return {
        *(_KEYS if keys else ()),
        *(_CLIENT.get(name, name) for name in columns if name != "joined"),
    }


def join(
    tables: Sequence[pa.Table],
    start_ns: int = 0,
    end_ns: int = MAX_NS,
    columns: Sequence[str] | None = None,
    *,
    alone: bool = False,
) -> pd.DataFrame:
    """Join engine and gateway rows to one row per request.

    An engine row keeps its own values and takes from its gateway row what it lacks. A row without
    a partner stays as it is, with its nulls. A row that was sent twice counts once.

    Args:
        tables: Arrow tables with the schema of the requests table; of ``needed_columns``, at least,
            and of all where a row has no span.
        start_ns: First arrival that counts.
        end_ns: First arrival that no longer counts.
        columns: Which columns; all if left out.
        alone: Whether ``lone`` said so of these tables; it is found out if not.

    Returns:
        The record's columns, ``client_seconds`` and ``client_ttft_seconds`` (the gateway's view),
        and ``joined``: ``parent``, ``trace``, ``request``, ``agreed`` (only the tenant, because
        all gateway rows of the trace name the same one) or null. Oldest first.
    """
    names = JOINED_COLUMNS if columns is None else columns
    needed = needed_columns(names, keys=False)
    rows = _within(_one_table(tables, {*needed, *_KEYS}), start_ns, end_ns)
    pairs = _pairs(rows, start_ns, end_ns, alone=alone)
    joined = _Joined(rows, needed, pairs)
    table = pa.table({name: joined.column(name) for name in names})
    frame: pd.DataFrame = table.to_pandas(types_mapper=_TYPES.get)
    return frame.astype({"arrived_ns": np.int64}) if "arrived_ns" in names else frame


def partners(
    tables: Sequence[pa.Table], columns: Sequence[str], start_ns: int = 0, end_ns: int = MAX_NS
) -> tuple[pa.Table, pa.Table]:
    """Return the engine rows that have a gateway row, and that row of each: columns of the record.

    Args:
        tables: As of ``join``.
        columns: Which columns.
        start_ns: First arrival that counts.
        end_ns: First arrival that no longer counts.
    """
    rows = _within(_one_table(tables, {*columns, *_KEYS}), start_ns, end_ns)
    pairs = _pairs(rows, start_ns, end_ns)
    both = pairs.filter(pc.and_(pc.is_valid(pairs["joined"]), pc.is_valid(pairs["partner"])))
    wanted = rows.select(list(columns))
    return wanted.take(both["own"]), wanted.take(both["partner"])


def _one_table(tables: Sequence[pa.Table], needed: Collection[str]) -> pa.Table:
    """Put tables together: all of their columns where some row is known by nothing less."""
    whole = any(table["span_id"].null_count for table in tables)
    have = {name for table in tables for name in table.column_names}
    names = [name for name in COLUMNS if whole or (name in needed and (name in have or not have))]
    empty = REQUESTS.empty_table().select(names)
    return pa.concat_tables(
        [empty, *(conform(table, empty.schema) for table in tables if table.num_rows)]
    )


class _Joined:
    """The columns of joined rows."""

    def __init__(self, rows: pa.Table, needed: Collection[str], pairs: pa.Table) -> None:
        self._pairs = pairs
        mine = rows.select([name for name in COLUMNS if name in needed])
        self._own = _taken(mine, pairs["own"])
        if pairs["twin"].null_count < pairs.num_rows:
            self._own = twins.filled(self._own, mine.take(pairs["twin"]))
        self._views: tuple[pa.Table, ...] = ()
        # Most often there is no gateway at all.
        if pairs["partner"].null_count < pairs.num_rows:
            shared = [name for name in (*_FROM_PARTNER, *_OF_WHOLE, *_OF_PARTNER) if name in needed]
            nobody = pa.scalar(None, pa.int64())
            caller = pc.if_else(pc.equal(pairs["attempts"], 1), pairs["far"], nobody)
            self._views = tuple(rows.select(shared).take(row) for row in (pairs["partner"], caller))
            of_call = [name for name in _OF_CALL if name in needed]
            self._whole = pc.equal(pairs["parts"], 1)
            self._call = rows.select([*of_call, "span_id"]).take(pairs["far"])

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column."""
        if name == "joined":
            return self._pairs["joined"]
        if name in _CLIENT:
            return self._of_client(_CLIENT[name])
        found = self._own[name]
        if self._views:
            found = self._of_views(name, found)
        return pc.coalesce(found, self._pairs["agreed"]) if name == "tenant" else found

    def _of_client(self, name: str) -> pa.ChunkedArray:
        """Return the outermost view of a time."""
        if not self._views:
            return pa.chunked_array([pa.nulls(self._pairs.num_rows, REQUESTS.field(name).type)])
        return pc.coalesce(*(view[name] for view in reversed(self._views)))

    def _of_views(self, name: str, own: pa.ChunkedArray) -> pa.ChunkedArray:
        """Fill a column from the gateways, the nearest one first, and from the call."""
        if name == "outcome":
            return _outcome(own, *(view[name] for view in self._views))
        found = own
        if name in _FROM_PARTNER:
            found = pc.coalesce(found, *(view[name] for view in self._views))
        if name in _OF_WHOLE:
            nothing = pa.scalar(None, pa.int64())
            sums = (pc.if_else(self._whole, view[name], nothing) for view in self._views)
            found = pc.coalesce(found, *sums)
        if name in _OF_CALL:
            found = pc.coalesce(found, self._call[name])
        if name == "session":
            several = pc.greater(self._pairs["attempts"], 1)
            nothing = pa.scalar(None, pa.string())
            found = pc.coalesce(found, pc.if_else(several, self._call["span_id"], nothing))
        return found


def join_records(records: Sequence[RequestRecord]) -> pd.DataFrame:
    """Join records that are in memory, for example those of a file."""
    return join([pa.Table.from_batches([request_batch(records)])])


def _outcome(own: pa.Array, partner: pa.Array, caller: pa.Array) -> pa.Array:
    """What the outermost says if it is not well; else the next one's word."""
    found = pc.coalesce(own, partner, caller)
    for told in (partner, caller):
        given_up = pc.fill_null(pc.not_equal(told, "ok"), False)
        found = pc.if_else(given_up, told, found)
    return found


def _within(rows: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    """Leave out rows that are outside of the window and of its margins."""
    if start_ns <= 0 and end_ns >= MAX_NS:
        return rows
    arrived = rows["arrived_ns"]
    low, high = max(start_ns - MARGIN_NS, 0), min(end_ns + MARGIN_NS, MAX_NS)
    return rows.filter(pc.and_(pc.greater_equal(arrived, low), pc.less(arrived, high)))


def _taken(rows: pa.Table, own: pa.ChunkedArray) -> pa.Table:
    """The rows of these numbers; the table itself where that is all of it, in order."""
    order = own.to_numpy()
    whole = len(order) == rows.num_rows and np.array_equal(order, np.arange(len(order)))
    return rows if whole else rows.take(own)


def _pairs(rows: pa.Table, start_ns: int, end_ns: int, *, alone: bool = False) -> pa.Table:
    """Find the requests: row numbers of each, and of its partner."""
    # A reader that left out the other keys has made sure of it.
    if alone or "trace_id" not in rows.column_names or lone([rows]):
        return _lone_pairs(rows, start_ns, end_ns)
    marked = "inferred" in rows.column_names
    whole = ", ".join(
        _told(name) if marked else name for name in rows.column_names if name != "inferred"
    )
    numbered = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    with duckdb.connect() as connection:
        connection.register("records", numbered)
        query = _PAIRS.replace("WHOLE", whole).replace("TWINS", twins.query(rows))
        found = connection.sql(query, params={"start": start_ns, "end": end_ns})
        return found.to_arrow_table()


def _told(name: str) -> str:
    """A column, null where it was inferred."""
    mark = _INFERRED.get(name)
    return f"CASE WHEN contains(inferred, '{mark}') THEN NULL ELSE {name} END" if mark else name


def _lone_pairs(rows: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    arrived = rows["arrived_ns"].to_numpy()
    own = np.argsort(arrived, kind="stable")
    first, last = np.searchsorted(arrived[own], (start_ns, end_ns))
    own = own[first:last]
    nothing = pa.nulls(len(own), pa.string())
    return pa.table(
        {
            "own": own,
            "twin": pa.nulls(len(own), pa.int64()),
            "partner": pa.nulls(len(own), pa.int64()),
            "agreed": nothing,
            "joined": nothing,
        }
    )
