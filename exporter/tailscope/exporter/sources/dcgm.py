"""The GPUs of one machine as an existing dcgm-exporter shows them, read over HTTP."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tailscope.address import server_name
from tailscope.catalogue import METRICS, PREFIX, dcgm
from tailscope.exporter.dcgmpage import DcgmPage, Page
from tailscope.exporter.exposition import Line, Lines, series
from tailscope.exporter.fetch import Body, Fetcher
from tailscope.exporter.health import SourceError
from tailscope.exporter.reading import Key, Reading, Writer
from tailscope.exporter.recognise import families
from tailscope.exporter.sampler import Sampler
from tailscope.exporter.scrapeerror import NotPrometheus
from tailscope.exporter.shelf import Shelf
from tailscope.records.samples import Sample

log = logging.getLogger(__name__)

HEALTH = "health"
"""Readings of the board: memory, power, heat, clocks, faults."""
ACTIVITY = "activity"
"""Readings of the profiling counters."""
SM_ACTIVE = "sm_active"
"""SM activity among them, which dcgm-exporter leaves out until it is told."""

FROZEN_SECONDS = 300.0
"""dcgm-exporter collects every 30 s; one that lost its host engine shows old values for ever."""

_MAX_LINES = 50_000
"""16 GPUs in seven parts with every field that DCGM has come to less."""

_ENERGY = f"{PREFIX}gpu_energy_joules_total"
_SM_ACTIVE = f"{PREFIX}gpu_sm_active_ratio"
_RESETS = METRICS[f"{PREFIX}source_resets_total"]
_UNMAPPED = METRICS[f"{PREFIX}source_unmapped_families"]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All that one good read gave; replaced as a whole."""

    reading: Reading = field(default_factory=Reading)
    sampled: Lines = field(default_factory=dict)
    own: Lines = field(default_factory=dict)


class DcgmSource:
    """One dcgm-exporter.

    Args:
        url: Its base URL, or that of its metrics.
        deadline: Seconds that a read may take.
        longest: Longest gap between two samples that is integrated over, in seconds.
        keep: Takes the samples that go into the store.
        activity_only_for: None to publish everything. Otherwise only activity is published, and
            only for the GPUs whose UUIDs it returns: those whose board another source reads
            already and whose activity it cannot. It is asked at each read.
        now: Monotonic clock, seconds.

    Attributes:
        name: Value of the ``source`` label.
        gives: UUID of each GPU that could be read last to what the page has of it: ``health``,
            ``activity`` and ``sm_active``, whether or not it is published.
        indices: UUID of each GPU that is published to its index, as dcgm-exporter counts.
    """

    def __init__(
        self,
        url: str,
        *,
        deadline: float,
        longest: float,
        keep: Callable[[Sequence[Sample]], None] | None = None,
        activity_only_for: Callable[[], frozenset[str]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        path = parts.path.rstrip("/") or dcgm.PATH
        self.name = f"dcgm:{server_name(url)}"
        self.gives: Mapping[str, frozenset[str]] = {}
        self.indices: Mapping[str, str] = {}
        self._shown = f"{parts.scheme}://{server_name(url)}{path}"
        self._deadline = deadline
        self._shelf = Shelf(keep, unmoved=False)
        self._only_for = activity_only_for
        self._now = now
        self._fetcher = Fetcher(parts._replace(path=path, fragment="").geturl())
        self._page = DcgmPage()
        self._writer = Writer()
        self._sampler = Sampler(longest)
        self._snapshot = _Snapshot()
        self._last: tuple[str, float] = ("", 0.0)
        self._message = ""

    @property
    def uuids(self) -> frozenset[str]:
        """UUIDs of the GPUs that could be read last."""
        return frozenset(self.gives)

    def read(self) -> str:
        """Read the page once.

        Raises:
            SourceError: If dcgm-exporter does not answer, or with something else than its GPUs.
        """
        try:
            page = self._read()
        except SourceError:
            self.gives = {}
            raise
        self.gives = {uuid: _gives(metrics) for uuid, metrics in page.metrics.items()}
        reading = Reading(self._chosen(page.numbers))
        self.indices = {key.values[1]: key.values[0] for key in reading.numbers}
        sampled = self._sampler.observe(self._now(), reading.numbers)
        self._snapshot = _Snapshot(reading, sampled, self._own())
        self._shelf.put(reading.numbers)
        return self._say(page)

    def _read(self) -> Page:
        text = self._text(self._fetcher.get(self._deadline))
        try:
            page = self._page.read(text)
        except NotPrometheus as error:
            raise self._no_metrics(text, str(error)) from None
        if not page.gpus:
            raise self._no_metrics(text, "no line speaks of a GPU")
        self._check_alive(text, page)
        return page

    def _text(self, body: Body) -> str:
        if kind := body.document:
            raise SourceError("not_prometheus", f"{self._shown} gives no metrics but {kind}")
        text = body.content.decode("utf-8", "replace")
        if text.count("\n") > _MAX_LINES:
            raise SourceError("too_many_series", f"{self._shown} has more than {_MAX_LINES} lines")
        return text

    def _no_metrics(self, text: str, why: str) -> SourceError:
        seen = ", ".join(families(text)) or "none"
        return SourceError(
            "no_metrics",
            f"{self._shown} names no GPU ({why}). dcgm-exporter names none before it "
            f"collected for the first time, 30 s after its start. First families: {seen}",
        )

    def _check_alive(self, text: str, page: Page) -> None:
        """Energy always grows, so a page that has it and stays the same shows the past."""
        now = self._now()
        if text != self._last[0]:
            self._last = (text, now)
        elif now - self._last[1] > FROZEN_SECONDS and any(
            _ENERGY in metrics for metrics in page.metrics.values()
        ):
            raise SourceError(
                "frozen",
                f"{self._shown} has shown the same values for {FROZEN_SECONDS:.0f} s, energy "
                "among them; restart dcgm-exporter, its DCGM host engine may be gone",
            )

    def _chosen(self, numbers: Mapping[Key, float]) -> Mapping[Key, float]:
        """Leave out what another source gives."""
        if self._only_for is None:
            return numbers
        wanted = self._only_for()
        return {
            key: value
            for key, value in numbers.items()
            if key.metric in dcgm.ACTIVITY and key.values[1] in wanted
        }

    def _say(self, page: Page) -> str:
        """Say what the page has and what it lacks; once, and again when that changes."""
        message = f"dcgm-exporter answers at {self._shown}: {_summary(page, self.gives)}"
        if self._message and message != self._message:
            log.warning("source %s: %s", self.name, message)
        self._message = message
        return message

    def _own(self) -> Lines:
        values = ((_RESETS, self._page.resets), (_UNMAPPED, len(self._page.unmapped)))
        return {
            metric.name: [Line(series(metric.name, metric.labels, (self.name,)), value)]
            for metric, value in values
        }

    def lines(self, fresh: bool) -> Lines:
        """Return what was read; nothing of the GPUs if it is old, for then nothing is known."""
        snapshot = self._snapshot
        found: dict[str, Sequence[Line]] = dict(snapshot.own)
        if fresh:
            found.update(self._writer.lines(snapshot.reading))
            found.update(snapshot.sampled)
        return found

    def close(self) -> None:
        """Close the connection to dcgm-exporter."""
        self._fetcher.close()


def _gives(metrics: frozenset[str]) -> frozenset[str]:
    found = set()
    if metrics - dcgm.ACTIVITY:
        found.add(HEALTH)
    if metrics & dcgm.ACTIVITY:
        found.add(ACTIVITY)
    if _SM_ACTIVE in metrics:
        found.add(SM_ACTIVE)
    return frozenset(found)


def _summary(page: Page, gives: Mapping[str, frozenset[str]]) -> str:
    parts = [f"{len(gives)} of {page.gpus} GPUs can be read"]
    doubtful = [uuid for uuid in gives if uuid in page.doubtful]
    inactive = [
        uuid for uuid, given in gives.items() if ACTIVITY not in given and uuid not in page.doubtful
    ]
    blind = [uuid for uuid, given in gives.items() if ACTIVITY in given and SM_ACTIVE not in given]
    if doubtful:
        parts.append(
            f"activity of {_of(doubtful, gives)} stood at 0 while it worked and is left out; "
            "restart dcgm-exporter"
        )
    if inactive:
        parts.append(
            f"no activity of {_of(inactive, gives)}: no DCGM_FI_PROF_ fields; before Hopper they "
            f"need {dcgm.PROPRIETARY_PACKAGE}, before Blackwell GeForce has none"
        )
    if blind:
        parts.append(
            f"no SM activity of {_of(blind, gives)}: {dcgm.SM_ACTIVE[page.renamed]} is off by "
            "default, add it to dcgm-exporter's counters file"
        )
    return "; ".join(parts)


def _of(some: Sequence[str], every: Mapping[str, frozenset[str]]) -> str:
    if len(some) == len(every):
        return "any"
    return some[0] if len(some) == 1 else f"{len(some)}"
