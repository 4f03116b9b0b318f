"""Memory that is free goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import os

# <malloc.h>
_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20


# Records come by the hundred and hold no cycles: looking for some after every 700 objects, as
# Python does, takes a tenth of the receiver's time.
_OBJECTS = (20_000, 20, 20)


def collect_seldom() -> None:
    """Have Python look for cycles less often, and no more among what has been loaded so far."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_OBJECTS)


def return_large_blocks() -> None:
    """Have large blocks of their own mapping, which ends when they are freed.

    glibc raises this limit to 32 MiB by itself when it sees large blocks come and go, and then
    keeps them: a few messages of 16 MiB leave 400 MiB behind. Where there is no glibc, nothing is
    done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE)


def return_arrow_blocks() -> None:
    """Have Arrow take its memory from the system; before it is loaded, for then it looks.

    Its own allocator keeps what a sealing took: 20 MiB, for no time that could be measured.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
