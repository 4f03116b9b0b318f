"""One GPU of the present generation of NVML, and the thread that reads it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tailscope.exporter.reading import Key
from tailscope.exporter.sources.nvml.board import Board
from tailscope.exporter.sources.nvml.identity import Identity
from tailscope.exporter.sources.nvml.lane import Lane
from tailscope.exporter.sources.nvml.library import Closed, Library, NvmlError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one read of one GPU gave.

    Attributes:
        taken: When it began, by the monotonic clock in seconds.
        identity: Who the GPU is, if that could be found out.
        numbers: What was read; nothing if there was an error.
        activity: Whether GPM gives its activity.
        trouble: Why it does not, where that is no matter of the GPU's age.
        mig: Whether it is split.
        error: What went wrong.
    """

    taken: float
    identity: Identity | None = None
    numbers: Mapping[Key, float] = field(default_factory=dict)
    activity: bool = False
    trouble: str = ""
    mig: str = ""
    error: NvmlError | None = None


class Slot:
    """The GPU at one index.

    Args:
        index: Index in NVML's order.
        lane: The thread; free.
        library: NVML, open.
        find: Finds the GPU at an index.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        index: int,
        lane: Lane[Outcome],
        library: Library,
        find: Callable[[int], Board],
        clock: Callable[[], float],
    ) -> None:
        self.index = index
        self.lane = lane
        self.board: Board | None = None
        self.started: float | None = None
        self.error: NvmlError | None = None
        self._library = library
        self._find = find
        self._clock = clock

    def start(self) -> None:
        """Begin to read; the lane must be free."""
        self.started = self._clock()
        self.lane.start(self._read)

    def take(self) -> Outcome | None:
        """Return what the last read gave, once, if it has ended."""
        outcome = None if self.lane.busy else self.lane.take()
        if outcome is not None:
            self.error = outcome.error
        return outcome

    def hangs(self, since: float) -> bool:
        """Whether a read that began before a time has not ended."""
        return self.lane.busy and self.started is not None and self.started < since

    def free(self) -> None:
        """Give back what is held of NVML, which must be open; the lane must be free."""
        if self.board is not None:
            self.board.free()
            self.board = None

    def _read(self) -> Outcome:
        taken = self._clock()
        try:
            with self._library.inside():
                if self.board is None:
                    self.board = self._find(self.index)
                board, numbers = self.board, self.board.read()
        except Closed:
            return Outcome(taken, self._identity(), error=NvmlError("nvmlInit", 1))
        except NvmlError as error:
            if self.board is not None:
                self.board.forget()
            return Outcome(taken, self._identity(), error=error)
        except Exception:
            # A fault of ours in the reading of one GPU must not take the others with it.
            log.exception("GPU %d failed in a way that it should not", self.index)
            return Outcome(taken, self._identity(), error=NvmlError("internal", 999))
        return Outcome(
            taken, board.identity, numbers, bool(board.activity), board.trouble, board.mig
        )

    def _identity(self) -> Identity | None:
        return self.board.identity if self.board is not None else None
