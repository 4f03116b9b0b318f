"""Finds the rows of engines that are two views of one request, and makes one of them.

It is ``tailscope.records.view``, for tables. Needs the ``app`` extra (DuckDB).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tailscope.records.view import GIVEN, TOLERANCE_NS

# A row without a span of its own is the twin of one that has a span, or that is of another source.
# Both have the same request id, or the same trace if one of them has no request id. Where an id
# comes more than once, the first one of an observer is the first one of the other.
_QUERY = """
    WITH views AS (
        SELECT row, source, arrived_ns, trace_id, request_id, engine, server,
            span_id IS NULL AS bare
        FROM records SEMI JOIN seen USING (row)
    ),
    keyed AS (
        SELECT *, 'request' AS key, request_id AS id FROM views WHERE request_id IS NOT NULL
        UNION ALL
        SELECT *, 'trace', trace_id FROM views
        WHERE trace_id IS NOT NULL AND EXISTS (FROM views WHERE request_id IS NULL)
    ),
    numbered AS (
        SELECT *, row_number() OVER (
            PARTITION BY source, bare, key, id ORDER BY arrived_ns, row
        ) AS number
        FROM keyed
    )
    SELECT f.row AS twin, arg_min(s.row, (s.bare, s.source)) AS own
    FROM numbered f JOIN numbered s USING (key, id, number)
    WHERE f.bare AND (NOT s.bare OR s.source < f.source)
        AND (key = 'request' OR f.request_id IS NULL OR s.request_id IS NULL)
        AND coalesce(f.trace_id = s.trace_id, true)
        AND coalesce(f.engine = s.engine, true)
        AND (coalesce(f.server = s.server, true) OR coalesce(f.trace_id = s.trace_id, false))
        AND abs(f.arrived_ns - s.arrived_ns) <= $tolerance
    GROUP BY f.row
"""
_NONE = "SELECT NULL::BIGINT AS twin, NULL::BIGINT AS own WHERE false"


def query(rows: pa.Table) -> str:
    """Return the query that finds them: rows ``twin`` and ``own``, of ``seen`` in ``records``.

    Args:
        rows: The records; with all columns, if an engine's row has no span.
    """
    bare = rows["span_id"].null_count and pc.any(
        pc.and_(pc.equal(rows["role"], "engine"), pc.is_null(rows["span_id"]))
    )
    return _QUERY.replace("$tolerance", str(TOLERANCE_NS)) if bare and bare.as_py() else _NONE


def filled(own: pa.Table, twin: pa.Table) -> pa.Table:
    """Give rows what their twins know and they do not; and a twin's word if it is not well.

    Args:
        own: The rows.
        twin: The twin of each, in their order; nulls where there is none.
    """
    for index, name in enumerate(own.column_names):
        if name not in GIVEN:
            continue
        column = pc.coalesce(own[name], twin[name])
        if name == "outcome":
            ill = pc.fill_null(pc.not_equal(twin[name], "ok"), False)
            well = pc.fill_null(pc.equal(own[name], "ok"), False)
            column = pc.if_else(pc.and_(ill, well), twin[name], column)
        own = own.set_column(index, own.schema.field(name), column)
    return own
