"""The store's tables as Arrow schemas, and the way from Python rows to Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence

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

TABLES: dict[str, pa.Schema] = {"requests": REQUESTS, "samples": SAMPLES}


def request_batch(records: Sequence[RequestRecord]) -> pa.RecordBatch:
    """Turn records into one Arrow batch."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([getattr(record, name) for record in records], _ARROW[kind])
            for name, kind in COLUMNS.items()
        ],
        schema=REQUESTS,
    )


def sample_batch(samples: Sequence[Sample]) -> pa.RecordBatch:
    """Turn samples into one Arrow batch."""
    columns = list(zip(*samples, strict=True)) or [()] * len(SAMPLES)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SAMPLES, strict=True)],
        schema=SAMPLES,
    )
