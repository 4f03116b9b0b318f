"""Retention: old sealed files go."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from tailscope.records.segments import Sealed, listing

log = logging.getLogger(__name__)


def expire(
    folders: Iterable[Path], now: float, retention_seconds: float | None, max_bytes: int | None
) -> None:
    """Delete sealed files, oldest first, that are too old, or while all tables are too large.

    Args:
        folders: One per table.
        now: Wall clock, seconds.
        retention_seconds: A file sealed longer ago than this goes; None for never.
        max_bytes: Bytes that all files may take, segments included; None for any number.
    """
    total = 0
    sealed: list[tuple[os.stat_result, Sealed]] = []
    for folder in folders:
        files, segments = listing(folder)
        sealed += [(stat, file) for file in files if (stat := _stat(file.path))]
        total += sum(stat.st_size for item in segments if (stat := _stat(item.path)))
    total += sum(stat.st_size for stat, _ in sealed)
    for stat, file in sorted(sealed, key=lambda pair: (pair[0].st_mtime, pair[1])):
        old = retention_seconds is not None and stat.st_mtime < now - retention_seconds
        if old or (max_bytes is not None and total > max_bytes):
            log.info("retention: removing %s/%s", file.path.parent.name, file.path.name)
            try:
                file.path.unlink(missing_ok=True)
            except OSError as error:
                log.error("cannot remove %s: %s", file.path, error.strerror)
            else:
                total -= stat.st_size


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
