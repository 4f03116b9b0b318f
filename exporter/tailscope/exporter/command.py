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

    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    # It tells of each listener and connection; ours tell what a user wants to know.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        sidecar = Sidecar(config)
    except StoreError as error:
        raise UsageError(f"--data {config.data}: {error}") from None
    sidecar.run()
    return 0
