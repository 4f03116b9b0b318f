"""Tells whether rows stand alone: then nothing has to be joined, which is most of a read.

Needs the ``app`` extra (numpy).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SPAN = 16
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""Odd factors, so that texts that differ in one half never have the same number."""

LONE_KEYS = ("role", "arrived_ns", "span_id")
"""Columns that tell whether any row has a partner."""


def lone(tables: Sequence[pa.Table]) -> bool:
    """Whether all rows are an engine's, each with a span of its own: none has a partner."""
    keys = pa.concat_tables([table.select(LONE_KEYS) for table in tables])
    spans = keys["span_id"]
    return bool(
        spans.null_count == 0
        and pc.all(pc.equal(keys["role"], "engine"), min_count=0).as_py()
        and _distinct(spans)
    )


def _distinct(spans: pa.ChunkedArray) -> bool:
    """Whether none occurs twice.

    Spans of 16 characters, as all are that follow the standard, are told apart by a number each: a
    sort of these takes a fifth of the time. Only where two numbers are the same are texts compared.
    """
    parts = [_numbers(part) for part in spans.chunks]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts) and known:
        numbers = np.sort(np.concatenate(known))
        if not (numbers[1:] == numbers[:-1]).any():
            return True
    return bool(pc.count_distinct(spans).as_py() == len(spans))


def _numbers(spans: pa.Array) -> npt.NDArray[np.uint64] | None:
    """A number for each text of 16 characters; None where one is of another length."""
    if not len(spans):
        return np.zeros(0, np.uint64)
    _, offsets, texts = spans.buffers()
    ends = np.frombuffer(offsets, np.int32)[spans.offset : spans.offset + len(spans) + 1]
    if (np.diff(ends) != _SPAN).any():
        return None
    words = np.frombuffer(texts, np.uint64, 2 * len(spans), int(ends[0])).reshape(-1, 2)
    found: npt.NDArray[np.uint64] = words @ _ODD
    return found
