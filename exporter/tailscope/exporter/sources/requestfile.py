"""Follows a growing file of request records, one JSON object a line.

Rotation (another file under the name) and truncation are noticed, also where the file has grown
again since, by the hash of how it begins; a half line waits for its end. How far the file was read
is noted in the data directory after the records are kept, so that a restart goes on there; what a
crash makes it read twice, the reader of the store counts once. With a data directory a file is read
from its beginning; without one, what was in it at the start is passed over, for it was counted
before.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import zlib
from collections import Counter
from pathlib import Path

from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import SourceError
from tailscope.exporter.intake import Intake
from tailscope.exporter.sources.growing import Growing, open_growing
from tailscope.records.errors import StoreError
from tailscope.records.jsonl import MAX_LINE, load_line
from tailscope.records.record import RecordError, RequestRecord
from tailscope.records.translation import Translator

log = logging.getLogger(__name__)

_CHUNK = 2 << 20
_READ_SECONDS = 2.0
_HEAD = 1024

Identity = tuple[int, int]
"""Device and inode."""


class RequestFileSource:
    """One file.

    Args:
        path: May be missing yet.
        intake: Takes the records.
        notes: Folder for the note on how far the file was read; None to begin at its end.
        translator: Makes records of the lines; None for one that recognises them.
        seconds: Time after which a read leaves the rest of a long file to the next one.
        name: Name of the source; None for one made of the file's.
        fresh: Whether the file is known to have come after the start, so that all of it is new.
    """

    def __init__(
        self,
        path: Path,
        intake: Intake,
        notes: Path | None,
        translator: Translator | None = None,
        seconds: float = _READ_SECONDS,
        name: str | None = None,
        fresh: bool = False,
    ) -> None:
        self.path = path
        self.name = name or f"file:{path.name}"
        self._intake = intake
        self._translator = translator or Translator()
        self._note = notes / f"{_note_name(path, name)}.offset.json" if notes else None
        self._seconds = seconds
        self._file: Growing | None = None
        self._identity: Identity | None = None
        self._offset = 0
        self._head = 0, ""
        self._seen_missing = fresh
        self._skipping = False
        self._note_failed = False

    def read(self) -> str:
        """Take the lines that were added.

        Raises:
            SourceError: If the file cannot be read or its records cannot be kept.
        """
        ends = time.monotonic() + self._seconds
        try:
            if self._file is None:
                self._open()
            more = not self._rewritten() and self._take_until(ends)
            while not more and self._replaced():
                # What was written to the old file since, before it was replaced.
                more = not self._rewritten() and self._take_until(ends)
                if not more:
                    self._reopen()
                    more = self._take_until(ends)
        except FileNotFoundError:
            self._seen_missing = True
            raise SourceError("no_file", f"{self.path} is not there yet") from None
        except OSError as error:
            self.close()
            raise SourceError("unreadable", f"{self.path}: {error.strerror}") from None
        except StoreError as error:
            raise SourceError("store", str(error)) from None
        if more:
            return f"follows {self.path}, {self._behind() >> 20} MiB behind"
        return f"follows {self.path}"

    def _open(self) -> None:
        self._file = open_growing(self.path)
        identity = self._file.identity()
        if self._identity is None:
            self._offset = self._start(self._file, identity)
        elif identity != self._identity:
            self._offset = 0
        self._identity = identity
        self._remember_head()

    def _start(self, file: Growing, identity: Identity) -> int:
        """Where to begin: where the note says, if it is of this very file."""
        if self._note is None:
            return 0 if self._seen_missing else file.end()
        try:
            note = json.loads(self._note.read_text())
            offset = int(note["offset"])
            least = int(note.get("consumed", offset))
            known = (note["device"], note["inode"]) == identity
            head = min(int(note.get("head", 0)), _HEAD), str(note.get("hash", ""))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return 0
        if not (known and offset >= 0 and least <= file.size()):
            return 0
        return offset if not head[0] or self._hash(head[0]) == head[1] else 0

    def _hash(self, length: int) -> str:
        """Hash of the file's first bytes, which tells whether it is still what was read."""
        assert self._file is not None  # noqa: S101 - for the type checker
        return hashlib.blake2b(self._file.head(length), digest_size=16).hexdigest()

    def _consumed(self) -> int:
        return self._file.consumed(self._offset) if self._file else self._offset

    def _remember_head(self) -> None:
        length = min(self._consumed(), _HEAD)
        if length != self._head[0]:
            self._head = length, self._hash(length)

    def _rewritten(self) -> bool:
        """Whether the open file was cut and written anew: what is beyond the offset is not next."""
        return self._head[0] > 0 and self._hash(self._head[0]) != self._head[1]

    def _replaced(self) -> bool:
        stat = self.path.stat()
        if (stat.st_dev, stat.st_ino) == self._identity:
            if stat.st_size < self._consumed():
                return True
            return self._rewritten()
        # As long as the new file is empty, its writer may still write into the old one.
        return stat.st_size > 0

    def _reopen(self) -> None:
        self.close()
        self._file = open_growing(self.path)
        self._identity = self._file.identity()
        self._offset = 0
        self._head = 0, ""
        self._skipping = False

    def _behind(self) -> int:
        return max(self.path.stat().st_size - self._consumed(), 0)

    def _take_until(self, ends: float) -> bool:
        """Take whole lines; returns whether there is more than there was time for."""
        while self._take():
            if time.monotonic() >= ends:
                return True
        return False

    def _take(self) -> bool:
        """Take one chunk of whole lines; returns whether there may be more."""
        assert self._file is not None  # noqa: S101 - for the type checker
        chunk = self._file.read(self._offset, _CHUNK)
        end = chunk.rfind(b"\n") + 1
        if not end:
            if len(chunk) > MAX_LINE:  # no line is that long: pass over it to its end
                self._skipping = True
                self._advance(len(chunk))
                return True
            return False
        rejected: Counter[str] = Counter()
        records: list[RequestRecord] = []
        clamped = 0
        following, inode = self._offset, self._identity and self._identity[1]
        for index, line in enumerate(chunk[:end].split(b"\n")):
            position, following = following, following + len(line) + 1
            if index == 0 and self._skipping:
                rejected["too_long"] += 1
                continue
            if not line.strip():
                continue
            try:
                found = self._translator.record(load_line(line), (inode, position))
            except RecordError as error:
                rejected[error.reason] += 1
                continue
            if found is not None:
                records.append(found[0])
                clamped += found[1]
        self._intake.accept(self.name, records, rejected, clamped)
        self._skipping = False
        self._advance(end)
        return len(chunk) == _CHUNK

    def _advance(self, length: int) -> None:
        self._offset += length
        self._remember_head()
        if self._note is None or self._identity is None:
            return
        device, inode = self._identity
        note: dict[str, int | str] = {"device": device, "inode": inode, "offset": self._offset}
        note["consumed"] = self._consumed()
        note |= {"head": self._head[0], "hash": self._head[1]}
        temporary = self._note.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(note))
            temporary.rename(self._note)
        except OSError as error:
            # The records are kept; a restart before the next note would read them once more.
            if not self._note_failed:
                log.warning("cannot note how far %s was read: %s", self.path, error.strerror)
            self._note_failed = True
        else:
            self._note_failed = False

    def lines(self, fresh: bool) -> Lines:
        """Nothing: its records are counted where they come in."""
        return {}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _note_name(path: Path, source: str | None) -> str:
    """The files of a pattern may lie in several folders and be called the same."""
    return path.name if source is None else f"{path.name}.{zlib.crc32(os.fsencode(path)):08x}"
