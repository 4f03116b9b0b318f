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

from tailscope.records.errors import StoreError, StoreFull, StoreLocked
from tailscope.records.journal import Journal, JournalError, Segment, listing, seal, sweep
from tailscope.records.record import RequestRecord
from tailscope.records.samples import Sample
from tailscope.records.schema import TABLES, request_batch, sample_batch

log = logging.getLogger(__name__)

_SEGMENT_BYTES = 32 << 20
_MAX_PENDING = 50_000
_SAMPLE_SECONDS = 5.0
_HOUR = 3600


class Store:
    """The writer of a store directory.

    Args:
        directory: Made if it is missing; one process at a time.
        retention_seconds: Sealed files older than this are deleted.
        max_bytes: The oldest sealed files are deleted while all of them exceed this.
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
        now: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self._retention = retention_seconds
        self._max_bytes = max_bytes
        self._now = now
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock_file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise StoreError(f"cannot open the store {directory}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock_file)
            raise StoreLocked(
                f"another exporter writes into {directory}; give each one its own --data"
            ) from None
        try:
            self._journals = {
                name: Journal(directory / name, schema) for name, schema in TABLES.items()
            }
        except OSError as error:
            os.close(self._lock_file)
            raise StoreError(f"cannot open the store {directory}: {error.strerror}") from error
        self._condition = threading.Condition()
        self._records: list[RequestRecord] = []
        self._waiting: list[Future[None]] = []
        self._samples: list[Sample] = []
        self._samples_due = time.monotonic() + _SAMPLE_SECONDS
        self._hour = int(now() // _HOUR)
        self._closing = False
        self._seal_due = threading.Event()
        self.commits = 0
        self.commit_seconds = 0.0
        self.failure = ""
        self._writer = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._sealer = threading.Thread(target=self._seal, name="store-sealer", daemon=True)
        self._writer.start()
        self._sealer.start()
        self._seal_due.set()  # what an earlier run left

    @property
    def pending(self) -> int:
        """Records that wait to be written."""
        return len(self._records)

    def submit(self, records: Sequence[RequestRecord]) -> Future[None]:
        """Queue records for the next commit.

        Returns:
            A future that is done when the records are on the disk, and fails with StoreError
            when the disk refuses.

        Raises:
            StoreFull: If too many records wait already; nothing was taken.
            StoreError: If the store is closed.
        """
        done: Future[None] = Future()
        with self._condition:
            if self._closing:
                raise StoreError("the store is closed")
            if self._records and len(self._records) + len(records) > _MAX_PENDING:
                raise StoreFull(f"{len(self._records)} records wait for the disk")
            self._records.extend(records)
            self._waiting.append(done)
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
        self._writer.join()
        self._seal_due.set()
        self._sealer.join(timeout=1.0)
        os.close(self._lock_file)

    def _write(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._records or self._closing, timeout=1.0)
                records, waiting = self._records, self._waiting
                self._records, self._waiting = [], []
                closing = self._closing
                samples: list[Sample] = []
                if closing or time.monotonic() >= self._samples_due:
                    samples, self._samples = self._samples, []
                    self._samples_due = time.monotonic() + _SAMPLE_SECONDS
            self._commit(records, waiting)
            self._commit_samples(samples)
            self._roll(closing)
            if closing:
                return

    def _commit(self, records: list[RequestRecord], waiting: list[Future[None]]) -> None:
        started = time.monotonic()
        try:
            if records:
                self._journals["requests"].append(request_batch(records))
                self.commits += 1
                self.commit_seconds += time.monotonic() - started
        except JournalError as error:
            self._failed(error)
            for future in waiting:
                future.set_exception(StoreError(str(error)))
            return
        if records:
            self._recovered()
        for future in waiting:
            future.set_result(None)

    def _commit_samples(self, samples: list[Sample]) -> None:
        if not samples:
            return
        try:
            self._journals["samples"].append(sample_batch(samples))
        except JournalError as error:
            self._failed(error)
        else:
            self._recovered()

    def _failed(self, error: JournalError) -> None:
        if str(error) != self.failure:
            log.error("%s", error)
        self.failure = str(error)

    def _recovered(self) -> None:
        if self.failure:
            log.info("the store takes records again")
        self.failure = ""

    def _roll(self, closing: bool) -> None:
        hour = int(self._now() // _HOUR)
        for journal in self._journals.values():
            if journal.size and (closing or hour != self._hour or journal.size > _SEGMENT_BYTES):
                journal.roll()
                self._seal_due.set()
        if hour != self._hour:
            self._hour = hour
            self._seal_due.set()

    def _seal(self) -> None:
        while not self._closing:
            self._seal_due.wait()
            self._seal_due.clear()
            if self._closing:
                return  # the next start seals; a stop is quick
            for name, journal in self._journals.items():
                try:
                    sweep(journal.folder)
                    for run in _runs(journal.closed()):
                        seal(journal.folder, run, TABLES[name])
                    self._expire(journal.folder)
                except (JournalError, OSError) as error:
                    log.error("sealing %s: %s", name, error)

    def _expire(self, folder: Path) -> None:
        sealed, _ = listing(folder)
        sizes = {file.path: file.path.stat() for file in sealed}
        total = sum(stat.st_size for stat in sizes.values())
        for file in sealed:
            stat = sizes[file.path]
            old = self._retention is not None and stat.st_mtime < self._now() - self._retention
            if old or (self._max_bytes is not None and total > self._max_bytes):
                log.info("retention: removing %s/%s", folder.name, file.path.name)
                file.path.unlink(missing_ok=True)
                total -= stat.st_size


def _runs(segments: list[Segment]) -> list[list[Segment]]:
    """Split ascending segments into runs of neighbours."""
    runs: list[list[Segment]] = []
    for segment in segments:
        if runs and runs[-1][-1].number + 1 == segment.number:
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs
