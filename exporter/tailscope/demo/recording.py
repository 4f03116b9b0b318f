"""A recorded run of an inference server: its scrapes, its OTLP requests, its gateway's rows.

A recording is a folder with ``meta.json`` and three gzipped files of JSON lines. Every line has a
time in UTC nanoseconds, as recorded::

    scrapes.jsonl.gz   {"at_ns", "text"}      what /metrics answered
    otlp.jsonl.gz      {"at_ns", "request"}   an ExportTraceServiceRequest, in base64
    gateway.jsonl.gz   a request record, with the record's column names

``calm`` in ``meta.json`` has the parts of the run in which nothing happens.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUNDLED = Path(__file__).parent / "recording"
"""The recording that comes with Tailscope."""

_CALM_NS = 900 * 10**9
"""Calm between two plays of the whole recording, at least. It is as long as the time that the app
shows at first, so that there is one incident in it: more than one would be a habit."""

_META = "meta.json"
_SCRAPES = "scrapes.jsonl.gz"
_OTLP = "otlp.jsonl.gz"
_GATEWAY = "gateway.jsonl.gz"


class RecordingError(Exception):
    """A folder holds no whole recording."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What ``/metrics`` answered at one time."""

    at_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class Export:
    """One OTLP trace request, serialised, and when it was received."""

    at_ns: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the recorded time, UTC nanoseconds."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns

    def holds(self, at_ns: int) -> bool:
        """Return whether a time lies in it."""
        return self.start_ns <= at_ns < self.end_ns


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded run.

    Attributes:
        engine: Name and version of the server, for example ``vLLM 0.32.0``.
        whole: The run; what was received before belongs to the start of the server.
        calm: Parts of it in which nothing happens, oldest first; none if it has none.
        scrapes: Oldest first; at least one.
        exports: In the order of their receipt.
        gateway: Request records as mappings, by the time at which their requests ended.
    """

    engine: str
    whole: Piece
    calm: tuple[Piece, ...]
    scrapes: tuple[Scrape, ...]
    exports: tuple[Export, ...]
    gateway: tuple[Mapping[str, Any], ...]

    @property
    def version(self) -> str:
        """Version of the server, for example ``0.32.0``."""
        return self.engine.rpartition(" ")[2]

    @property
    def round(self) -> tuple[Piece, ...]:
        """What is played over and over: the whole, then its calm parts, in turn."""
        calm = _length_ns(self.calm)
        return (self.whole, *self.calm * (math.ceil(_CALM_NS / calm) if calm else 0))

    @property
    def notice(self) -> str:
        """What a viewer is looking at, in short sentences."""
        name, _, version = self.engine.rpartition(" ")
        short = ".".join(version.split(".")[:2])
        how = "It is played in a loop."
        if self.calm:
            how = (
                f"It is played whole every {_length_ns(self.round) / 60e9:.0f} minutes; in "
                f"between, its {_length_ns(self.calm) / 1e9:.0f} calm seconds are repeated."
            )
        return (
            f"This is a recording of a real {name} {short} (run of "
            f"{self.whole.length_ns / 1e9:.0f} s), not a live server. {how} No GPU was recorded."
        )


def _length_ns(pieces: Iterable[Piece]) -> int:
    return sum(piece.length_ns for piece in pieces)


def ended_ns(row: Mapping[str, Any]) -> int:
    """Return when a gateway knows the whole of a request: at its end, where that is known."""
    return int(row.get("ended_ns") or row["arrived_ns"])


def load(folder: Path = BUNDLED) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: If a file is missing, damaged or empty.
    """
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
        recording = Recording(
            engine=meta["engine"],
            whole=Piece(meta["start_ns"], meta["end_ns"]),
            calm=tuple(Piece(start, end) for start, end in meta.get("calm", ())),
            scrapes=tuple(Scrape(row["at_ns"], row["text"]) for row in _read(folder / _SCRAPES)),
            exports=tuple(
                Export(row["at_ns"], base64.b64decode(row["request"], validate=True))
                for row in _read(folder / _OTLP)
            ),
            gateway=tuple(sorted(_read(folder / _GATEWAY), key=ended_ns)),
        )
    except OSError as error:
        raise RecordingError(
            f"cannot read {error.filename or folder}: {error.strerror or error}"
        ) from error
    except (EOFError, KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"{folder} holds no whole recording: {error!r}") from error
    if not recording.scrapes:
        raise RecordingError(f"{folder} holds no whole recording: no scrape")
    if any(piece.length_ns <= 0 for piece in (recording.whole, *recording.calm)):
        raise RecordingError(f"{folder} holds no whole recording: it, or a calm part, has no end")
    return recording


def save(recording: Recording, folder: Path) -> None:
    """Write a recording; the same recording gives the same bytes.

    Raises:
        OSError: If the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        "engine": recording.engine,
        "start_ns": recording.whole.start_ns,
        "end_ns": recording.whole.end_ns,
        "calm": [[piece.start_ns, piece.end_ns] for piece in recording.calm],
    }
    (folder / _META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    _write(folder / _SCRAPES, ({"at_ns": s.at_ns, "text": s.text} for s in recording.scrapes))
    _write(
        folder / _OTLP,
        (
            {"at_ns": item.at_ns, "request": base64.b64encode(item.body).decode("ascii")}
            for item in recording.exports
        ),
    )
    _write(folder / _GATEWAY, recording.gateway)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
