"""``tailscope exporter``."""

from __future__ import annotations

import argparse
import logging
import sys

from tailscope.errors import UsageError
from tailscope.exporter.config import configure, parse
from tailscope.exporter.sidecar import Sidecar
from tailscope.records.errors import StoreError

__all__ = ["configure", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Run the exporter until it is told to stop."""
    config = parse(arguments)
    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    try:
        sidecar = Sidecar(config)
    except StoreError as error:
        raise UsageError(f"--data {config.data}: {error}") from None
    sidecar.run()
    return 0
