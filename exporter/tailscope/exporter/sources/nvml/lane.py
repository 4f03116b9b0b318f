"""A thread that does one job at a time for somebody who does not wait for it for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Lane(Generic[_T]):
    """One thread. A call into a driver may never come back; then only its lane is lost.

    The thread is a daemon, so that it does not keep the process from its end.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._wake = threading.Condition()
        self._job: Callable[[], _T] | None = None
        self._result: _T | None = None
        self._busy = False
        self._ended = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a job runs."""
        return self._busy

    def start(self, job: Callable[[], _T]) -> None:
        """Begin a job, which must not raise; the lane must not be busy."""
        with self._wake:
            self._job, self._busy, self._result = job, True, None
            self._wake.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until the job is done, but no longer than that."""
        with self._wake:
            self._wake.wait_for(lambda: not self._busy, seconds)

    def take(self) -> _T | None:
        """Return what the last job gave, once; None if there is nothing new."""
        with self._wake:
            result, self._result = self._result, None
        return result

    def end(self) -> None:
        """End the thread, after its job."""
        with self._wake:
            self._ended = True
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._job is not None or self._ended)
                job, self._job = self._job, None
            if job is None:
                return
            result = job()
            with self._wake:
                self._result, self._busy = result, False
                self._wake.notify_all()
