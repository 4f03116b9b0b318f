"""The metrics of one inference engine, read over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit, urlunsplit

from tailscope.catalogue import METRICS, PREFIX, Engine
from tailscope.exporter.exposition import Line, Lines, series
from tailscope.exporter.fetch import Fetcher
from tailscope.exporter.health import SourceError
from tailscope.exporter.normalise import Normaliser, NotPrometheus, families, recognise
from tailscope.exporter.reading import Key, Reading, Writer
from tailscope.exporter.sampler import Sampler
from tailscope.records.samples import Sample, label_text

_UP = METRICS[f"{PREFIX}engine_up"]
_RESETS = METRICS[f"{PREFIX}source_resets_total"]
_UNMAPPED = METRICS[f"{PREFIX}source_unmapped_families"]


class EngineSource:
    """One server of one engine.

    Args:
        url: Its base URL, or that of its metrics.
        engines: Engines that it may be: one if the user said which.
        deadline: Seconds that a read may take.
        longest: Longest gap between two samples that is integrated over, in seconds.
        keep: Takes the samples that go into the store.
    """

    def __init__(
        self,
        url: str,
        engines: dict[str, Engine],
        *,
        deadline: float,
        longest: float,
        keep: Callable[[Sequence[Sample]], None] | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.server = parts.netloc
        self.name = f"engine:{self.server}"
        self.engine = next(iter(engines.values())) if len(engines) == 1 else None
        self._engines = engines
        self._deadline = deadline
        self._keep = keep
        # Without a path, it is the engine's own; one engine may differ from the next in it.
        path = parts.path.rstrip("/") or next(iter(engines.values())).path
        self._fetcher = Fetcher(urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")))
        self._normaliser: Normaliser | None = None
        self._writer = Writer()
        self._sampler = Sampler(longest)
        self._reading = Reading()
        self._sampled: Lines = {}
        self._label_texts: dict[Key, str] = {}

    @property
    def model(self) -> str | None:
        """The served model, if there is just one."""
        models = self._normaliser.models if self._normaliser else set()
        return next(iter(models)) if len(models) == 1 else None

    def read(self) -> str:
        """Read the engine's metrics once.

        Raises:
            SourceError: If the engine does not answer, or with something else than its metrics.
        """
        body = self._fetcher.get(self._deadline)
        if "json" in body.content_type or "html" in body.content_type:
            raise self._not_prometheus(f"it answers {body.content_type}")
        text = body.content.decode("utf-8", "replace")
        if self._normaliser is None:
            self._normaliser = Normaliser(self._recognise(text), self.server)
            self.engine = self._normaliser.engine
        try:
            reading = self._normaliser.read(text)
        except NotPrometheus as error:
            raise self._not_prometheus(str(error)) from None
        if not reading.numbers and not reading.histograms:
            seen = ", ".join(families(text)) or "none"
            raise SourceError(
                "no_metrics",
                f"{self._fetcher.url} has no family of {self._normaliser.engine.title}; are its "
                f"metrics switched on? First families: {seen}",
            )
        self._reading = reading
        self._sampled = self._sampler.observe(time.monotonic(), reading.numbers)
        self._store(reading)
        return f"{self._normaliser.engine.title} answers at {self._fetcher.url}"

    def _recognise(self, text: str) -> Engine:
        if len(self._engines) == 1:
            return next(iter(self._engines.values()))
        engine = recognise(text, self._engines)
        if engine is not None:
            return engine
        seen = families(text)
        if not seen:
            raise self._not_prometheus("no family is declared")
        raise SourceError(
            "unknown_engine",
            f"{self._fetcher.url} is of no engine that is known "
            f"({', '.join(self._engines)}); its first families: {', '.join(seen)}",
        )

    def _not_prometheus(self, why: str) -> SourceError:
        return SourceError("not_prometheus", f"{self._fetcher.url} gives no metrics: {why}")

    def _store(self, reading: Reading) -> None:
        if self._keep is None:
            return
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
        normaliser, reading, sampled = self._normaliser, self._reading, self._sampled
        found: dict[str, list[Line]] = {}
        if fresh:
            found.update(self._writer.lines(reading))
            found.update({name: list(lines) for name, lines in sampled.items()})
        # An engine that never answered has no name, unless it could only be one.
        engine = self.engine.name if self.engine else ""
        labels = (engine, self.server)
        found[_UP.name] = [Line(series(_UP.name, _UP.labels, labels), 1 if fresh else 0)]
        if normaliser is not None:
            for metric, value in (
                (_RESETS, normaliser.resets),
                (_UNMAPPED, len(normaliser.unmapped)),
            ):
                text = series(metric.name, metric.labels, (self.name,))
                found[metric.name] = [Line(text, value)]
        return found

    def close(self) -> None:
        """Close the connection to the engine."""
        self._fetcher.close()
