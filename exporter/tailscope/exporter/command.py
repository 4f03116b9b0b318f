"""``tailscope exporter``."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import cast

from tailscope.errors import UsageError
from tailscope.exporter.config import configure, parse
from tailscope.records.errors import StoreError

__all__ = ["configure", "run"]

_NOT_HERE = ("numpy", "pandas")
"""Arrow imports these where they are installed, only to ask whether a list is one of theirs. The
exporter uses neither, and goes without their 60 MiB."""


def run(arguments: argparse.Namespace) -> int:
    """Run the exporter until it is told to stop."""
    config = parse(arguments)
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
    sidecar.run()
    return 0
