"""Several exporters' stores read as one, and which of their columns the pages need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from tailscope.records.joining import MAX_NS
from tailscope.records.reader import Reader
from tailscope.records.schema import TABLES

COLUMNS = (
    *("arrived_ns", "span_id", "trace_id", "request_id", "tenant", "model", "server", "engine"),
    *("frontend_seconds", "queue_seconds", "prefill_seconds", "decode_seconds"),
    *("ttft_seconds", "total_seconds", "client_seconds"),
    *("input_tokens", "cached_tokens", "output_tokens", "max_tokens"),
    *("outcome", "status", "finish_reason", "session", "attempt", "priority", "adapter"),
    *("joined", "inferred"),
)
"""What the pages and the triage look at: the one place to name the columns of a read."""


@dataclass(frozen=True, slots=True)
class Part:
    """One store.

    Attributes:
        directory: Where it is.
        exists: Whether an exporter has ever written there.
        span: Arrival of its oldest and newest request, UTC nanoseconds; None if there is none.
    """

    directory: Path
    exists: bool
    span: tuple[int, int] | None


class Stores(Reader):
    """Several stores as one: rows of a gateway's store meet those of an engine's.

    Args:
        directories: One or more ``--data``.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        super().__init__(directories[0] if directories else Path())
        self._stores = [Reader(directory) for directory in directories]

    def exists(self) -> bool:
        """Whether any of them was ever written to."""
        return any(store.exists() for store in self._stores)

    def parts(self) -> tuple[Part, ...]:
        """What each of them holds.

        Raises:
            ReaderError: If one cannot be read.
        """
        return tuple(Part(store.directory, store.exists(), store.span()) for store in self._stores)

    def window(self, start_ns: int = 0, end_ns: int = MAX_NS) -> pd.DataFrame:
        """The requests of a time; see ``Reader.requests``. The one place where pages read them.

        Raises:
            ReaderError: If a store cannot be read.
        """
        return self.requests(start_ns, end_ns, COLUMNS)

    def _sources(self, table: str, *question: Any, **more: Any) -> list[pa.Table]:
        found = [
            part for store in self._stores for part in store._sources(table, *question, **more)
        ]
        # Where there is no store at all, there is Prometheus alone.
        return found or [TABLES[table].empty_table()]
