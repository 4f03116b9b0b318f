"""Vectors, aggregated as the catalogue says: the parts that ``joins`` puts together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tailscope.catalogue import METRICS
from tailscope.catalogue import metric as lookup
from tailscope.catalogue.model import Across, CatalogueError, Kind, Metric
from tailscope.catalogue.promql.joins import ratio

TARGET_LABELS = ("job", "instance")
"""Labels that Prometheus itself adds to every series."""

LABELS = frozenset(TARGET_LABELS).union(*(entry.labels for entry in METRICS.values()))
"""Every label that a series of ours can carry."""

ALERT_LABELS = ("alertname", "severity", "cause")
"""Labels of an alert that tell what it is, beside those of what it is about."""

UP = "up"
"""Prometheus's own series: whether the last scrape of a target worked."""

ALERTS = "ALERTS"
"""Prometheus's own series: one for each alert that fires or is about to."""

_WINDOW = re.compile(r"\$__(rate_interval|interval|range)|\$[a-z]+|(\d+(ms|[smhdwy]))+")
_OPERATORS = {"!~": "!~", "!": "!=", "~": "=~", "": "="}
"""What stands before a matcher's value, longest first, and the operator that it means."""


@dataclass(frozen=True, slots=True)
class Query:
    """Writes expressions over one window and one choice of series.

    Attributes:
        window: Range that rates and quantiles look back over: a duration, or a macro or a
            variable of Grafana's.
        where: Matchers for every metric that has the label; others are left alone.
        by: Labels that aggregations keep where the call does not say otherwise.
        offset: Duration by which everything is shifted into the past.

    Raises:
        CatalogueError: If the window is no duration, or no metric has a label of ``where``.
    """

    window: str
    where: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    by: Sequence[str] = ()
    offset: str = ""

    def __post_init__(self) -> None:
        for text in filter(None, (self.window, self.offset)):
            if not _WINDOW.fullmatch(text):
                raise CatalogueError(f"{text!r} is no duration such as 5m, and no macro of Grafana")
        for label in self.where:
            if label not in LABELS:
                raise CatalogueError(f"no metric has the label {label!r}")

    def vector(
        self, metric: Metric | str, match: Mapping[str, str] | None = None, suffix: str = ""
    ) -> str:
        """The series themselves, ``name{...}``, not aggregated.

        Args:
            metric: Metric or its name; the prefix may be left out.
            match: Matchers on labels that the metric must have.
            suffix: ``_bucket``, ``_sum`` or ``_count`` of a histogram.

        Raises:
            CatalogueError: If the metric lacks a label, or the suffix does not fit its type.
        """
        return self._series(metric, match, suffix) + self._shift

    def gauge(
        self,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
    ) -> str:
        """Last value of a gauge, combined as its catalogue entry says."""
        entry = _of_kind(metric, Kind.GAUGE)
        return _aggregate(entry.across, self._by(entry, by), self.vector(entry, match))

    def last(self, metric: Metric | str, by: Sequence[str] | None = None) -> str:
        """Last value of a gauge within the window, though its series may be gone by now."""
        entry = _of_kind(metric, Kind.GAUGE)
        found = f"last_over_time({self._ranged(entry)})"
        return _aggregate(entry.across, self._by(entry, by), found)

    def rate(
        self,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
        suffix: str = "",
    ) -> str:
        """Per-second rate of a counter, or of a part of a histogram."""
        return self._growth("rate", metric, by, match, suffix)

    def increase(
        self,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
        suffix: str = "",
    ) -> str:
        """Increase of a counter, or of a part of a histogram, over the window."""
        return self._growth("increase", metric, by, match, suffix)

    def time_mean(
        self,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
    ) -> str:
        """True mean of a gauge over the window, from the counter that is its time integral.

        Raises:
            CatalogueError: If the gauge has no such counter.
        """
        return self.rate(_derived(_of_kind(metric, Kind.GAUGE), "integral_of"), by, match)

    def mean(
        self,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
    ) -> str:
        """Mean of what a histogram observed; nothing, not NaN, where it observed nothing."""
        return ratio(self.rate(metric, by, match, "_sum"), self.rate(metric, by, match, "_count"))

    def quantile(
        self,
        q: float,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
    ) -> str:
        """Quantile of a histogram, or of the samples of a gauge; nothing where it has none.

        Raises:
            CatalogueError: If the engine sets the bounds and ``by`` lacks ``engine``: buckets of
                different layouts may not be summed.
        """
        entry = _metric(metric)
        if entry.kind is Kind.GAUGE:
            entry = _derived(entry, "distribution_of")
        kept = self._by(_of_kind(entry, Kind.HISTOGRAM), by)
        _check_layout(entry, kept)
        buckets = self.rate(entry, ("le", *kept), match, "_bucket")
        # Without observations the quantile is NaN, and no NaN is 0 or more.
        return f"histogram_quantile({q:g}, {buckets}) >= 0"

    def buckets(
        self,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
    ) -> str:
        """What each bucket of a histogram gained, for a heatmap.

        Raises:
            CatalogueError: As ``quantile``.
        """
        entry = _of_kind(metric, Kind.HISTOGRAM)
        kept = self._by(entry, by)
        _check_layout(entry, kept)
        return self.increase(entry, ("le", *kept), match, "_bucket")

    def share_above(
        self,
        bound: float,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
    ) -> str:
        """Share of the observations above a bound of the histogram: exact, not interpolated.

        Raises:
            CatalogueError: If the bound is none of the histogram's own.
        """
        entry = _of_kind(metric, Kind.HISTOGRAM)
        if bound not in entry.buckets:
            raise CatalogueError(f"{entry.name} has no bound {bound:g}; it has {entry.buckets}")
        # le="1" of a text scrape is stored as le="1.0" by Prometheus 3.
        le = re.escape(f"{bound:g}") + ("" if bound % 1 else r"(\.0)?")
        return f"1 - {self.share_within(le, entry, by, match)}"

    def share_within(
        self,
        bound: str,
        metric: Metric | str,
        by: Sequence[str] | None = None,
        match: Mapping[str, str] | None = None,
    ) -> str:
        """Share of the observations up to a bound, given as an expression that its ``le`` matches.

        For a bound that is chosen later, by a variable; ``share_above`` checks it.
        """
        return ratio(
            self.rate(metric, by, {**(match or {}), "le": f"~{bound}"}, "_bucket"),
            self.rate(metric, by, match, "_count"),
        )

    def firing(self, pattern: str, by: Sequence[str] = ()) -> str:
        """Alerts that fire and whose name matches the expression, as Prometheus itself says.

        Not those of ``where`` alone: an alert carries the labels of what it is about, and one
        about a missing exporter has neither job nor instance.
        """
        wanted = {"alertname": f"~{pattern}", "alertstate": "firing"}
        matchers = ", ".join(_matcher(label, value) for label, value in wanted.items())
        return _aggregate(Across.MAX, (*ALERT_LABELS, *by), f"{ALERTS}{{{matchers}}}")

    def up(self) -> str:
        """Whether the last scrape of a target worked (1) or not (0), as Prometheus itself says."""
        kept = {k: v for k, v in self.where.items() if k in TARGET_LABELS}
        matchers = ", ".join(_matcher(label, value) for label, value in kept.items())
        return _aggregate(Across.MAX, TARGET_LABELS, f"{UP}{{{matchers}}}" if matchers else UP)

    @property
    def _shift(self) -> str:
        return f" offset {self.offset}" if self.offset else ""

    def _by(self, entry: Metric, by: Sequence[str] | None) -> tuple[str, ...]:
        kept = tuple(self.by if by is None else by)
        _check_labels(entry, kept)
        return kept

    def _series(self, metric: Metric | str, match: Mapping[str, str] | None, suffix: str) -> str:
        entry = _metric(metric)
        match = match or {}
        _check_labels(entry, match, le=suffix == "_bucket")
        if (entry.kind is Kind.HISTOGRAM) != (suffix in ("_bucket", "_sum", "_count")):
            raise CatalogueError(f"{entry.name} is a {entry.kind}: suffix {suffix!r} does not fit")
        carried = (*TARGET_LABELS, *entry.labels)
        wanted = {k: v for k, v in self.where.items() if k in carried} | dict(match)
        matchers = ", ".join(_matcher(label, value) for label, value in wanted.items())
        return f"{entry.name}{suffix}" + (f"{{{matchers}}}" if matchers else "")

    def _ranged(
        self, metric: Metric | str, match: Mapping[str, str] | None = None, suffix: str = ""
    ) -> str:
        return f"{self._series(metric, match, suffix)}[{self.window}]{self._shift}"

    def _growth(
        self,
        function: str,
        metric: Metric | str,
        by: Sequence[str] | None,
        match: Mapping[str, str] | None,
        suffix: str,
    ) -> str:
        entry = _metric(metric)
        if entry.kind is Kind.GAUGE:
            raise CatalogueError(f"{entry.name} is a gauge: it has no {function}")
        kept = tuple(self.by if by is None else by)
        _check_labels(entry, kept, le=suffix == "_bucket")
        across = Across.SUM if suffix else entry.across
        return _aggregate(across, kept, f"{function}({self._ranged(entry, match, suffix)})")


def _metric(metric: Metric | str) -> Metric:
    return lookup(metric) if isinstance(metric, str) else metric


def _of_kind(metric: Metric | str, kind: Kind) -> Metric:
    entry = _metric(metric)
    if entry.kind is not kind:
        raise CatalogueError(f"{entry.name} is a {entry.kind}, not a {kind}")
    return entry


def _derived(gauge: Metric, relation: str) -> Metric:
    for entry in METRICS.values():
        if getattr(entry, relation) == gauge.name:
            return entry
    raise CatalogueError(f"no metric is {relation.replace('_', ' ')} {gauge.name}")


def _check_labels(
    metric: Metric, labels: Sequence[str] | Mapping[str, str], *, le: bool = False
) -> None:
    known = (*metric.labels, *TARGET_LABELS, *(("le",) if le else ()))
    for label in labels:
        if label not in known:
            raise CatalogueError(f"{metric.name} has no label {label!r}; it has {known}")


def _check_layout(metric: Metric, by: Sequence[str]) -> None:
    if not metric.buckets and "engine" not in by:
        raise CatalogueError(f"{metric.name} has the engine's own bounds: keep engine in by")


def _matcher(label: str, value: str) -> str:
    mark = next(mark for mark in _OPERATORS if value.startswith(mark))
    text = value.removeprefix(mark).replace("\\", "\\\\").replace('"', '\\"')
    return f'{label}{_OPERATORS[mark]}"{text}"'


def _aggregate(across: Across, by: Sequence[str], vector: str) -> str:
    kept = f" by ({', '.join(by)})" if by else ""
    return f"{across}{kept} ({vector})"
