"""Time for which clocks were held down, summed up from the reasons that hold at each read."""

from __future__ import annotations

from collections.abc import Iterable

from tailscope.catalogue import PREFIX
from tailscope.catalogue.nvml import EVENT_REASONS, REASONS
from tailscope.exporter.reading import Key
from tailscope.exporter.sources.nvml.device import Device
from tailscope.exporter.sources.nvml.ledger import Ledger


class Throttle:
    """The reasons of one GPU for which its driver keeps no counter.

    Args:
        device: The GPU.
        labels: Values of the labels of a GPU series.
        ledger: Keeps the sums.
        longest: Longest time between two reads that is counted, in seconds.
    """

    def __init__(
        self, device: Device, labels: tuple[str, ...], ledger: Ledger, longest: float
    ) -> None:
        self._device = device
        self._ledger = ledger
        self._longest = longest
        metric = f"{PREFIX}gpu_throttled_seconds_total"
        self._keys = {bit: Key(metric, (*labels, reason)) for bit, reason in REASONS.items()}
        self._last: tuple[float, int] | None = None

    def read(self, now: float, counted: Iterable[Key]) -> dict[Key, float]:
        """Return seconds by reason.

        Args:
            now: Monotonic clock, in seconds.
            counted: Series that the driver's own counters gave.

        Raises:
            GpuLost: If the GPU is lost.
            DriverGone: If NVML has to be opened anew.
        """
        answer = self._device.ask(EVENT_REASONS)
        if answer is None:
            self._last = None
            return {}
        bits = int(answer)
        then, before = self._last or (now, bits)
        self._last = (now, bits)
        elapsed = now - then if now - then <= self._longest else 0.0
        found: dict[Key, float] = {}
        for bit, key in self._keys.items():
            if key not in counted:
                # By the trapezoid rule: half of the time if the reason came or went within it.
                held = (bool(bits & bit) + bool(before & bit)) / 2
                found[key] = self._ledger.add(key, held * elapsed)
        return found
