"""A dcgm-exporter beside NVML: read where NVML does not tell all, and otherwise left alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from tailscope.catalogue import METRICS, PREFIX
from tailscope.exporter.exposition import Line, Lines, series
from tailscope.exporter.health import NothingThere, SourceError

if TYPE_CHECKING:
    from tailscope.exporter.sources.dcgm import DcgmSource

log = logging.getLogger(__name__)

Uuids = Callable[[], frozenset[str]]

_INFO = METRICS[f"{PREFIX}gpu_source_info"]
_NOBODY = ("unreachable", "timeout")


class Need(Enum):
    """What a dcgm-exporter is needed for."""

    NOTHING = "nothing"
    ACTIVITY = "activity"
    ALL = "all"


class DcgmBeside:
    """Reads a dcgm-exporter for what NVML lacks, and says in ``gpu_source_info`` what that is.

    Args:
        name: Value of the ``source`` label.
        make: Makes the source; it is told for which GPUs only activity is wanted, or None.
        boards: UUIDs of the GPUs that NVML reads; None if there is no NVML beside it.
        activities: UUIDs of those among them whose activity it has.
        told: Whether the user named it; if not, it is no fault that there is none.
        grace: Seconds that NVML may be silent before dcgm-exporter takes its place.
        clock: Monotonic clock, in seconds.

    Attributes:
        hidden: Whether nobody need know of it: it was not named, and gave nothing yet.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Uuids | None], DcgmSource],
        *,
        boards: Uuids | None = None,
        activities: Uuids = frozenset,
        told: bool = True,
        grace: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._make = make
        self._boards = boards
        self._activities = activities
        self._told = told
        self._grace = grace
        self._clock = clock
        self._heard: float | None = None
        self._need = Need.NOTHING
        self._source: DcgmSource | None = None
        self._answers = False
        self._proven = False
        self.hidden = not told

    def read(self) -> str:
        """Read the dcgm-exporter, if it is needed.

        Raises:
            SourceError: If it is needed and cannot be read.
            NothingThere: If nobody named it, and something else answers in its place.
        """
        self._answers = False
        self._become(self._needed())
        if self._source is None:
            return "waits for what NVML has, and is read only for what it lacks"
        try:
            message = self._source.read()
        except SourceError as error:
            if self._told or self._proven:
                raise
            if error.reason in _NOBODY:
                return f"{error}; it would have the activity of GPUs without GPM"
            self.hidden = False
            # At a port that nobody named may be anything.
            raise NothingThere(error.reason, str(error)) from None
        self._answers = self._proven = True
        self.hidden = False
        return message

    def _needed(self) -> Need:
        if self._boards is None:
            return Need.ALL
        now = self._clock()
        boards = self._boards()
        if boards:
            self._heard = now
            return Need.ACTIVITY if boards - self._activities() else Need.NOTHING
        if self._heard is None:
            self._heard = now
        return Need.ALL if now - self._heard >= self._grace else self._need

    def _become(self, need: Need) -> None:
        if need is self._need:
            return
        log.info("source %s: needed for %s", self.name, need.value)
        self._need = need
        self.close()
        if need is not Need.NOTHING:
            self._source = self._make(self._lacking if need is Need.ACTIVITY else None)

    def _lacking(self) -> frozenset[str]:
        """GPUs that NVML reads, but for their activity."""
        return (self._boards() if self._boards else frozenset()) - self._activities()

    def lines(self, fresh: bool) -> Lines:
        """Return what was read, and of which GPU it was what."""
        source = self._source
        if source is None:
            return {}
        # NVML may have come since the last read: no series may be there twice.
        twice = self._need is Need.ALL and self._boards is not None and bool(self._boards())
        fresh = fresh and self._answers and not twice
        found = dict(source.lines(fresh))
        if fresh:
            found[_INFO.name] = self._infos(source)
        return found

    def _infos(self, source: DcgmSource) -> list[Line]:
        from tailscope.exporter.sources.dcgm import ACTIVITY, HEALTH

        indices = source.indices
        readings = (HEALTH, ACTIVITY) if self._need is Need.ALL else (ACTIVITY,)
        return [
            Line(series(_INFO.name, _INFO.labels, (indices[uuid], uuid, reading, "dcgm")), 1)
            for uuid, given in source.gives.items()
            for reading in readings
            if reading in given and uuid in indices
        ]

    def close(self) -> None:
        """Close the connection."""
        source, self._source = self._source, None
        if source is not None:
            source.close()
