"""One handle of NVML, and the memory of what it cannot be asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tailscope.catalogue.nvml import TIMEOUT, Way
from tailscope.exporter.sources.nvml.library import CallFailed, Library, NvmlError, Unsupported


class Device:
    """A GPU or a MIG device. For one thread.

    Args:
        library: NVML, open.
        handle: The handle, good until NVML is closed.

    Attributes:
        failure: The last error of this round, if there was one that may pass.
    """

    def __init__(self, library: Library, handle: Any) -> None:
        self.library = library
        self.handle = handle
        self.failure: NvmlError | None = None
        self._never: set[Way] = set()
        self._answered = False

    def begin(self) -> None:
        """Begin a round of questions."""
        self.failure = None
        self._answered = False

    @property
    def dark(self) -> bool:
        """Whether something was asked in this round and every answer was an error."""
        return self.failure is not None and not self._answered

    def ask(self, ways: Iterable[Way]) -> Any:
        """Return the answer to the first of ``ways`` that the GPU has, or None.

        Raises:
            GpuLost: If the GPU is lost.
            DriverGone: If NVML has to be opened anew.
        """
        for way in ways:
            if way in self._never:
                continue
            try:
                return self.call(way.function, *way.arguments)
            except Unsupported:
                self._never.add(way)
            except CallFailed:
                return None
        return None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function with the handle first, and note how it went.

        Raises:
            NvmlError: As ``Library.call``.
        """
        return self.run(name, self.handle, *arguments)

    def run(self, name: str, *arguments: Any) -> Any:
        """Call a function that takes no handle, and note how it went.

        Raises:
            NvmlError: As ``Library.call``.
        """
        try:
            answer = self.library.call(name, *arguments)
        except Unsupported:
            raise
        except NvmlError as error:
            self.failed(error)
            raise
        self._answered = True
        return answer

    def failed(self, error: NvmlError) -> None:
        """Note a failure; a time-out of one call is none of the GPU."""
        self.library.count(error.call, error.code)
        if error.code != TIMEOUT:
            self.failure = error
