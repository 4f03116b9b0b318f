"""The durable store: group commits into journals, sealed by hour into Parquet.

Many callers submit rows; one thread writes all that waits in one frame and one ``fdatasync``, then
tells every caller that its rows are kept. Sealing and retention run in a second thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tailscope.records.compaction import compact
from tailscope.records.errors import StoreError, StoreFull, StoreLocked, StoreUnfit
from tailscope.records.journal import Journal, JournalError
from tailscope.records.record import RequestRecord
from tailscope.records.retention import expire
from tailscope.records.samples import Sample
from tailscope.records.schema import TABLES, request_batch, sample_batch
from tailscope.records.sealing import seal
from tailscope.records.segments import Segment, sweep
from tailscope.records.wallclock import WallClock

log = logging.getLogger(__name__)

_SEGMENT_BYTES = 32 << 20
_MAX_PENDING = 50_000
_SAMPLE_SECONDS = 5.0
_CLOSE_SECONDS = 5.0
_HOUR = 3600

_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""What Arrow raises for a value that its column cannot hold. The texts quote the value."""


class _Submission(NamedTuple):
    records: Sequence[RequestRecord]
    done: Future[None]


class Store:
    """The writer of a store directory.

    Args:
        directory: Made if it is missing; one process at a time.
        retention_seconds: Sealed files older than this are deleted.
        max_bytes: The oldest sealed files are deleted while the store takes more than this.
        segment_bytes: Size at which a segment is closed and sealed before its hour ends.
        now: Wall clock, seconds.

    Raises:
        StoreLocked: If another process writes into it.
        StoreError: If the directory cannot be made or opened.
    """

    def __init__(
        self,
        directory: Path,
        *,
        retention_seconds: float | None = None,
        max_bytes: int | None = None,
        segment_bytes: int = _SEGMENT_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self._retention = retention_seconds
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._now = now
        self._lock_file = _lock(directory)
        try:
            self._journals = {
                name: Journal(directory / name, schema) for name, schema in TABLES.items()
            }
        except OSError as error:
            os.close(self._lock_file)
            raise StoreError(f"cannot open the store {directory}: {error.strerror}") from error
        self._condition = threading.Condition()
        self._waiting: list[_Submission] = []
        self._pending = 0
        self._samples: list[Sample] = []
        self._samples_due = time.monotonic() + _SAMPLE_SECONDS
        self._hour = int(now() // _HOUR)
        self._clock = WallClock(now)
        self._closing = False
        self._seal_due = threading.Event()
        self._failures: dict[str, str] = {}
        self.commits = 0
        self.commit_seconds = 0.0
        self._writer = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._sealer = threading.Thread(target=self._seal, name="store-sealer", daemon=True)
        self._writer.start()
        self._sealer.start()
        self._seal_due.set()  # what an earlier run left

    @property
    def pending(self) -> int:
        """Records that wait to be written."""
        return self._pending

    @property
    def failure(self) -> str:
        """Why the last write failed; empty if it did not."""
        return next(iter(tuple(self._failures.values())), "")

    def submit(self, records: Sequence[RequestRecord]) -> Future[None]:
        """Queue records for the next commit.

        Returns:
            A future that is done when the records are on the disk. It fails with StoreError when
            the disk refuses, and with StoreUnfit when the table cannot hold a record.

        Raises:
            StoreFull: If too many records wait already; nothing was taken.
            StoreError: If the store is closed.
        """
        done: Future[None] = Future()
        with self._condition:
            if self._closing:
                raise StoreError("the store is closed")
            if self._pending and self._pending + len(records) > _MAX_PENDING:
                raise StoreFull(f"{self._pending} records wait for the disk")
            self._waiting.append(_Submission(records, done))
            self._pending += len(records)
            self._condition.notify()
        return done

    def submit_samples(self, samples: Sequence[Sample]) -> None:
        """Queue samples; they are written within seconds, and dropped while the disk refuses."""
        with self._condition:
            if not self._closing and len(self._samples) < _MAX_PENDING:
                self._samples.extend(samples)

    def close(self) -> None:
        """Write what waits, close the segments and let go of the directory."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._seal_due.set()
        self._writer.join(_CLOSE_SECONDS)
        self._sealer.join(_CLOSE_SECONDS)
        if self._writer.is_alive() or self._sealer.is_alive():
            # The directory stays locked until the process has ended: they may write yet.
            log.error("the disk of %s has not answered in %g s", self.directory, _CLOSE_SECONDS)
            return
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def _write(self) -> None:
        closing = False
        while not closing:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closing, timeout=1.0)
                waiting, self._waiting, self._pending = self._waiting, [], 0
                closing = self._closing
                samples: list[Sample] = []
                if closing or time.monotonic() >= self._samples_due:
                    samples, self._samples = self._samples, []
                    self._samples_due = time.monotonic() + _SAMPLE_SECONDS
            try:
                self._commit(waiting)
                self._commit_samples(samples)
                self._roll(closing)
            except Exception:
                # The one place that keeps a fault of ours from ending all writing.
                log.exception("the store failed in a way that it should not")
            finally:
                for submission in waiting:
                    if not submission.done.done():
                        submission.done.set_exception(StoreError("the store failed; see its log"))

    def _commit(self, waiting: list[_Submission]) -> None:
        started = time.monotonic()
        batch, fit = _batch(waiting)
        if batch is None or self._append("requests", batch):
            for submission in fit:
                submission.done.set_result(None)
        else:
            for submission in fit:
                submission.done.set_exception(StoreError(self._failures["requests"]))
        if batch is not None:
            self.commits += 1
            self.commit_seconds += time.monotonic() - started

    def _commit_samples(self, samples: list[Sample]) -> None:
        if samples:
            self._append("samples", sample_batch(samples))

    def _append(self, table: str, batch: pa.RecordBatch) -> bool:
        try:
            self._journals[table].append(batch)
        except JournalError as error:
            if self._failures.get(table) != str(error):
                log.error("%s", error)
            self._failures[table] = str(error)
            return False
        if self._failures.pop(table, None):
            log.info("the store takes %s again", table)
            self._seal_due.set()  # which has failed as well
        return True

    def _roll(self, closing: bool) -> None:
        hour = int(self._now() // _HOUR)
        for journal in self._journals.values():
            full = journal.size > self._segment_bytes
            if journal.size and (closing or full or hour != self._hour):
                journal.roll()
                self._seal_due.set()
        if hour != self._hour:
            self._hour = hour
            self._seal_due.set()

    def _seal(self) -> None:
        while True:
            self._seal_due.wait()
            self._seal_due.clear()
            if self._closing:
                return  # the next start seals; a stop is quick
            for name, journal in self._journals.items():
                try:
                    sweep(journal.folder)
                    for run in _runs(journal.closed()):
                        seal(journal.folder, run, TABLES[name], lambda: self._closing)
                    compact(journal.folder, TABLES[name], self._now(), lambda: self._closing)
                except (JournalError, OSError) as error:
                    log.error("sealing %s: %s", name, error)
            folders = [journal.folder for journal in self._journals.values()]
            expire(folders, self._now(), self._age(), self._max_bytes)

    def _age(self) -> float | None:
        """Age at which files go; None while the clock is not to be trusted."""
        return self._retention if self._clock.steady() else None


def _lock(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise StoreError(f"cannot open the store {directory}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreLocked(
            f"another exporter writes into {directory}; give each one its own --data"
        ) from None
    return descriptor


def _batch(waiting: list[_Submission]) -> tuple[pa.RecordBatch | None, list[_Submission]]:
    """Make one batch of all submissions that fit; those that do not hear so."""
    fit = waiting
    try:
        return _joined(fit), fit
    except _UNFIT:
        fit = []
    for submission in waiting:
        try:
            request_batch(submission.records)
        except _UNFIT as error:
            text = f"a record does not fit the table ({type(error).__name__})"
            submission.done.set_exception(StoreUnfit(text))
        else:
            fit.append(submission)
    return _joined(fit), fit


def _joined(submissions: list[_Submission]) -> pa.RecordBatch | None:
    records = [record for submission in submissions for record in submission.records]
    return request_batch(records) if records else None


def _runs(segments: list[Segment]) -> list[list[Segment]]:
    """Split ascending segments into runs of neighbours."""
    runs: list[list[Segment]] = []
    for segment in segments:
        if runs and runs[-1][-1].number + 1 == segment.number:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs
