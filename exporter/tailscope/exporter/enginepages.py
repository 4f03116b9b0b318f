"""Asks a server which engine it is, and for all that the engine says in its pages."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import NamedTuple

from tailscope.catalogue import Engine
from tailscope.catalogue.upstream import Document
from tailscope.exporter.access import Access
from tailscope.exporter.documents import DocumentReader, find, rows
from tailscope.exporter.fetch import Body
from tailscope.exporter.health import SourceError
from tailscope.exporter.pages import Pages
from tailscope.exporter.recognise import recognise
from tailscope.records.record import MAX_TEXT

PATIENCE = 60.0
"""Seconds before a page that was not there is asked for again."""

SEARCH_PAUSE = 10.0
"""Seconds before an engine that is not found is looked for at all paths again."""

_ELSEWHERE = {f"http_{status}" for status in (301, 302, 303, 307, 308, 400, 404, 405, 406, 501)}
"""Answers after which the metrics may still be at another path."""


class Answer(NamedTuple):
    """What one read brought.

    Attributes:
        url: Where the metrics are.
        engine: Who answers; None if it is not known.
        text: Prometheus text, that of its JSON documents included.
        kind: What the server calls it, where that is no metrics; empty otherwise.
    """

    url: str
    engine: Engine | None
    text: str
    kind: str


class EnginePages:
    """The pages of one server.

    Args:
        url: Its base URL, or with a path that of its metrics.
        engines: Engines that it may be.
        told: The one that it is, if the user said so.
        access: What the server wants to see.
    """

    def __init__(
        self,
        url: str,
        engines: Mapping[str, Engine],
        told: Engine | None,
        access: Access,
    ) -> None:
        self._pages = Pages(url, access)
        self._engines = engines
        self._told = told
        self._known: Answer | None = None
        self._readers: dict[str, DocumentReader] = {}
        self._not_before: dict[str, float] = {}
        self._missing: dict[str, tuple[str, str]] = {}
        self._in_hand: dict[str, bytes] = {}
        self._searched: float | None = None
        self.shown = self._pages.shown(self._pages.metrics(self._paths())[0])

    def _paths(self) -> list[str]:
        if self._told is not None:
            return list(self._told.paths)
        paths = [path for engine in self._engines.values() for path in engine.paths]
        # Most engines have it where the first one looks; the rest is in the catalogue's order.
        return sorted(dict.fromkeys(paths), key=lambda path: -paths.count(path))

    def read(self, seconds: float) -> Answer:
        """Read the metrics, from where they were last time or else from where they may be.

        Args:
            seconds: Time that the read may take.

        Raises:
            SourceError: If the server does not answer, or has no metrics anywhere.
        """
        self._pages.begin(seconds)
        answer = self._again() or self._search()
        self.shown = self._pages.shown(answer.url)
        return answer

    def lost(self, answer: Answer) -> Engine | None:
        """Say who answers in place of the engine that was known; None if nobody who is known."""
        engine = self._told or recognise(answer.text, self._engines.values())
        if engine is not None:
            self._keep(answer._replace(engine=engine))
        return engine

    def _again(self) -> Answer | None:
        known = self._known
        if known is None or known.engine is None:
            return None
        try:
            return self._answer(known.url, known.engine)
        except SourceError as error:
            if error.reason not in _ELSEWHERE:
                raise
        self._known = None
        return None

    def _search(self) -> Answer:
        first: Answer | None = None
        trouble: SourceError | None = None
        for url in self._candidates():
            try:
                answer = self._answer(url, self._told)
            except SourceError as error:
                trouble = trouble or error
                if error.reason not in _ELSEWHERE:
                    break
                continue
            if answer.engine is not None and answer.text:
                self._keep(answer)
                return answer
            first = first or answer
        if first is not None:
            return first
        raise trouble or SourceError("unreachable", f"{self.shown} has no page of metrics")

    def _candidates(self) -> list[str]:
        """Return where to look: the usual place, and the others now and then."""
        urls = self._pages.metrics(self._paths())
        now = time.monotonic()
        if self._searched is not None and now - self._searched < SEARCH_PAUSE:
            return urls[:1]
        self._searched = now
        return urls

    def _keep(self, answer: Answer) -> None:
        self._known = answer
        self._pages.forget((answer.url,))

    def _answer(self, url: str, engine: Engine | None) -> Answer:
        """Read one page of metrics, and the documents beside it."""
        text, kind, trouble = "", "", None
        try:
            body = self._text(url, engine)
        except SourceError as error:
            if engine is None or not engine.documents or error.reason not in _ELSEWHERE:
                raise
            trouble = error
        else:
            text, kind = body.content.decode("utf-8", "replace"), body.document
            if engine is None:
                engine = recognise(text, self._engines.values())
            if engine is None and (other := self._told_by_document(url, body.content)):
                # Its text is elsewhere, if it has any; this page is read as the document. It may
                # have been emptied by that one read.
                self._in_hand = {url: body.content}
                return self._answer(self._pages.metrics(other.paths)[0], other)
        if engine is not None and engine.documents:
            found = [self._document(engine, document) for document in engine.documents]
            more = "".join(one for one in found if one is not None)
            if trouble is not None and all(one is None for one in found):
                raise trouble
            text = f"{text}\n{more}" if more else text
        return Answer(url, engine, text, kind)

    def _text(self, url: str, engine: Engine | None) -> Body:
        """Read the text; where there are documents, one that is not there may wait."""
        if engine is not None and url in self._document_urls(engine):
            # The user named this page. As text it would be emptied before it is read.
            raise SourceError("http_404", f"{self._pages.shown(url)} is JSON")
        missing = self._missing.get(url)
        if missing is not None and time.monotonic() < self._not_before.get(url, 0.0):
            raise SourceError(*missing)
        try:
            return self._pages.get(url)
        except SourceError as error:
            if engine is not None and engine.documents and error.reason in _ELSEWHERE:
                self._missing[url] = (error.reason, str(error))
                self._not_before[url] = time.monotonic() + PATIENCE
            raise

    def _document_urls(self, engine: Engine) -> list[str]:
        return [self._pages.beside(one.path, engine.paths) for one in engine.documents]

    def _told_by_document(self, url: str, content: bytes) -> Engine | None:
        """Return the engine that serves such a document there."""
        return next(
            (
                engine
                for engine in self._engines.values()
                for place, document in zip(
                    self._document_urls(engine), engine.documents, strict=True
                )
                if engine.recognise and url == place and rows(document, content) is not None
            ),
            None,
        )

    def _document(self, engine: Engine, document: Document) -> str | None:
        """Read a document as text; None if it is not there, which is no failure."""
        url = self._pages.beside(document.path, engine.paths)
        if time.monotonic() < self._not_before.get(url, 0.0):
            return None
        try:
            content = self._in_hand.pop(url, None)
            found = rows(document, content or self._pages.get(url).content)
        except SourceError:
            found = None
        if found is None:
            self._not_before[url] = time.monotonic() + PATIENCE
            return None
        reader = self._readers.get(url)
        if reader is None:
            reader = self._readers[url] = DocumentReader(document, engine.prefixes[0])
        return reader.text(found)

    def model(self, engine: Engine) -> str:
        """Return the served model's name from where the engine tells it; empty if it does not."""
        for lookup in engine.model_at:
            url = self._pages.beside(lookup.path, engine.paths)
            if time.monotonic() < self._not_before.get(url, 0.0):
                continue
            try:
                data = json.loads(self._pages.get(url).content)
            except (SourceError, ValueError, RecursionError):
                data = None
            self._not_before[url] = time.monotonic() + PATIENCE
            name = find(data, lookup.pointer)
            if isinstance(name, str) and 0 < len(name) <= MAX_TEXT:
                return name.rstrip("/").rpartition("/")[2] if lookup.last_part else name
        return ""

    def close(self) -> None:
        """Close all connections."""
        self._pages.close()
