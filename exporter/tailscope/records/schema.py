"""The store's tables as Arrow schemas, and the way from Python rows to Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailscope.records.record import COLUMNS, RequestRecord
from tailscope.records.samples import Sample

VERSION = "1"
"""Version of the schemas; it is written into every file, and a reader refuses a newer one."""

_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_META = {"tailscope.schema": VERSION}

REQUESTS = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()], _META)
"""One row per request record."""

SAMPLES = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("metric", pa.string()),
        ("labels", pa.string()),
        ("value", pa.float64()),
    ],
    _META,
)
"""One row per stored sample; ``labels`` is a JSON object with sorted keys."""


class NewerSchema(Exception):
    """A file was written by a newer version."""


def check_version(schema: pa.Schema, path: Path) -> None:
    """Refuse a file of a newer version, whose columns this one does not know.

    Raises:
        NewerSchema: If it is one.
    """
    version = (schema.metadata or {}).get(b"tailscope.schema", b"?").decode("ascii", "replace")
    if not (version.isdecimal() and int(version) <= int(VERSION)):
        raise NewerSchema(
            f"{path.name} has schema version {version}; this version reads up to {VERSION}: "
            "install a newer tailscope"
        )


TABLES: dict[str, pa.Schema] = {"requests": REQUESTS, "samples": SAMPLES}


_row = attrgetter(*COLUMNS)


def request_batch(records: Sequence[RequestRecord]) -> pa.RecordBatch:
    """Turn records into one Arrow batch.

    Raises:
        pa.ArrowException, TypeError, OverflowError: If a value does not fit its column.
    """
    columns = list(zip(*map(_row, records), strict=True)) or [()] * len(REQUESTS)
    return pa.RecordBatch.from_arrays(
        [_array(column, field.type) for column, field in zip(columns, REQUESTS, strict=True)],
        schema=REQUESTS,
    )


def _array(column: Sequence[Any], type_: pa.DataType) -> pa.Array:
    # Most producers leave half of the columns empty, and name themselves in each row.
    if not column or (column[0] is None and column.count(None) == len(column)):
        return pa.nulls(len(column), type_)
    one = column[0]
    if type(one) is str and one == column[-1] and column.count(one) == len(column):
        return pa.repeat(pa.scalar(one, type_), len(column))
    return pa.array(column, type_)


def sample_batch(samples: Sequence[Sample]) -> pa.RecordBatch:
    """Turn samples into one Arrow batch."""
    columns = list(zip(*samples, strict=True)) or [()] * len(SAMPLES)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SAMPLES, strict=True)],
        schema=SAMPLES,
    )
