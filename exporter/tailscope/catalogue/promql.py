"""PromQL from catalogue objects: a name or a label that does not exist cannot be written.

Every function returns an expression as text. ``where`` is a ready selector text (dashboards pass
their variables in it); ``match`` adds exact label values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailscope.catalogue import metric as lookup
from tailscope.catalogue.model import Across, CatalogueError, Kind, Metric

TARGET_LABELS = ("job", "instance")
"""Labels that Prometheus itself adds to every series."""


def _metric(metric: Metric | str) -> Metric:
    return lookup(metric) if isinstance(metric, str) else metric


def _check(metric: Metric, labels: Sequence[str], *, le: bool = False) -> None:
    known = (*metric.labels, *TARGET_LABELS, *(("le",) if le else ()))
    for label in labels:
        if label not in known:
            raise CatalogueError(f"{metric.name} has no label {label!r}; it has {known}")


def _by(by: Sequence[str]) -> str:
    return f" by ({', '.join(by)})" if by else ""


def selector(
    metric: Metric | str,
    where: str = "",
    match: Mapping[str, str] | None = None,
    suffix: str = "",
) -> str:
    """A vector selector, ``name{...}``.

    Args:
        metric: Metric or its name.
        where: Matchers as text, for example ``model=~"$model"``.
        match: Label values that must be equal; a value that starts with ``~`` is an expression.
        suffix: ``_bucket``, ``_sum`` or ``_count`` of a histogram.

    Raises:
        CatalogueError: If the metric lacks a label, or the suffix does not fit its type.
    """
    entry = _metric(metric)
    match = match or {}
    _check(entry, tuple(match), le=suffix == "_bucket")
    if (entry.kind is Kind.HISTOGRAM) != bool(suffix):
        raise CatalogueError(f"{entry.name} is a {entry.kind}: suffix {suffix!r} does not fit")
    matchers = [where] if where else []
    for label, value in match.items():
        operator, text = ("=~", value[1:]) if value.startswith("~") else ("=", value)
        matchers.append(f'{label}{operator}"{text}"')
    return f"{entry.name}{suffix}{{{', '.join(matchers)}}}" if matchers else entry.name + suffix


def gauge(
    metric: Metric | str,
    by: Sequence[str] = (),
    where: str = "",
    match: Mapping[str, str] | None = None,
) -> str:
    """A gauge, aggregated over everything but ``by`` as its catalogue entry says."""
    entry = _metric(metric)
    if entry.kind is not Kind.GAUGE:
        raise CatalogueError(f"{entry.name} is a {entry.kind}, not a gauge")
    _check(entry, by)
    return f"{entry.across}{_by(by)} ({selector(entry, where, match)})"


def rate(
    metric: Metric | str,
    window: str,
    by: Sequence[str] = (),
    where: str = "",
    match: Mapping[str, str] | None = None,
    suffix: str = "",
    offset: str = "",
) -> str:
    """Per-second rate of a counter, or of a histogram's ``_sum`` or ``_count``."""
    entry = _metric(metric)
    if entry.kind is Kind.GAUGE:
        raise CatalogueError(f"{entry.name} is a gauge: it has no rate")
    _check(entry, by, le=suffix == "_bucket")
    shift = f" offset {offset}" if offset else ""
    across = Across.SUM if suffix else entry.across
    return f"{across}{_by(by)} (rate({selector(entry, where, match, suffix)}[{window}]{shift}))"


def increase(
    metric: Metric | str,
    window: str,
    by: Sequence[str] = (),
    where: str = "",
    match: Mapping[str, str] | None = None,
    suffix: str = "",
) -> str:
    """Increase of a counter over the window."""
    entry = _metric(metric)
    if entry.kind is Kind.GAUGE:
        raise CatalogueError(f"{entry.name} is a gauge: it has no increase")
    _check(entry, by, le=suffix == "_bucket")
    return f"sum{_by(by)} (increase({selector(entry, where, match, suffix)}[{window}]))"


def mean(
    metric: Metric | str,
    window: str,
    by: Sequence[str] = (),
    where: str = "",
    match: Mapping[str, str] | None = None,
) -> str:
    """Mean of a histogram over the window; nothing, not NaN, where nothing was observed."""
    top = rate(metric, window, by, where, match, "_sum")
    count = rate(metric, window, by, where, match, "_count")
    return f"{top} / ({count} > 0)"


def quantile(
    q: float,
    metric: Metric | str,
    window: str,
    by: Sequence[str] = (),
    where: str = "",
    match: Mapping[str, str] | None = None,
) -> str:
    """Quantile of a histogram over the window, over the sum of everything but ``by``.

    Raises:
        CatalogueError: If the engine sets the bounds and ``by`` lacks ``engine``: buckets of
            different layouts may not be summed.
    """
    entry = _metric(metric)
    if entry.kind is not Kind.HISTOGRAM:
        raise CatalogueError(f"{entry.name} is a {entry.kind}, not a histogram")
    if not entry.buckets and "engine" not in by:
        raise CatalogueError(f"{entry.name} has the engine's own bounds: keep engine in by")
    _check(entry, by)
    buckets = rate(entry, window, ("le", *by), where, match, "_bucket")
    return f"histogram_quantile({q:g}, {buckets})"


def ratio(part: str, whole: str) -> str:
    """Part over whole; nothing, not NaN, where the whole is 0."""
    return f"{part} / ({whole} > 0)"
