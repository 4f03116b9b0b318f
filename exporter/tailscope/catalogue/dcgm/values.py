"""Which values of a page of dcgm-exporter are none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tailscope.catalogue.model import Unit

MOST_COUNTED: Mapping[Unit, float] = MappingProxyType({Unit.JOULES: 1e12, Unit.SECONDS: 1e9})
"""Beyond what a counter can reach in 30 years: one wild reading would stay in it for ever. What
gauges can reach is the same for every source: ``gpu.MOST``."""

MOST_EXACT = float(1 << 53)
"""Beyond what a number of things can be: floats count no further one by one."""

_UNSET_UINT32 = float((1 << 32) - 1)


def is_blank(value: float) -> bool:
    """Say whether a raw value is one of DCGM's words for "none".

    Blank, not found, not supported and not permitted are four numbers in a row for each type, in
    ``dcgm_structs.h``; the four of 64 bits are one and the same number as a float. 2^32 - 1 was
    never set: DCGM's issue 199.
    """
    return (
        value >= 9.22e18
        or 2147483632 <= value <= 2147483635
        or 140737488355328 <= value <= 140737488355331
        or value == _UNSET_UINT32
    )
