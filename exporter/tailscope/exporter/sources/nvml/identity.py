"""Who a GPU is: by its UUID, for an index moves when another GPU is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailscope.exporter.sources.nvml.library import CallFailed, Library, Unsupported


@dataclass(frozen=True, slots=True)
class Identity:
    """What does not change about a GPU while NVML is open.

    Attributes:
        gpu: Index in NVML's order, which is that of the PCI bus.
        uuid: UUID; of a GPU that has none, as in a Jetson, its address on the bus or its index.
        model: Name of the model.
        pci_bus_id: Address on the PCI bus.
        driver: Version of the driver.
    """

    gpu: str
    uuid: str
    model: str
    pci_bus_id: str
    driver: str

    def labels(self, gi: str = "", profile: str = "") -> tuple[str, ...]:
        """Return the values of the labels of a GPU series."""
        return (self.gpu, self.uuid, self.model, gi, profile)


def identify(library: Library, index: int) -> tuple[Any, Identity]:
    """Return the handle and the identity of the GPU at an index.

    Raises:
        NvmlError: If it has no handle now, or does not say its UUID.
    """
    handle = library.call("nvmlDeviceGetHandleByIndex", index)
    model = _optional(library.text, "nvmlDeviceGetName", handle)
    bus = _optional(_bus_id, library, handle)
    try:
        uuid = library.text("nvmlDeviceGetUUID", handle)
    except Unsupported:
        uuid = bus or f"nvml-{index}"
    return handle, Identity(str(index), uuid, model, bus, library.driver)


def _bus_id(library: Library, handle: Any) -> str:
    raw = library.call("nvmlDeviceGetPciInfo", handle).busId
    return raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw)


def _optional(ask: Callable[..., str], *arguments: Any) -> str:
    try:
        return ask(*arguments)
    except (CallFailed, Unsupported):
        return ""
