"""Follows every file whose name matches a pattern, as servers write that begin one an hour."""

from __future__ import annotations

import glob
from contextlib import suppress
from pathlib import Path

from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import SourceError
from tailscope.exporter.intake import Intake
from tailscope.exporter.sources.requestfile import RequestFileSource
from tailscope.records.translation import Translator

_MOST = 1000


class RequestFilesSource:
    """The files of one pattern. A file that is gone is forgotten.

    Args:
        pattern: With ``*``, ``?`` or ``[]``.
        intake: Takes the records.
        notes: Folder for the notes on how far the files were read; None to begin at the end of
            those that are there at the start.
        translator: Makes records of the lines.
    """

    def __init__(
        self, pattern: Path, intake: Intake, notes: Path | None, translator: Translator
    ) -> None:
        self._pattern = str(pattern)
        self.name = f"file:{pattern.name}"
        self._intake = intake
        self._notes = notes
        self._translator = translator
        self._files: dict[str, RequestFileSource] = {}
        self._started = False

    def read(self) -> str:
        """Take the lines that were added to any of the files.

        Raises:
            SourceError: If there is no file, or one cannot be read or kept; the others were read.
        """
        self._look()
        failure: SourceError | None = None
        for file in self._files.values():
            try:
                file.read()
            except SourceError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        if not self._files:
            raise SourceError("no_file", f"{self._pattern} matches no file yet")
        return f"follows {self._pattern}, {len(self._files)} files"

    def _look(self) -> None:
        found = sorted(glob.glob(self._pattern))[-_MOST:]
        for path in self._files.keys() - set(found):
            gone = self._files.pop(path)
            with suppress(SourceError):
                gone.read()  # what was written to it before it went
            gone.close()
        for path in found:
            if path not in self._files:
                self._files[path] = RequestFileSource(
                    Path(path),
                    self._intake,
                    self._notes,
                    self._translator,
                    name=self.name,
                    fresh=self._started,
                )
        self._started = True

    def lines(self, fresh: bool) -> Lines:
        """Nothing: its records are counted where they come in."""
        return {}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
