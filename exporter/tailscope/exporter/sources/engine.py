"""The metrics of one inference engine, read over HTTP."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tailscope.address import server_name
from tailscope.catalogue import METRICS, PREFIX, Engine
from tailscope.exporter.access import OPEN, Access
from tailscope.exporter.enginepages import PATIENCE, Answer, EnginePages
from tailscope.exporter.exposition import Line, Lines, series
from tailscope.exporter.health import SourceError, plain
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.reading import Reading, Writer
from tailscope.exporter.recognise import families, recognise
from tailscope.exporter.sampler import Sampler
from tailscope.exporter.scrapeerror import NotPrometheus, ScrapeError
from tailscope.exporter.shelf import Shelf
from tailscope.records.samples import Sample

log = logging.getLogger(__name__)

_UP = METRICS[f"{PREFIX}engine_up"]
_RESETS = METRICS[f"{PREFIX}source_resets_total"]
_UNMAPPED = METRICS[f"{PREFIX}source_unmapped_families"]

_MAX_UNMAPPED = 100
"""Families that are left out and named in the log."""

PATIENT = 30.0
"""Most seconds that a read may take. llama.cpp answers after the step that it runs (its issues
24866 and 29104); other servers under load were seen to take 10 to 35 s."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All that one good read gave; replaced as a whole."""

    engine: str
    reading: Reading
    sampled: Lines
    models: frozenset[str]
    own: Lines = field(default_factory=dict)


class EngineSource:
    """One server of one engine.

    Args:
        url: Its base URL, or with a path that of its metrics.
        engines: Engines that it may be.
        engine: The one that it is, if the user said so.
        deadline: Seconds that a read may take, to begin with.
        longest: Longest gap between two samples that is integrated over, in seconds.
        keep: Takes the samples that go into the store.
        access: What the server wants to see.
        model: Name of the served model, for an engine that tells none.

    Attributes:
        deadline: Seconds that the next read may take. A server that works may be slow to say so:
            one that answers late gets more time, up to ``PATIENT`` seconds.
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
        access: Access = OPEN,
        model: str = "",
    ) -> None:
        self.server = server_name(url)
        self.name = f"engine:{self.server}"
        self._engines = engines
        self._told = engine
        self._shelf = Shelf(keep)
        self._pages = EnginePages(url, engines, engine, access)
        self.deadline = self._least = deadline
        self._longest = longest
        self._normaliser: Normaliser | None = None
        self._named = model
        self._looked_up: float | None = None
        self._writer = Writer()
        self._sampler = Sampler(longest)
        self._snapshot: _Snapshot | None = None
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
        began = time.monotonic()
        try:
            answer = self._pages.read(self.deadline)
        except SourceError as error:
            if error.reason == "timeout":
                self._allow(2 * self.deadline)
            raise
        now = time.monotonic()
        self._allow(3 * (now - began))
        try:
            normaliser, reading = self._normalise(answer)
        except NotPrometheus as error:
            raise self._not_prometheus(answer, str(error)) from None
        except ScrapeError as error:
            raise SourceError(error.reason, f"{self._pages.shown} {error}") from None
        self._normaliser = normaliser
        reading = self._with_model(normaliser, answer, reading)
        sampled = self._sampler.observe(now, reading.numbers, max(self._longest, 3 * (now - began)))
        self._snapshot = _Snapshot(
            normaliser.engine.name, reading, sampled, normaliser.models, self._own(normaliser)
        )
        self._shelf.put(reading.numbers)
        self._tell_unmapped(normaliser)
        return f"{normaliser.engine.title} answers at {self._pages.shown}"

    def _allow(self, seconds: float) -> None:
        self.deadline = max(self._least, min(seconds, PATIENT))

    def _normalise(self, answer: Answer) -> tuple[Normaliser, Reading]:
        """Read the text as that of the engine that it was, or else as that which it is."""
        known = self._normaliser
        if known is not None and len(reading := known.read(answer.text)):
            return known, reading
        engine = answer.engine
        if known is None:
            # A page that had nothing yet may have been taken for another engine's.
            engine = self._pages.lost(answer) or engine
        elif engine is None or engine is known.engine:
            engine = self._pages.lost(answer)
        if engine is not None:
            same = known if known is not None and known.engine is engine else None
            normaliser = same or self._new(engine)
            reading = Reading() if same else normaliser.read(answer.text)
            # With a family by which it is known it is the one, and may have nothing to tell yet: a
            # gateway before its first request.
            if len(reading) or recognise(answer.text, (engine,)) is not None:
                if not same and known is not None:
                    log.info("source %s: it is %s now", self.name, engine.title)
                return normaliser, reading
        raise self._no_family(answer, engine or (known.engine if known else None))

    def _new(self, engine: Engine) -> Normaliser:
        normaliser = Normaliser(engine, self.server)
        normaliser.model = self._named
        return normaliser

    def _with_model(self, normaliser: Normaliser, answer: Answer, reading: Reading) -> Reading:
        """Look the model's name up, once a minute, for an engine that has no label for it."""
        if self._named or (normaliser.models and not normaliser.model):
            return reading
        now = time.monotonic()
        if self._looked_up is not None and now - self._looked_up < PATIENCE:
            return reading
        self._looked_up = now
        name = self._pages.model(normaliser.engine)
        if not name or name == normaliser.model:
            return reading
        normaliser.model = name
        return normaliser.read(answer.text)

    def _no_family(self, answer: Answer, engine: Engine | None) -> SourceError:
        seen = ", ".join(families(answer.text))
        if not seen or answer.kind:
            return self._not_prometheus(answer, "no line is a sample")
        if engine is not None:
            how = f" ({engine.switch_on})" if engine.switch_on else ""
            return SourceError(
                "no_metrics",
                f"{self._pages.shown} has no family of {engine.title}; are its metrics switched "
                f"on{how}? First families: {seen}",
            )
        return SourceError(
            "unknown_engine",
            f"{self._pages.shown} is of no engine that is known "
            f"({', '.join(self._engines)}); its first families: {seen}",
        )

    def _not_prometheus(self, answer: Answer, why: str) -> SourceError:
        why = f"it answers {answer.kind}" if answer.kind else why
        return SourceError("not_prometheus", f"{self._pages.shown} gives no metrics: {why}")

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
        self._pages.close()
