"""A small disk that can be filled and freed; needs root."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = bytes(1 << 16)


class NoDisk(Exception):
    """This machine lets nobody mount one."""


class Disk:
    """A file system of its own.

    Args:
        path: Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no room."""
        file = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        size = len(_BLOCK)
        try:
            while size:
                try:
                    os.write(file, _BLOCK[:size])
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
        finally:
            os.close(file)

    def free(self) -> None:
        """Give the room back."""
        self._filler.unlink()

    def make_read_only(self) -> None:
        """Let nobody write any more."""
        command = ["mount", "-o", "remount,ro", str(self.path)]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[Disk]:
    """Mount a disk until the block ends.

    Raises:
        NoDisk: If that is not allowed here.
    """
    path.mkdir()
    options = f"size={mebibytes}m"
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        raise NoDisk("only root can mount a small disk") from None
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
