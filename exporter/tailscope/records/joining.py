"""Joins engine rows with gateway rows to one row per request.

DuckDB finds out which rows belong together, on the identifying columns alone; Arrow then gathers
the rest. Needs the ``app`` extra (DuckDB, pandas).
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tailscope.records.record import COLUMNS, RequestRecord
from tailscope.records.schema import REQUESTS, request_batch

MARGIN_NS = 600 * 10**9
"""A partner row may have arrived this much earlier or later than the row that it belongs to."""

MAX_NS = 2**63 - 1

# A gateway row whose span called that of another gateway row, or that stands alone beside a
# middleware's in a trace, is an outer view of the same request: it gives what the inner one lacks
# and is no request of its own. Several inner ones are the attempts of one call: they share its
# tenant and its session.
# A row is known by its span; one without a span is the same only if it is so in every column.
# Engine rows meet gateway rows by identity, never by time: first the span that called the engine,
# then a trace that holds one gateway row only, then the client's request id where it is unique.
# Where a trace holds several gateway rows, only what they agree on is taken.
_PAIRS = f"""
WITH keys AS MATERIALIZED (
    SELECT row, role, source, arrived_ns, trace_id, span_id, parent_span_id, request_id, tenant,
        CASE WHEN span_id IS NULL THEN hash({", ".join(COLUMNS)}) END AS whole
    FROM records
),
first AS (SELECT min(row) AS row FROM keys GROUP BY role, trace_id, span_id, whole),
once AS MATERIALIZED (SELECT * FROM keys SEMI JOIN first USING (row)),
engine AS (SELECT * FROM once WHERE role = 'engine'),
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
    SELECT * FROM by_parent UNION ALL SELECT * FROM by_trace UNION ALL SELECT * FROM by_request
),
agreed AS (
    SELECT trace_id, min(tenant) AS tenant FROM gateway
    WHERE trace_id IS NOT NULL GROUP BY trace_id
    HAVING count(*) > 1 AND count(DISTINCT tenant) = 1 AND count(*) = count(tenant)
)
SELECT e.row AS own, p.gateway AS partner, o.far AS far, o.attempts AS attempts, a.tenant AS agreed,
    CASE WHEN p.joined IS NOT NULL THEN p.joined
         WHEN e.tenant IS NULL AND a.tenant IS NOT NULL THEN 'agreed' END AS joined,
    e.arrived_ns AS arrived_ns
FROM engine e
LEFT JOIN partner p ON p.engine = e.row
LEFT JOIN outer_view o ON o.near = p.gateway
LEFT JOIN agreed a ON p.gateway IS NULL AND a.trace_id = e.trace_id
WHERE e.arrived_ns >= $start AND e.arrived_ns < $end
UNION ALL
SELECT g.row, g.row, o.far, o.attempts, NULL, NULL, g.arrived_ns
FROM gateway g
LEFT JOIN outer_view o ON o.near = g.row
WHERE NOT EXISTS (FROM partner p WHERE p.gateway = g.row)
  AND g.arrived_ns >= $start AND g.arrived_ns < $end
ORDER BY arrived_ns, own
"""  # noqa: S608 - the names of our own columns

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

_OF_PARTNER = ("outcome", "total_seconds", "ttft_seconds")
_TYPES = {pa.string(): pd.StringDtype(na_value=np.nan), pa.int64(): pd.Int64Dtype()}


def join(tables: Sequence[pa.Table], start_ns: int = 0, end_ns: int = MAX_NS) -> pd.DataFrame:
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
    rows = _within(pa.concat_tables([REQUESTS.empty_table(), *tables]), start_ns, end_ns)
    pairs = _pairs(rows, start_ns, end_ns)
    own = rows.take(pairs["own"])
    taken = [*_FROM_PARTNER, *_OF_PARTNER]
    partner = rows.select(taken).take(pairs["partner"])
    lone = pc.if_else(pc.equal(pairs["attempts"], 1), pairs["far"], pa.scalar(None, pa.int64()))
    caller = rows.select(taken).take(lone)
    call = rows.select([*_OF_CALL, "span_id"]).take(pairs["far"])
    columns = {name: own[name] for name in COLUMNS}
    for name in _FROM_PARTNER:
        columns[name] = pc.coalesce(own[name], partner[name], caller[name])
    for name in _OF_CALL:
        columns[name] = pc.coalesce(columns[name], call[name])
    several = pc.if_else(pc.greater(pairs["attempts"], 1), call["span_id"], None)
    columns["session"] = pc.coalesce(columns["session"], several)
    columns["tenant"] = pc.coalesce(columns["tenant"], pairs["agreed"])
    # The engine ends a request well that its client has given up: the client is right.
    columns["outcome"] = _outcome(own["outcome"], partner["outcome"], caller["outcome"])
    columns["client_seconds"] = pc.coalesce(caller["total_seconds"], partner["total_seconds"])
    columns["client_ttft_seconds"] = pc.coalesce(caller["ttft_seconds"], partner["ttft_seconds"])
    columns["joined"] = pairs["joined"]
    frame: pd.DataFrame = pa.table(columns).to_pandas(types_mapper=_TYPES.get)
    return frame.astype({"arrived_ns": np.int64})


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
    arrived = rows["arrived_ns"]
    low, high = max(start_ns - MARGIN_NS, 0), min(end_ns + MARGIN_NS, MAX_NS)
    return rows.filter(pc.and_(pc.greater_equal(arrived, low), pc.less(arrived, high)))


def _pairs(rows: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    """Find the requests: row numbers of each, and of its partner."""
    numbered = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    with duckdb.connect() as connection:
        connection.register("records", numbered)
        found = connection.sql(_PAIRS, params={"start": start_ns, "end": end_ns})
        return found.to_arrow_table()
