"""Follows a growing file of request records, one JSON object a line.

Rotation (another file under the name) and truncation are noticed; a half line waits for its end.
How far the file was read is noted in the data directory after the records are kept, so that a
restart goes on there; what a crash makes it read twice, the reader of the store counts once.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import BinaryIO

from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import SourceError
from tailscope.exporter.intake import Intake
from tailscope.records.errors import StoreError
from tailscope.records.jsonl import MAX_LINE, parse_line
from tailscope.records.record import RecordError, RequestRecord

_CHUNK = 4 << 20


class RequestFileSource:
    """One file.

    Args:
        path: May be missing yet.
        intake: Takes the records.
        notes: Folder for the note on how far the file was read; None to begin at its end.
    """

    def __init__(self, path: Path, intake: Intake, notes: Path | None) -> None:
        self.path = path
        self.name = f"file:{path.name}"
        self._intake = intake
        self._note = notes / f"{path.name}.offset.json" if notes else None
        self._file: BinaryIO | None = None
        self._identity = (0, 0)
        self._offset = 0
        self._skipping = False

    def read(self) -> str:
        """Take the lines that were added.

        Raises:
            SourceError: If the file cannot be read or its records cannot be kept.
        """
        try:
            if self._file is None:
                self._open()
            while self._take():
                pass
            if self._replaced():
                self._reopen()
                while self._take():
                    pass
        except FileNotFoundError:
            raise SourceError("no_file", f"{self.path} is not there yet") from None
        except OSError as error:
            raise SourceError("unreadable", f"{self.path}: {error.strerror}") from None
        except StoreError as error:
            self._rewind()
            raise SourceError("store", str(error)) from None
        return f"follows {self.path}"

    def _open(self) -> None:
        self._file = self.path.open("rb")
        stat = os.fstat(self._file.fileno())
        self._identity = (stat.st_dev, stat.st_ino)
        self._offset = self._noted(stat.st_size)
        self._file.seek(self._offset)

    def _noted(self, size: int) -> int:
        """Where to begin: where the note says, if it is of this very file."""
        if self._note is None:
            return size
        try:
            note = json.loads(self._note.read_text())
            offset = int(note["offset"])
            known = (note["device"], note["inode"]) == self._identity
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return offset if known and 0 <= offset <= size else 0

    def _replaced(self) -> bool:
        stat = self.path.stat()
        return (stat.st_dev, stat.st_ino) != self._identity or stat.st_size < self._offset

    def _reopen(self) -> None:
        self.close()
        self._file = self.path.open("rb")
        stat = os.fstat(self._file.fileno())
        self._identity = (stat.st_dev, stat.st_ino)
        self._offset = 0
        self._skipping = False

    def _rewind(self) -> None:
        if self._file is not None:
            self._file.seek(self._offset)

    def _take(self) -> bool:
        """Take one chunk of whole lines; returns whether there may be more."""
        assert self._file is not None  # noqa: S101 - for the type checker
        self._file.seek(self._offset)
        chunk = self._file.read(_CHUNK)
        end = chunk.rfind(b"\n") + 1
        if not end:
            if len(chunk) > MAX_LINE:  # no line is that long: pass over it to its end
                self._skipping = True
                self._advance(len(chunk))
                return True
            return False
        lines = chunk[:end].split(b"\n")
        rejected: Counter[str] = Counter()
        if self._skipping:
            lines = lines[1:]
            rejected["too_long"] += 1
            self._skipping = False
        records: list[RequestRecord] = []
        clamped = 0
        for line in lines:
            if not line.strip():
                continue
            try:
                record, negative = parse_line(line)
            except RecordError as error:
                rejected[error.reason] += 1
            else:
                records.append(record)
                clamped += negative
        self._intake.accept(self.name, records, rejected, clamped)
        self._advance(end)
        return len(chunk) == _CHUNK

    def _advance(self, length: int) -> None:
        self._offset += length
        if self._note is not None:
            device, inode = self._identity
            note = {"device": device, "inode": inode, "offset": self._offset}
            temporary = self._note.with_suffix(".tmp")
            temporary.write_text(json.dumps(note))
            temporary.rename(self._note)

    def lines(self, fresh: bool) -> Lines:
        """Nothing: its records are counted where they come in."""
        return {}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
