"""An engine's Prometheus text to a reading in the catalogue's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

from tailscope.catalogue import METRICS, Across, Engine, Kind, Unit
from tailscope.exporter.derive import derive
from tailscope.exporter.entries import Measure
from tailscope.exporter.mapping import Series
from tailscope.exporter.merge import Origin, added, buckets, one, share
from tailscope.exporter.past import Past
from tailscope.exporter.reading import Buckets, Key, Reading
from tailscope.exporter.select import select
from tailscope.exporter.seriestext import SeriesText

_RATIOS = frozenset(name for name, metric in METRICS.items() if metric.unit is Unit.RATIO)


class Normaliser:
    """Reads one server of one engine, scrape by scrape.

    Args:
        engine: The catalogue's entry.
        server: Value of the ``server`` label, ``host:port``.

    Attributes:
        resets: How often a scrape had series that had gone back.
        models: Served models that the last scrape named.
        model: The served model, from elsewhere; for series that name none.
    """

    def __init__(self, engine: Engine, server: str) -> None:
        self.engine = engine
        self.server = server
        self.resets = 0
        self.models: frozenset[str] = frozenset()
        self.model = ""
        self._text = SeriesText(engine)
        self._past = Past()

    @property
    def unmapped(self) -> Mapping[str, str]:
        """Families that are neither mapped nor ignored, with the first reason seen."""
        return self._text.unmapped

    def read(self, text: str) -> Reading:
        """Turn one scrape into a reading.

        Raises:
            ScrapeError: If the text is no Prometheus text, is too large, or is of another server
                than before.
        """
        found = select(self._text.read(text))
        self._past.check(found)
        return self._reading(found)

    def _reading(self, found: Mapping[Series, dict[str, float]]) -> Reading:
        self.models = frozenset(series.model for series in found if series.model)
        if not self.models and self.model:
            self.models = frozenset((self.model,))
        model = next(iter(self.models)) if len(self.models) == 1 else ""
        ranks = {series.rank for series in found if series.rank is not None}
        numbers: dict[Key, list[tuple[Origin, float]]] = {}
        histograms: dict[Key, list[Buckets]] = {}
        measures: dict[str, Series] = {}
        reset = False
        for series, parts in found.items():
            measure = series.measure
            measures[measure.name] = series
            rank = (series.rank or "") if len(ranks) > 1 else ""
            labels = (self.engine.name, self.server, series.model or model, rank, *series.more)
            key = Key(measure.name, labels)
            totals: Mapping[str, float] = parts
            if measure.kind is not Kind.GAUGE:
                totals, went_back = self._past.carried(series, key, parts)
                reset |= went_back
            if measure.kind is Kind.HISTOGRAM:
                if (whole := buckets(totals)) is not None:
                    histograms.setdefault(key, []).append(whole)
            elif "" in totals and (number := _possible(measure, totals[""])) is not None:
                numbers.setdefault(key, []).append((series.origin, number))
        self.resets += reset
        self._past.add_gone({series.key for series in found}, numbers, histograms)
        merged = _merged(numbers, measures)
        derive(self.engine, merged)
        return Reading(
            merged,
            {
                key: whole
                for key, parts in histograms.items()
                if (whole := added(parts)) is not None
            },
        )


def _possible(measure: Measure, number: float) -> float | None:
    """Return a number, unless it cannot be: a count below 0, a share above 1.

    Gauges that are added to and taken from lose count, and -1 stands for "not known".
    """
    if number < 0:
        return None
    if measure.name in _RATIOS:
        return share(number)
    return number


def _merged(
    numbers: Mapping[Key, list[tuple[Origin, float]]], measures: Mapping[str, Series]
) -> dict[Key, float]:
    merged: dict[Key, float] = {}
    for key, values in numbers.items():
        if len(values) == 1:  # as nearly always
            merged[key] = values[0][1]
            continue
        measure = measures[key.metric].measure
        weights: dict[Origin, float] = {}
        if measure.across is Across.MEAN:
            for other, others in numbers.items():
                if other.metric == measure.weighted_by:
                    for origin, value in others:
                        weights[origin] = weights.get(origin, 0.0) + value
        merged[key] = one(measure.across, values, weights)
    return merged
