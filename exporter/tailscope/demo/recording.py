"""A recorded run of an inference server: its scrapes, its OTLP requests, its gateway's rows.

A recording is a folder with ``meta.json`` and three gzipped files of JSON lines. Every line has a
time in UTC nanoseconds, as recorded::

    scrapes.jsonl.gz   {"at_ns", "text"}      what /metrics answered
    otlp.jsonl.gz      {"at_ns", "request"}   an ExportTraceServiceRequest, in base64
    gateway.jsonl.gz   a request record, with the record's column names
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUNDLED = Path(__file__).parent / "recording"
"""The recording that comes with Tailscope."""

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
class Recording:
    """One recorded run.

    Attributes:
        engine: Name and version of the server, for example ``vLLM 0.32.0``.
        start_ns: When the run began; what was received before belongs to the start of the server.
        end_ns: When the run ended; the next loop begins there.
        scrapes: Oldest first; at least one.
        exports: In the order of their receipt.
        gateway: Request records as mappings, by the time at which their requests ended.
    """

    engine: str
    start_ns: int
    end_ns: int
    scrapes: tuple[Scrape, ...]
    exports: tuple[Export, ...]
    gateway: tuple[Mapping[str, Any], ...]

    @property
    def period_ns(self) -> int:
        """Length of one loop."""
        return self.end_ns - self.start_ns

    @property
    def version(self) -> str:
        """Version of the server, for example ``0.32.0``."""
        return self.engine.rpartition(" ")[2]

    @property
    def notice(self) -> str:
        """One sentence that says what a viewer is looking at."""
        name, _, version = self.engine.rpartition(" ")
        short = ".".join(version.split(".")[:2])
        return (
            f"This is a recording of a real {name} {short} (run of {self.period_ns / 1e9:.0f} s, "
            "played in a loop), not a live server."
        )


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
            start_ns=meta["start_ns"],
            end_ns=meta["end_ns"],
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
    if not recording.scrapes or recording.period_ns <= 0:
        raise RecordingError(f"{folder} holds no whole recording: no scrape or no duration")
    return recording


def save(recording: Recording, folder: Path) -> None:
    """Write a recording; the same recording gives the same bytes.

    Raises:
        OSError: If the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        "engine": recording.engine,
        "start_ns": recording.start_ns,
        "end_ns": recording.end_ns,
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
