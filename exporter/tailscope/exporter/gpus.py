"""Which sources read the GPUs, by what the user chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from tailscope.address import parse_url, server_name
from tailscope.errors import UsageError
from tailscope.exporter.poller import Source
from tailscope.records.samples import Sample

if TYPE_CHECKING:
    from tailscope.exporter.sources.dcgm import DcgmSource

DCGM_URL = "http://127.0.0.1:9400/metrics"
"""Where dcgm-exporter listens unless it is told otherwise."""

Keep = Callable[[Sequence[Sample]], None]


class GpuChoice(StrEnum):
    """Values of ``--gpu``."""

    AUTO = "auto"
    NVML = "nvml"
    DCGM = "dcgm"
    OFF = "off"


def dcgm_url(choice: GpuChoice, url: str | None) -> str | None:
    """Check the URL of a dcgm-exporter; one without a scheme is http.

    Raises:
        UsageError: If it is none, or nothing reads it.
    """
    if not url:
        return None
    if choice in (GpuChoice.OFF, GpuChoice.NVML):
        raise UsageError(
            f"--gpu {choice}: reads no dcgm-exporter, and --dcgm-url names one; leave one out"
        )
    return parse_url("--dcgm-url", url, DCGM_URL)


def gpu_sources(
    choice: GpuChoice,
    dcgm_url: str | None,
    *,
    interval: float,
    deadline: float,
    longest: float,
    keep: Keep | None,
) -> list[Source]:
    """Make the sources of GPU metrics.

    ``auto`` takes NVML, with GPM where a GPU has it, and a dcgm-exporter for the activity of the
    other GPUs, or for all if NVML has none.

    Args:
        choice: What the user chose.
        dcgm_url: URL of a dcgm-exporter, if the user named one.
        interval: Seconds from one read to the next.
        deadline: Seconds that a read of dcgm-exporter may take.
        longest: Longest gap between two samples that is integrated over, in seconds.
        keep: Takes the samples that go into the store.
    """
    if choice is GpuChoice.OFF:
        return []
    found: list[Source] = []
    boards = activities = None
    if choice is not GpuChoice.DCGM:
        from tailscope.exporter.sources.nvml.source import NvmlSource

        told = choice is GpuChoice.NVML
        nvml = NvmlSource(interval=interval, longest=longest, keep=keep, told=told)
        found.append(nvml)
        boards, activities = nvml.boards, nvml.activities
    if choice is not GpuChoice.NVML:
        from tailscope.exporter.sources.dcgmbeside import DcgmBeside, Uuids

        url = dcgm_url or DCGM_URL

        def make(only: Uuids | None) -> DcgmSource:
            # Imported only where it is wanted: where GPM works, nobody reads a dcgm-exporter.
            from tailscope.exporter.sources.dcgm import DcgmSource

            return DcgmSource(
                url, deadline=deadline, longest=longest, keep=keep, activity_only_for=only
            )

        found.append(
            DcgmBeside(
                f"dcgm:{server_name(url)}",
                make,
                boards=boards,
                activities=activities or frozenset,
                told=dcgm_url is not None or choice is GpuChoice.DCGM,
            )
        )
    return found
