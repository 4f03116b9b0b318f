"""Stages that an engine tells in spans of their own, brought together with their request's span.

Below the span of the request each thread that worked for it has a span, and below that each stage.
They come from several processes, each with its own messages: the request's may come before or after
those of its stages. A record that was handed on before its stages came is handed on once more, with
them; it has the same span, and who reads the store takes the fuller one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tailscope.exporter.otlp import Span
from tailscope.records.record import RequestRecord

_MOST_REQUESTS, _MOST_THREADS = 10_000, 50_000
"""What is remembered: a minute or more of 100 requests/s, on an engine of eight ranks."""

Key = int
"""Hash of a trace and a span in it."""


class Stages:
    """Stages of requests that came not long ago. Its owner holds a lock.

    Args:
        columns: Name of a stage's span to the column of the record.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._of_thread: dict[Key, dict[str, tuple[int, float]]] = {}
        self._request_of: dict[Key, Key] = {}
        self._threads_of: dict[Key, list[Key]] = {}
        self._records: dict[Key, RequestRecord] = {}
        # Each rank of a scheduler tells the same: of a request, the first one counts.
        self._chosen: dict[Key, Key] = {}
        self._touched: dict[Key, None] = {}

    def stage(self, span: Span) -> None:
        """Take a stage; of one that came again after a preemption, the first time counts."""
        thread, start = hash((span.trace_id, span.parent_span_id)), span.start_time_unix_nano
        seconds = (span.end_time_unix_nano - start) / 1e9
        if not start or seconds < 0:
            return
        known, column = self._of_thread.setdefault(thread, {}), self._columns[span.name]
        if column not in known or start <= known[column][0]:
            known[column] = start, seconds
        self._touched[thread] = None

    def thread(self, span: Span) -> None:
        """Take the span between a request and its stages."""
        thread, request = (
            hash((span.trace_id, one)) for one in (span.span_id, span.parent_span_id)
        )
        if thread not in self._request_of:
            self._request_of[thread] = request
            self._threads_of.setdefault(request, []).append(thread)
        self._touched[thread] = None

    def request(self, span: Span, record: RequestRecord) -> Key:
        """Take the record of a request, complete but for its stages; returns what it is known by.

        It is copied, for whoever keeps it may change it.
        """
        request = hash((span.trace_id, span.span_id))
        self._records[request] = replace(record)
        self._touched.update(dict.fromkeys(self._threads_of.get(request, ())))
        return request

    def fuller(self) -> Iterator[tuple[Key, RequestRecord]]:
        """Yield the records of which more was told since the last call, not completed."""
        touched, self._touched = self._touched, {}
        for thread in touched:
            stages, request = self._of_thread.get(thread), self._request_of.get(thread)
            record = None if request is None else self._records.get(request)
            if stages is None or request is None or record is None:
                continue
            if self._chosen.setdefault(request, thread) != thread:
                del self._of_thread[thread]
                continue
            found: dict[str, Any] = {
                column: seconds
                for column, (_, seconds) in stages.items()
                if getattr(record, column) is None
            }
            if found:
                yield request, replace(record, **found)
        self._forget()

    def _forget(self) -> None:
        kept: tuple[tuple[dict[Key, Any], int], ...] = (
            (self._of_thread, _MOST_THREADS),
            (self._request_of, _MOST_THREADS),
            (self._threads_of, _MOST_REQUESTS),
            (self._records, _MOST_REQUESTS),
            (self._chosen, _MOST_REQUESTS),
        )
        for one, most in kept:
            while len(one) > most:
                del one[next(iter(one))]
