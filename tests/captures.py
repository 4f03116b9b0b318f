"""Pages of engines, recorded or typed after public sources, and a server that gives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailscope.catalogue import Engine
from tailscope.catalogue.engines import engines
from tailscope.exporter.exposition import number, render
from tailscope.exporter.reading import Reading, Writer
from tailscope.exporter.sources.engine import EngineSource
from tests.fake_engine import Exchange, FakeEngine

FOLDER = Path(__file__).parent / "captures"


@dataclass(frozen=True, slots=True)
class Capture:
    """One version of one engine.

    Attributes:
        engine: Which engine it is.
        path: Its Prometheus text; may be missing, if the engine serves JSON alone.
    """

    engine: Engine
    path: Path

    def __str__(self) -> str:
        return f"{self.engine.name}-{self.path.stem}"

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8") if self.path.is_file() else ""

    @property
    def golden(self) -> Path:
        return self.path.with_suffix(".golden")

    @property
    def documents(self) -> dict[str, bytes]:
        """JSON by its path: ``1.2.v1_models.json`` is at /v1/models."""
        start = f"{self.path.stem}."
        known = {
            document.path for dialect in self.engine.dialects for document in dialect.documents
        }
        known |= {lookup.path for lookup in self.engine.model_at}
        names = {path.strip("/").replace("/", "_"): path for path in known}
        return {
            names[path.name.removeprefix(start).removesuffix(".json")]: path.read_bytes()
            for path in sorted(self.path.parent.glob(f"{start}*.json"))
        }


def captures(folder: Path = FOLDER) -> Iterator[Capture]:
    """Every capture, by the name of its engine's folder."""
    for name, engine in engines().items():
        # The golden names it, for an engine may have no text at all.
        paths = {*(folder / name).glob("*.prom"), *(folder / name).glob("*.golden")}
        for path in sorted({path.with_suffix(".prom") for path in paths}):
            yield Capture(engine, path)


@contextmanager
def served(capture: Capture) -> Iterator[FakeEngine]:
    """A server that answers as the engine did."""
    pages = {path: (body, "application/json") for path, body in capture.documents.items()}
    if capture.text:
        pages[capture.engine.paths[0]] = (capture.text.encode(), "text/plain; version=0.0.4")

    def behaviour(exchange: Exchange) -> None:
        body, kind = pages.get(exchange.path, (b'{"detail":"Not Found"}', "application/json"))
        exchange.reply(body, kind, 200 if exchange.path in pages else 404)

    engine = FakeEngine(behaviour)
    try:
        yield engine
    finally:
        engine.stop()


def page_of(source: EngineSource) -> str:
    """All that the exporter says of a source that was read."""
    return render([source.lines(True)], None, True).decode()


def lines(reading: Reading) -> str:
    """A reading as the exporter writes it."""
    found = [line for lines in Writer().lines(reading).values() for line in lines]
    return "".join(f"{line.series} {number(line.value)}\n" for line in found)
