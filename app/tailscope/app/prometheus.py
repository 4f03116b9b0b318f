"""Series from a server with Prometheus' HTTP interface: Prometheus, Thanos, Mimir, VictoriaMetrics.

Where the store has no samples of a time, the same metrics are asked for here. A server that fails
or is slow is not asked again for a while, and its pages say so.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
import urllib3

from tailscope.triage.phrase import Phrase, tell

TIMEOUT = 4.0
"""Seconds that an answer may take."""

SILENCE = 20.0
"""Seconds after a failure in which the server is not asked again."""

MOST_POINTS = 1_000
"""Points of one series in one answer."""

MOST_BYTES = 32 * 1024 * 1024
"""A longer answer is refused."""


class Prometheus:
    """Series of one server. Safe to share between threads.

    Args:
        url: Address of the server, with the path before ``/api/v1`` if there is one.
        headers: HTTP headers, for example ``Authorization``.
        clock: Monotonic clock, seconds.
        timeout: Seconds that an answer may take.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout: float = TIMEOUT,
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._pool = urllib3.PoolManager(retries=False, maxsize=2)
        self._clock = clock
        self._timeout = timeout
        self._failed: tuple[float, Phrase] | None = None
        self._lock = threading.Lock()

    @property
    def trouble(self) -> str:
        """What went wrong when it was last asked; empty if nothing did."""
        with self._lock:
            return "" if self._failed is None else self._failed[1]

    def samples(self, metrics: Iterable[str], start_ns: int, end_ns: int) -> pd.DataFrame:
        """Samples of metrics in a time, as the store's reader returns them.

        Returns:
            Columns ``time_ns``, ``metric``, ``value`` and one for each label; nothing where the
            server fails, which ``trouble`` then tells.
        """
        names = list(metrics)
        if not names or end_ns <= start_ns:
            return _frame([])
        named = f'{{__name__=~"{"|".join(map(re.escape, names))}"}}'
        return self.over_time(named, start_ns, end_ns, max(1.0, (end_ns - start_ns) / 1e9 / 1e3))

    def over_time(self, query: str, start_ns: int, end_ns: int, step: float) -> pd.DataFrame:
        """Evaluate an expression at many times.

        Args:
            query: In PromQL.
            start_ns: First time, UTC nanoseconds.
            end_ns: Last time.
            step: Seconds from one time to the next; there are ``MOST_POINTS`` of them at most.

        Returns:
            Columns ``time_ns``, ``value``, one for each label, and ``metric`` where the result has
            a name; nothing where the server fails, which ``trouble`` then tells.
        """
        low, high = start_ns / 1e9, end_ns / 1e9
        step = max(step, (high - low) / MOST_POINTS)
        times = {"start": f"{low:.3f}", "end": f"{high:.3f}", "step": f"{step:.3f}"}
        return self._asked("query_range", {"query": query, **times})

    def at(self, query: str, time_ns: int) -> pd.DataFrame:
        """Evaluate an expression at one time; what it returns is as of ``over_time``."""
        return self._asked("query", {"query": query, "time": f"{time_ns / 1e9:.3f}"})

    def retry(self) -> None:
        """Ask the server again at once, though it failed."""
        with self._lock:
            self._failed = None

    def _asked(self, path: str, fields: Mapping[str, str]) -> pd.DataFrame:
        with self._lock:
            silent = self._failed is not None and self._clock() - self._failed[0] < SILENCE
        if silent:
            return _frame([])
        try:
            found = self._answer(path, fields)
        except (urllib3.exceptions.HTTPError, _Refused) as error:
            with self._lock:
                self._failed = self._clock(), _words(error, self._timeout)
            return _frame([])
        with self._lock:
            self._failed = None
        return _frame(found)

    def _answer(self, path: str, fields: Mapping[str, str]) -> list[dict[str, object]]:
        answer = self._pool.request(
            "GET",
            f"{self.url}/api/v1/{path}",
            fields=dict(fields),
            headers=self._headers,
            timeout=urllib3.Timeout(total=self._timeout),
            redirect=False,
            preload_content=False,
        )
        try:
            body = answer.read(MOST_BYTES + 1, decode_content=True)
        finally:
            answer.release_conn()
        if answer.status != 200:
            raise _Refused(_meaning(answer.status))
        if len(body) > MOST_BYTES:
            raise _Refused(tell("its answer is longer than {n} MiB", n=MOST_BYTES // 2**20))
        return _rows(body)


_NAME = {"__name__": "metric"}


def _meaning(status: int) -> Phrase:
    """What an HTTP status means."""
    if status in (401, 403):
        return tell(
            "it wants other credentials (status {status}); see --prometheus-headers", status=status
        )
    if status == 302:
        return tell(
            "it sends the app elsewhere, perhaps to a login (status {status}); "
            "see --prometheus-headers",
            status=status,
        )
    if status == 404:
        return tell("there is no Prometheus at this address (status {status})", status=status)
    return tell("it answers {status}", status=status)


class _Refused(Exception):
    """The server answered, and not with series."""

    def __init__(self, why: Phrase) -> None:
        super().__init__(why)
        self.why = why


def _rows(body: bytes) -> list[dict[str, object]]:
    try:
        result = json.loads(body)["data"]["result"]
        return [
            {
                "time_ns": int(float(at) * 1e9),
                "value": float(value),
                **{_NAME.get(name, name): text for name, text in series["metric"].items()},
            }
            for series in result
            for at, value in series.get("values") or [series["value"]]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _Refused(tell("its answer is none of Prometheus' HTTP interface")) from None


def _frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    found = pd.DataFrame(rows, columns=None if rows else ["time_ns", "metric", "value"])
    found = found.astype({"time_ns": np.int64, "value": np.float64})
    return found.sort_values("time_ns", kind="stable", ignore_index=True)


def _words(error: Exception, timeout: float) -> Phrase:
    if isinstance(error, _Refused):
        return error.why
    # urllib3 counts a refused connection among the timeouts.
    refused = isinstance(error, urllib3.exceptions.NewConnectionError)
    if isinstance(error, urllib3.exceptions.TimeoutError) and not refused:
        return tell("it did not answer within {n} s", n=f"{timeout:g}")
    return tell("it cannot be reached ({why})", why=type(error).__name__)
