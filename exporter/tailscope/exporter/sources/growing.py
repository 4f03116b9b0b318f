"""Files that grow, read from an offset on: as they are, or gzip to which members are added.

An offset counts the bytes that come out, packed or not. Dynamo adds a gzip member for each batch
of lines; a member that is not whole yet gives what it has.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

_CHUNK = 1 << 15
"""Bytes that are unpacked at a time: 1,000 times as many may come out."""
_GZIP = 31  # window bits of zlib that ask for gzip and nothing else


class Growing:
    """A file as it is.

    Args:
        path: Of the file.

    Raises:
        OSError: If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        stat = os.fstat(self._file.fileno())
        return stat.st_dev, stat.st_ino

    def size(self) -> int:
        """Bytes on the disk."""
        return os.fstat(self._file.fileno()).st_size

    def head(self, length: int) -> bytes:
        """The first bytes on the disk."""
        return os.pread(self._file.fileno(), length, 0)

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes at an offset.

        Raises:
            OSError: If they cannot be read.
        """
        return os.pread(self._file.fileno(), size, offset)

    def consumed(self, offset: int) -> int:
        """How many bytes on the disk were read to come to an offset."""
        return offset

    def end(self) -> int:
        """The offset at the end."""
        return self.size()

    def close(self) -> None:
        """Close it."""
        self._file.close()


class GrowingGzip(Growing):
    """A file of gzip members."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._begin()

    def _begin(self) -> None:
        self._machine = zlib.decompressobj(_GZIP)
        self._taken = 0
        self._rest = b""
        self._plain = bytearray()
        self._offset = 0
        self._damage: str | None = None

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes at an offset.

        Raises:
            OSError: If there is no more, and what follows cannot be read or is no gzip.
        """
        if offset < self._offset:
            self._begin()
        while self._skip(offset) or len(self._plain) < size:
            if not self._more():
                break
        if self._damage and not self._plain:
            raise OSError(0, self._damage)
        return bytes(self._plain[:size]) if self._offset == offset else b""

    def _skip(self, offset: int) -> bool:
        """Drop what lies before an offset; returns whether that is still ahead."""
        dropped = min(offset - self._offset, len(self._plain))
        del self._plain[:dropped]
        self._offset += dropped
        return self._offset < offset

    def _more(self) -> bool:
        """Unpack some more; returns whether there may be more still."""
        if not self._rest:
            self._rest = os.pread(self._file.fileno(), _CHUNK, self._taken)
            self._taken += len(self._rest)
        if not self._rest or self._damage:
            return False
        if self._machine.eof:
            self._machine = zlib.decompressobj(_GZIP)
        try:
            self._plain += self._machine.decompress(self._rest)
        except zlib.error:
            self._damage = "it is no gzip, or a damaged one"
            return False
        self._rest = self._machine.unused_data
        return True

    def consumed(self, offset: int) -> int:
        """How many bytes on the disk were read, at least as many as lead to an offset."""
        return self._taken

    def end(self) -> int:
        """The offset at the end, which takes unpacking all of it."""
        while self._more():
            self._skip(self._offset + len(self._plain))
        return self._offset + len(self._plain)


def open_growing(path: Path) -> Growing:
    """Open a file, by its name.

    Raises:
        OSError: If it cannot be opened.
    """
    return GrowingGzip(path) if path.suffix == ".gz" else Growing(path)
