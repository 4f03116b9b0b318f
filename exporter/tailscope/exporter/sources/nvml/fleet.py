"""The GPUs of one generation of NVML, and when to begin the next one."""

from __future__ import annotations

import time
from collections.abc import Callable

from tailscope.exporter.health import SourceError
from tailscope.exporter.sources.nvml.backoff import Backoff
from tailscope.exporter.sources.nvml.board import Board
from tailscope.exporter.sources.nvml.lane import Lane
from tailscope.exporter.sources.nvml.library import DriverGone, Library
from tailscope.exporter.sources.nvml.slot import Outcome, Slot

CLOSE_SECONDS = 0.7
"""How long those inside NVML are waited for before it is closed; longer than a wait for events."""

RELOOK_SECONDS = 60.0
"""How long a GPU is lost, while others work, before NVML is opened anew for its sake."""


class Fleet:
    """Opens NVML, reads all GPUs side by side, and opens it anew when it has to be.

    Args:
        library: NVML.
        find: Finds the GPU at an index; called in the thread of that GPU.
        free: Gives back what else is held of NVML before it is closed.
        clock: Monotonic clock, in seconds.
        patience: Seconds that a round waits for GPUs that do not answer.

    Attributes:
        slots: The GPUs.
        failure: Why NVML is not open.
    """

    def __init__(
        self,
        library: Library,
        *,
        find: Callable[[int], Board],
        free: Callable[[], None],
        clock: Callable[[], float],
        patience: float,
    ) -> None:
        self.slots: list[Slot] = []
        self.failure = SourceError("starting", "not read yet")
        self._library = library
        self._find = find
        self._free_more = free
        self._clock = clock
        self._patience = patience
        self._lanes: list[Lane[Outcome]] = []
        self._retry = Backoff(1.0, 30.0)
        self._relook = Backoff(RELOOK_SECONDS, 600.0)
        self._ill_since: float | None = None

    def read(self, now: float, accept: Callable[[Outcome], None]) -> None:
        """Read every GPU once.

        Args:
            now: Monotonic clock, in seconds.
            accept: Takes what a GPU gave, in this thread.

        Raises:
            SourceError: If NVML cannot be opened, or not be opened anew though it has to be.
        """
        if not self._library.is_open:
            if not self._retry.ready(now):
                # A new one each time: one that is raised again grows by a traceback.
                raise SourceError(self.failure.reason, str(self.failure))
            self._open(now)
        self._round(accept)
        if self._wants_anew(now):
            self._open_anew(now)
            self._round(accept)

    def works(self) -> None:
        """Note that some GPU could be read."""
        self._retry.reset()

    def _open(self, now: float) -> None:
        self._retry.tried(now)
        try:
            count = self._library.open()
        except SourceError as error:
            self.failure = error
            self.slots = []
            raise
        while len(self._lanes) < count:
            self._lanes.append(Lane(f"nvml-{len(self._lanes)}"))
        self.slots = [
            Slot(index, lane, self._library, self._find, self._clock)
            for index, lane in enumerate(self._lanes[:count])
        ]

    def _round(self, accept: Callable[[Outcome], None]) -> None:
        """Read the GPUs that are not still at it, and wait for them, but not for ever."""
        free = [slot for slot in self.slots if not slot.lane.busy]
        for slot in free:
            late = slot.take()  # of the round before
            if late is not None:
                accept(late)
            slot.start()
        ends = time.monotonic() + self._patience
        for slot in free:
            slot.lane.wait(max(0.0, ends - time.monotonic()))
            outcome = slot.take()
            if outcome is not None:
                accept(outcome)

    def _wants_anew(self, now: float) -> bool:
        """Whether NVML is to be opened anew now."""
        answered = [slot for slot in self.slots if not slot.lane.busy]
        ill = [slot.error for slot in answered if slot.error is not None]
        if not ill:
            self._relook.reset()
            self._ill_since = None
            return False
        if len(ill) == len(answered):
            return self._retry.ready(now)
        # Some work. To begin anew costs them a sample of GPM, so it is not done often.
        self._ill_since = now if self._ill_since is None else self._ill_since
        gone = any(isinstance(error, DriverGone) for error in ill)
        due = gone or now - self._ill_since >= RELOOK_SECONDS
        if due and self._relook.ready(now):
            self._relook.tried(now)
            return True
        return False

    def _open_anew(self, now: float) -> None:
        if self._library.close(CLOSE_SECONDS, self._free):
            self._open(now)
        elif all(slot.lane.busy or slot.error is not None for slot in self.slots):
            raise SourceError(
                "stuck", "NVML has to be opened anew, and a call into the driver does not return"
            )

    def _free(self) -> None:
        for slot in self.slots:
            slot.free()
        self._free_more()

    def close(self) -> None:
        """Close NVML, unless a call into it hangs; it then ends with the process."""
        if self._library.close(CLOSE_SECONDS, self._free):
            self.slots = []
        for lane in self._lanes:
            lane.end()
