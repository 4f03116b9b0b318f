"""XID codes: what the NVIDIA driver reports, and what kind of action each asks for.

The classes are the immediate actions of NVIDIA's XID catalogue for Ampere and newer
(docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), as it was in 2026. Where NVIDIA
names a workflow, the class is the one that the workflow ends in.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

IGNORE = "ignore"
"""Nothing has to be done at once."""
RESTART_APP = "restart_app"
"""The program that used the GPU is at fault or was hit; the GPU goes on."""
RESET_GPU = "reset_gpu"
"""The GPU has to be drained and reset."""
RESTART_NODE = "restart_node"
"""The machine has to be restarted."""
RESTART_VM = "restart_vm"
"""The virtual machine that owns the GPU has to be restarted."""
CHECK_MECHANICALS = "check_mechanicals"
"""Seating, power and cables have to be looked at."""
UPDATE_SOFTWARE = "update_software"
"""Driver or firmware have to be updated."""
CONTACT_SUPPORT = "contact_support"
"""The vendor has to be asked."""
CHECK_LOG = "check_log"
"""The line in the kernel log says more; it decides."""
UNKNOWN = "unknown"
"""NVIDIA's catalogue says nothing of the code."""

_CLASSES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        # 43: a program's own fault, after which the GPU is well. 45: cleans up after another XID,
        # or after a program that was ended. 63: rows were remapped. 92: many corrected ECC errors.
        IGNORE: (
            *(14, 37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121),
            *(137, 141, 152, 153, 157, 160, 161),
        ),
        # 13: fault in a kernel. 31: page fault. 94: an ECC error that hit one program.
        RESTART_APP: (
            *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, *range(68, 73), *range(75, 78), 80),
            *(*range(82, 87), 88, 89, 94, *range(96, 106), *range(126, 136), 139),
        ),
        # 48: double-bit ECC error. 64: no row left to remap to. 74: NVLink error. 95: an ECC error
        # that hit all programs. 119, 120: the GPU's system processor hangs.
        RESET_GPU: (46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
        RESTART_NODE: (79,),  # fallen off the bus
        RESTART_VM: (151,),
        CHECK_MECHANICALS: (54,),
        UPDATE_SOFTWARE: (78,),
        CONTACT_SUPPORT: (142,),
        # 144 to 150: NVLink 5, to be decoded. 154: names the recovery action. 159: depends on UVM.
        CHECK_LOG: (*range(144, 151), 154, 159),
    }
)

ACTIONS: Mapping[int, str] = MappingProxyType(
    {code: name for name, codes in _CLASSES.items() for code in codes}
)
"""Code to class of action."""

FORESEEN: tuple[int, ...] = (13, 31, 43, 45, 48, 62, 64, 74, 79, 94, 95, 119, 120)
"""Codes that are counted from 0, before the first event: ``increase()`` does not see the first
step of a counter that begins at 1."""


def action(code: int) -> str:
    """Return the class of action that a code asks for."""
    return ACTIONS.get(code, UNKNOWN)
