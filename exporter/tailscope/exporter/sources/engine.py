"""The metrics of one inference engine, read over HTTP."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tailscope.catalogue import METRICS, PREFIX, Engine
from tailscope.exporter.exposition import Line, Lines, series
from tailscope.exporter.fetch import Fetcher, server_name
from tailscope.exporter.health import SourceError, plain
from tailscope.exporter.normalise import Normaliser, NotPrometheus, ScrapeError
from tailscope.exporter.reading import Key, Reading, Writer
from tailscope.exporter.recognise import families, recognise
from tailscope.exporter.sampler import Sampler
from tailscope.records.samples import Sample, label_text

log = logging.getLogger(__name__)

_UP = METRICS[f"{PREFIX}engine_up"]
_RESETS = METRICS[f"{PREFIX}source_resets_total"]
_UNMAPPED = METRICS[f"{PREFIX}source_unmapped_families"]

_MAX_UNMAPPED = 100
"""Families that are left out and named in the log."""

_SPARE = 1_000
"""Label texts that are remembered beyond twice those of the last reading."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All that one good read gave; replaced as a whole."""

    engine: str
    reading: Reading
    sampled: Lines
    models: frozenset[str]
    own: Mapping[str, list[Line]] = field(default_factory=dict)


class EngineSource:
    """One server of one engine.

    Args:
        url: Its base URL, or with a path that of its metrics.
        engines: Engines that it may be.
        engine: The one that it is, if the user said so.
        deadline: Seconds that a read may take.
        longest: Longest gap between two samples that is integrated over, in seconds.
        keep: Takes the samples that go into the store.
    """

    def __init__(
        self,
        url: str,
        engines: Mapping[str, Engine],
        *,
        engine: Engine | None = None,
        deadline: float,
        longest: float,
        keep: Callable[[Sequence[Sample]], None] | None = None,
    ) -> None:
        self.server = server_name(url)
        self.name = f"engine:{self.server}"
        self._engines = engines
        self._told = engine
        self._deadline = deadline
        self._keep = keep
        self._fetcher = Fetcher(_metrics_url(url, engine or next(iter(engines.values()))))
        self._normaliser: Normaliser | None = None
        self._writer = Writer()
        self._sampler = Sampler(longest)
        self._snapshot: _Snapshot | None = None
        self._label_texts: dict[Key, str] = {}
        self._told_unmapped: set[str] = set()

    @property
    def model(self) -> str | None:
        """The served model, if there is just one."""
        models = self._snapshot.models if self._snapshot else frozenset()
        return next(iter(models)) if len(models) == 1 else None

    def read(self) -> str:
        """Read the engine's metrics once.

        Raises:
            SourceError: If the engine does not answer, or with something else than its metrics.
        """
        body = self._fetcher.get(self._deadline)
        now = time.monotonic()
        if kind := body.document:
            raise self._not_prometheus(f"it answers {kind}")
        text = body.content.decode("utf-8", "replace")
        try:
            normaliser, reading = self._normalise(text)
        except NotPrometheus as error:
            raise self._not_prometheus(str(error)) from None
        except ScrapeError as error:
            raise SourceError(error.reason, f"{self._fetcher.shown} {error}") from None
        self._normaliser = normaliser
        sampled = self._sampler.observe(now, reading.numbers)
        self._snapshot = _Snapshot(
            normaliser.engine.name, reading, sampled, normaliser.models, self._own(normaliser)
        )
        self._store(reading)
        self._tell_unmapped(normaliser)
        return f"{normaliser.engine.title} answers at {self._fetcher.shown}"

    def _normalise(self, text: str) -> tuple[Normaliser, Reading]:
        """Read the text as that of the engine that it was, or else as that which it is."""
        known = self._normaliser
        if known is not None and len(reading := known.read(text)):
            return known, reading
        engine = self._told or recognise(text, self._engines.values())
        if engine is not None and (known is None or engine is not known.engine):
            normaliser = Normaliser(engine, self.server)
            if len(reading := normaliser.read(text)):
                return normaliser, reading
        raise self._no_family(text, engine or (known.engine if known else None))

    def _no_family(self, text: str, engine: Engine | None) -> SourceError:
        seen = ", ".join(families(text))
        if not seen:
            return self._not_prometheus("no family is declared")
        if engine is not None:
            return SourceError(
                "no_metrics",
                f"{self._fetcher.shown} has no family of {engine.title}; are its metrics switched "
                f"on? First families: {seen}",
            )
        return SourceError(
            "unknown_engine",
            f"{self._fetcher.shown} is of no engine that is known "
            f"({', '.join(self._engines)}); its first families: {seen}",
        )

    def _not_prometheus(self, why: str) -> SourceError:
        return SourceError("not_prometheus", f"{self._fetcher.shown} gives no metrics: {why}")

    def _own(self, normaliser: Normaliser) -> dict[str, list[Line]]:
        values = ((_RESETS, normaliser.resets), (_UNMAPPED, len(normaliser.unmapped)))
        return {
            metric.name: [Line(series(metric.name, metric.labels, (self.name,)), value)]
            for metric, value in values
        }

    def _tell_unmapped(self, normaliser: Normaliser) -> None:
        """Name the families that are left out, each once; a source that makes up names is cut."""
        new = [name for name in normaliser.unmapped if name not in self._told_unmapped]
        for name in new[: _MAX_UNMAPPED - len(self._told_unmapped)]:
            self._told_unmapped.add(name)
            why = normaliser.unmapped[name]
            log.info("source %s: family %s is left out: %s", self.name, plain(name), why)

    def _store(self, reading: Reading) -> None:
        if self._keep is None:
            return
        if len(self._label_texts) > 2 * len(reading) + _SPARE:
            self._label_texts = {}
        now = time.time_ns()
        self._keep(
            [
                Sample(now, key.metric, self._label_text(key), value)
                for key, value in reading.numbers.items()
                if METRICS[key.metric].stored
            ]
        )

    def _label_text(self, key: Key) -> str:
        text = self._label_texts.get(key)
        if text is None:
            labels = dict(zip(METRICS[key.metric].labels, key.values, strict=True))
            text = self._label_texts[key] = label_text(labels)
        return text

    def lines(self, fresh: bool) -> Lines:
        """Return what was read, and whether the engine is up."""
        snapshot = self._snapshot
        found: dict[str, Sequence[Line]] = {}
        if fresh and snapshot is not None:
            found.update(self._writer.lines(snapshot.reading))
            found.update(snapshot.sampled)
        if snapshot is not None:
            found.update(snapshot.own)
        # An engine that never answered has no name, unless the user said which it is.
        engine = snapshot.engine if snapshot else self._told.name if self._told else ""
        text = series(_UP.name, _UP.labels, (engine, self.server))
        found[_UP.name] = [Line(text, 1 if fresh else 0)]
        return found

    def close(self) -> None:
        """Close the connection to the engine."""
        self._fetcher.close()


def _metrics_url(url: str, engine: Engine) -> str:
    """Return the URL of the metrics: a URL without a path is the engine's base."""
    parts = urlsplit(url)
    return parts._replace(path=parts.path.rstrip("/") or engine.paths[0], fragment="").geturl()
