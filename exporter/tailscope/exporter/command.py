"""``tailscope exporter``."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from typing import cast

from tailscope.errors import UsageError
from tailscope.exporter.config import configure, parse
from tailscope.records.errors import StoreError

__all__ = ["configure", "run"]

log = logging.getLogger(__name__)

_END = (signal.SIGTERM, signal.SIGINT)

_NOT_HERE = ("numpy", "pandas")
"""Arrow imports these where they are installed, only to ask whether a list is one of theirs. The
exporter uses neither, and goes without their 60 MiB."""


def run(arguments: argparse.Namespace) -> int:
    """Run the exporter until it is told to stop."""
    config = parse(arguments)
    # Blocked before any thread starts, and waited for: a handler would run between any two
    # instructions of the main thread, and might want a lock that this very thread holds.
    signal.pthread_sigmask(signal.SIG_BLOCK, _END)
    modules = cast("dict[str, object]", sys.modules)
    for name in _NOT_HERE:
        modules.setdefault(name, None)
    # After that, for it imports Arrow.
    from tailscope.exporter.sidecar import Sidecar

    level = logging.getLevelNamesMapping()[config.log_level.upper()]
    # The level is that of our own messages. Those of libraries tell of each connection, and would
    # quote URLs and headers of an engine, which may hold a token: urllib3 even in warnings.
    logging.basicConfig(
        level=max(level, logging.WARNING),
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("tailscope").setLevel(level)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        sidecar = Sidecar(config)
    except StoreError as error:
        raise UsageError(f"--data {config.data}: {error}") from None
    sidecar.start()
    # What the start made stays to the end: the collector need not walk it again and again.
    gc.collect()
    gc.freeze()
    signal.sigwait(_END)
    log.info("stopping")
    sidecar.stop()
    # All that was acknowledged is on the disk. A thread that hangs in a driver or in the look-up
    # of a name would keep the interpreter from its end, for ever.
    logging.shutdown()
    os._exit(0)
