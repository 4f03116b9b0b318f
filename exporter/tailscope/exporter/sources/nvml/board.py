"""One GPU: everything that is read of it, in one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tailscope.catalogue import METRICS, Kind
from tailscope.catalogue.nvml import CALLS, GPM, SELDOM_SECONDS, Call, Value
from tailscope.exporter.doubt import Doubt, Verdict
from tailscope.exporter.reading import Key
from tailscope.exporter.sources.nvml.device import Device
from tailscope.exporter.sources.nvml.fields import Fields
from tailscope.exporter.sources.nvml.gpm import Gpm, shortest_window, supported
from tailscope.exporter.sources.nvml.identity import Identity
from tailscope.exporter.sources.nvml.ledger import Ledger
from tailscope.exporter.sources.nvml.library import CallFailed, Library, NvmlError, Unsupported
from tailscope.exporter.sources.nvml.mig import Mig
from tailscope.exporter.sources.nvml.plausible import plausible
from tailscope.exporter.sources.nvml.rotation import Rotation
from tailscope.exporter.sources.nvml.throttle import Throttle

_NO_PERMISSION = 4
_LINK_RATES = {metric.value.metric: metric.unless for metric in GPM if metric.unless}

_Asked = tuple[Call, list[tuple[Value, Key]]]
"""A call, and the series of each of its values."""


class Board:
    """A GPU in one generation of NVML.

    Args:
        library: NVML, open.
        handle: Its handle.
        identity: Who it is.
        ledger: Carries its counters on.
        request: A ``c_nvmlGpmMetricsGet_t`` of its own.
        clock: Monotonic clock, in seconds.
        interval: Seconds from one read to the next.
        longest: Longest gap between two reads that is integrated over, in seconds.

    Attributes:
        activity: Whether GPM gives its activity; None while that is not known.
        trouble: Why GPM does not, in a word; empty if the GPU has none.
        mig: Whether it is split, as ``Mig.mode`` says.
    """

    def __init__(
        self,
        library: Library,
        handle: Any,
        identity: Identity,
        ledger: Ledger,
        *,
        request: Any,
        clock: Callable[[], float],
        interval: float,
        longest: float,
    ) -> None:
        self.identity = identity
        self.device = device = Device(library, handle)
        self.activity: bool | None = None
        self.trouble = ""
        self.mig = ""
        self._ledger = ledger
        self._request = request
        self._clock = clock
        labels = identity.labels()
        self._often, seldom = (
            [
                (call, [(value, Key(value.metric, labels + value.more)) for value in call.values])
                for call in CALLS
                if call.seldom is wanted
            ]
            for wanted in (False, True)
        )
        self._seldom = Rotation(seldom, interval, SELDOM_SECONDS)
        self._fields = Fields(device, labels, ledger)
        self._throttle = Throttle(device, labels, ledger, longest)
        shortest = shortest_window(interval)
        self._gpm = Gpm(device, self._sample, labels, clock=clock, shortest=shortest)
        self._mig = Mig(device, identity, clock=clock, interval=interval, shortest=shortest)
        self._doubt = Doubt()
        self._slow: dict[Key, float] = {}

    def read(self) -> dict[Key, float]:
        """Read everything once.

        Raises:
            GpuLost: If the GPU is lost.
            DriverGone: If NVML has to be opened anew.
            CallFailed: If not one call works.
        """
        self.device.begin()
        now = self._clock()
        numbers = self._ask(self._often)
        if self.device.dark:
            # The handle is no longer good, or the driver does not speak to us: ask no more.
            assert self.device.failure is not None  # noqa: S101 - for the type checker
            raise self.device.failure
        due = self._seldom.due()
        for _, values in due:
            for _, key in values:
                self._slow.pop(key, None)
        self._slow.update(self._ask(due))
        numbers.update(self._slow)
        fields = self._fields.read()
        numbers.update(fields)
        numbers.update(self._throttle.read(now, fields.keys()))
        numbers.update(self._activities(numbers))
        return numbers

    def _ask(self, calls: Iterable[_Asked]) -> dict[Key, float]:
        found: dict[Key, float] = {}
        for call, values in calls:
            self._ask_one(call, values, found)
        return found

    def _ask_one(
        self, call: Call, values: list[tuple[Value, Key]], found: dict[Key, float]
    ) -> None:
        answer = self.device.ask(call.ways)
        if answer is None:
            return
        for value, key in values:
            raw = _item(answer, value.item)
            number = None if raw is None else plausible(key.metric, value.ours(float(raw)))
            if number is None:
                continue
            if METRICS[key.metric].kind is Kind.COUNTER:
                number = self._ledger.carry(key, number)
            found[key] = number

    def _activities(self, numbers: Mapping[Key, float]) -> dict[Key, float]:
        """Activity of the GPU, or of its instances with their memory."""
        if self.activity is None:
            self._find_gpm()
        self.mig = self._mig.mode()
        if self.mig == "enabled":
            self._gpm.free()
            return self._mig.read(self._request, with_gpm=bool(self.activity))
        self._mig.free()
        if not self.activity:
            return {}
        try:
            found = self._gpm.read(self._request)
        except (CallFailed, Unsupported) as error:
            self._give_up(error)
            return {}
        return self._judged(numbers, found)

    def _find_gpm(self) -> None:
        try:
            self.activity = supported(self.device)
        except CallFailed as error:
            self._give_up(error)

    def _give_up(self, error: NvmlError) -> None:
        """Do without GPM if it will not come."""
        if isinstance(error, Unsupported) or error.code == _NO_PERMISSION:
            self.activity = False
            self.trouble = str(error) if error.code == _NO_PERMISSION else ""

    def _judged(self, numbers: Mapping[Key, float], found: dict[Key, float]) -> dict[Key, float]:
        verdict = self._doubt.judge(numbers, found)
        if verdict is Verdict.BEGIN_ANEW:
            self._gpm.forget()
        if verdict is Verdict.DROP:
            return {}
        counters = {key.metric for key in numbers}
        return {
            key: value
            for key, value in found.items()
            if _LINK_RATES.get(key.metric) not in counters
        }

    def _sample(self, sample: Any) -> object:
        return self.device.call("nvmlGpmSampleGet", sample)

    def profile(self, gi: int) -> str:
        """Return the profile of an instance; empty if there is none of that number."""
        return self._mig.profile(gi)

    def forget(self) -> None:
        """Pair no sample from before a fault with one from after it."""
        self._gpm.forget()

    def free(self) -> None:
        """Give back what is held of NVML, which must be open."""
        self._gpm.free()
        self._mig.free()


def _item(answer: Any, item: str | int) -> Any:
    if isinstance(item, int):
        return answer[item]
    return getattr(answer, item, None) if item else answer
