"""The NVML library: opened, closed and called so that no thread is inside while it is closed."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tailscope.catalogue.nvml import ADVICE, CODES, GONE, LOST, UNSUPPORTED
from tailscope.exporter.health import SourceError

log = logging.getLogger(__name__)


class NvmlError(Exception):
    """A call did not work; its subclasses say what follows from that.

    Attributes:
        call: Name of the function.
        code: What NVML returned.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {word(code)}")
        self.call = call
        self.code = code


class Unsupported(NvmlError):
    """The GPU or the library does not have it: not worth asking again."""


class GpuLost(NvmlError):
    """Nothing of this GPU can be read."""


class DriverGone(NvmlError):
    """NVML has to be opened anew."""


class CallFailed(NvmlError):
    """Any other error: the next call may work."""


class Closed(Exception):
    """NVML is not open, or is about to be closed."""


def word(code: int) -> str:
    """Return what NVML returned in a word that is fit for a label."""
    return CODES.get(code, f"code_{code}")


def trouble(code: int, what: str) -> SourceError:
    """Return the error of a source for what NVML returned, with what a person can do."""
    advice = ADVICE.get(code)
    return SourceError(word(code), f"{what}: {advice}" if advice else f"{what} ({word(code)})")


class Library:
    """NVML behind its Python binding.

    Args:
        nvml: The module ``pynvml``.

    Attributes:
        driver: Version of the driver, empty while unknown.
        generation: How often NVML was opened; handles are good for one generation.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._gate = threading.Condition()
        self._inside = 0
        self._open = False
        self._counting = threading.Lock()
        self.driver = ""
        self.generation = 0
        self._errors: Counter[tuple[str, str]] = Counter()
        if not hasattr(nvml, "nvmlGpmSampleGet"):
            log.warning(
                "the module pynvml at %s is too old, perhaps that of the package pynvml: "
                "uninstall that and install nvidia-ml-py; until then there is no SM activity",
                getattr(nvml, "__file__", "?"),
            )

    @property
    def is_open(self) -> bool:
        """Whether NVML may be called."""
        return self._open

    @property
    def driver_version(self) -> tuple[int, int]:
        """The first two numbers of the driver's version; 0 where unknown."""
        numbers = [int(text) for text in re.findall(r"\d+", self.driver)[:2]]
        return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)

    def open(self) -> int:
        """Open NVML; returns how many GPUs it has.

        Raises:
            SourceError: If there is no library, no driver or no GPU.
        """
        try:
            self.call("nvmlInit")
        except NvmlError as error:
            raise trouble(error.code, "NVML cannot be opened") from None
        try:
            count = int(self.call("nvmlDeviceGetCount"))
        except NvmlError as error:
            self._shut()
            raise trouble(error.code, "the GPUs cannot be counted") from None
        if not count:
            self._shut()
            raise SourceError(
                "no_gpu", "NVML answers and has no GPU: is one given to this machine?"
            )
        try:
            self.driver = self.text("nvmlSystemGetDriverVersion")
        except NvmlError:
            self.driver = ""
        with self._gate:
            self._open = True
            self.generation += 1
        return count

    @contextmanager
    def inside(self) -> Iterator[int]:
        """Keep NVML open within the block; gives the generation.

        Raises:
            Closed: If it is not open.
        """
        with self._gate:
            if not self._open:
                raise Closed
            self._inside += 1
            generation = self.generation
        try:
            yield generation
        finally:
            with self._gate:
                self._inside -= 1
                self._gate.notify_all()

    def close(self, patience: float, before: Callable[[], None]) -> bool:
        """Close NVML once nobody is inside.

        Args:
            patience: Seconds to wait for those inside. A call that hangs never leaves, and to
                close NVML under it would be the end of the process.
            before: Gives back what is held of NVML; called just before it is closed.

        Returns:
            Whether it is closed.
        """
        ends = time.monotonic() + patience
        with self._gate:
            was_open, self._open = self._open, False
            while self._inside and (left := ends - time.monotonic()) > 0:
                self._gate.wait(left)
            if self._inside:
                self._open = was_open
                return False
        if was_open:
            before()
            self._shut()
        return True

    def _shut(self) -> None:
        try:
            self.call("nvmlShutdown")
        except NvmlError as error:
            log.debug("NVML was not closed in order: %s", error)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the binding.

        Raises:
            Unsupported: If there is no such function, or not for this GPU.
            GpuLost: If the GPU is lost.
            DriverGone: If NVML has to be opened anew.
            CallFailed: If it failed in another way.
        """
        function = getattr(self._nvml, name, None)
        if function is None:
            raise Unsupported(name, 13)
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise self._error(name, int(error.value)) from None

    def text(self, name: str, *arguments: Any) -> str:
        """Call a function that gives a text, which may be bytes or no UTF-8.

        Raises:
            NvmlError: As ``call``.
        """
        try:
            answer = self.call(name, *arguments)
        except UnicodeDecodeError as error:
            answer = error.object
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)

    def _error(self, name: str, code: int) -> NvmlError:
        if code in UNSUPPORTED:
            return Unsupported(name, code)
        kind = GpuLost if code in LOST else DriverGone if code in GONE else CallFailed
        return kind(name, code)

    def count(self, call: str, code: int) -> None:
        """Count a call that failed."""
        with self._counting:
            self._errors[call, word(code)] += 1

    def failures(self) -> list[tuple[tuple[str, str], int]]:
        """Return how many calls failed, by function and code."""
        with self._counting:
            return list(self._errors.items())
