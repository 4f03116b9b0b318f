"""An engine's Prometheus text to a reading in the catalogue's vocabulary.

Parsing a scrape anew takes ``prometheus-client`` 28 ms for vLLM's 55 kB, at every second 3 % of a
core. The series of an engine hardly change, so each line's series text is parsed once, by that
library, and remembered with what becomes of it; later scrapes only read the numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tailscope.catalogue import METRICS, Across, Engine, Kind, Metric, Upstream
from tailscope.exporter.reading import Buckets, Key, Reading

_MAX_SERIES = 200_000
_SUFFIXES = ("_bucket", "_sum", "_count", "_total", "_created")
_TYPE = re.compile(r"# TYPE (\S+) (\S+)")


class NotPrometheus(ValueError):
    """The text is no Prometheus exposition."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What becomes of one upstream series.

    ``model`` and ``rank`` are as the engine says, None where it does not say. ``group`` tells
    apart upstream series that meet in one of ours; ``part`` is the bound or ``sum`` of a
    histogram, empty otherwise.
    """

    metric: Metric
    model: str | None
    rank: str | None
    more: tuple[str, ...]
    group: str
    part: str
    scale: float
    fixed_value: float | None


class _Group:
    """Values of one upstream series, carried on over restarts of the engine."""

    __slots__ = ("offsets", "values")

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.offsets: dict[str, float] = {}

    def update(self, values: dict[str, float]) -> bool:
        """Take new raw values; returns whether they went back."""
        known = self.values
        reset = False
        if known:
            if values.keys() != known.keys():
                # Other bounds: what was counted in the old ones has no place in the new ones.
                self.offsets = {}
                reset = True
            elif any(values[part] < known[part] for part in values):
                for part, value in known.items():
                    self.offsets[part] = self.offsets.get(part, 0.0) + value
                reset = True
        self.values = values
        return reset

    def totals(self) -> dict[str, float]:
        """Values with what earlier lives of the engine counted."""
        if not self.offsets:
            return self.values
        return {part: value + self.offsets.get(part, 0.0) for part, value in self.values.items()}


class Normaliser:
    """Reads one server of one engine, scrape by scrape.

    Args:
        engine: The catalogue's entry.
        server: Value of the ``server`` label, ``host:port``.

    Attributes:
        resets: How often a series of the engine went back.
        unmapped: Families that are neither mapped nor ignored, with the first reason seen.
        models: Served models that the engine named so far.
    """

    def __init__(self, engine: Engine, server: str) -> None:
        self.engine = engine
        self.server = server
        self.resets = 0
        self.unmapped: dict[str, str] = {}
        self.models: set[str] = set()
        self._families = {
            family: upstream for upstream in engine.upstream for family in upstream.families
        }
        self._types: dict[str, str] = {}
        self._comments: set[str] = set()
        self._targets: dict[str, _Target | None] = {}
        self._groups: dict[tuple[str, str], _Group] = {}
        self._ranks: set[str] = set()

    def read(self, text: str) -> Reading:
        """Turn one scrape into a reading.

        Raises:
            NotPrometheus: If no line of the text is a sample.
        """
        if len(self._targets) > _MAX_SERIES:
            self._targets.clear()
            self._groups.clear()
        gauges: dict[_Target, float] = {}
        cumulative: dict[tuple[str, str], tuple[_Target, dict[str, float]]] = {}
        samples = 0
        for target, value in self._samples(text):
            samples += 1
            if target is None or not math.isfinite(value):
                continue
            value = target.fixed_value if target.fixed_value is not None else value * target.scale
            if target.metric.kind is Kind.GAUGE:
                gauges[target] = value
            else:
                group = cumulative.setdefault((target.metric.name, target.group), (target, {}))
                group[1][target.part] = value
        if not samples:
            raise NotPrometheus("no line is a sample")
        return self._reading(gauges, cumulative)

    def _samples(self, text: str) -> Iterator[tuple[_Target | None, float]]:
        targets, comments = self._targets, self._comments
        for line in text.split("\n"):
            if not line:
                continue
            if line[0] == "#":
                if line not in comments:
                    self._comment(line)
                continue
            name, _, number = line.rpartition(" ")
            try:
                target = targets[name]
                value = float(number)
            except (KeyError, ValueError):
                yield from self._new(line, name)
            else:
                yield target, value

    def _comment(self, line: str) -> None:
        if hit := _TYPE.match(line):
            if self._types.get(hit[1], hit[2]) != hit[2]:
                # A family that changed its type is another family: forget what was remembered.
                self._targets.clear()
                self._comments.clear()
            self._types[hit[1]] = hit[2]
        if len(self._comments) < _MAX_SERIES:
            self._comments.add(line)

    def _new(self, line: str, name: str) -> Iterator[tuple[_Target | None, float]]:
        """Parse a line that was not seen before."""
        try:
            parsed = [
                sample
                for family in text_string_to_metric_families(line + "\n")
                for sample in family.samples
            ]
        except (ValueError, KeyError, IndexError):
            return
        for sample in parsed:
            target = self._target(sample.name, sample.labels, name)
            # With a time stamp or an exemplar the text before the last space is new each time.
            if sample.timestamp is None and sample.exemplar is None:
                self._targets[name] = target
            yield target, float(sample.value)

    def _target(self, name: str, labels: dict[str, str], text: str) -> _Target | None:
        upstream, suffix, family = self._find(name)
        if upstream is None:
            self._note_unmapped(family)
            return None
        metric = METRICS[upstream.metric]
        if suffix == "_created":
            return None
        problem = self._mismatch(family, metric, suffix)
        if problem:
            self.unmapped.setdefault(family, problem)
            return None
        if any(labels.get(label) not in values for label, values in upstream.only.items()):
            return None
        value = _product(labels, upstream.product_of) if upstream.product_of else None
        if upstream.product_of and value is None:
            return None
        model, rank = labels.get(self.engine.model_label), labels.get(self.engine.rank_label)
        if model:
            self.models.add(model)
        if rank is not None:
            self._ranks.add(rank)
        ours = {ours: labels.get(theirs, "") for theirs, ours in upstream.labels.items()}
        ours.update(upstream.fixed)
        more = tuple(ours.get(label, "") for label in metric.labels[4:])
        part = ""
        if metric.kind is Kind.HISTOGRAM:
            part = {"_bucket": _bound(labels.get("le", "")), "_sum": "sum"}.get(suffix, "count")
        group = ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if k != "le")
        return _Target(metric, model, rank, more, group, part, upstream.scale, value)

    def _find(self, name: str) -> tuple[Upstream | None, str, str]:
        """Return the mapping of a sample name, its suffix, and its family's full name."""
        declared = self._types.get(name)
        candidates = [(name, "")]
        candidates += [
            (name.removesuffix(suffix), suffix) for suffix in _SUFFIXES if name.endswith(suffix)
        ]
        for family, suffix in candidates:
            for prefix in self.engine.prefixes:
                if family.startswith(prefix):
                    short = family.removeprefix(prefix)
                    upstream = self._families.get(short) or self._families.get(
                        short.removesuffix("_total")
                    )
                    if upstream is not None:
                        return upstream, suffix, family
        if declared is None and len(candidates) > 1 and candidates[-1][0] in self._types:
            return None, "", candidates[-1][0]
        return None, "", name

    def _mismatch(self, family: str, metric: Metric, suffix: str) -> str:
        short = next(
            family.removeprefix(prefix)
            for prefix in self.engine.prefixes
            if family.startswith(prefix)
        )
        names = (short, short + "_total", short.removesuffix("_total"))
        kind: str | None = next(
            (self.engine.kinds[name] for name in names if name in self.engine.kinds), None
        )
        kind = kind or self._types.get(family) or self._types.get(family + "_total")
        if kind not in (None, "unknown", "untyped", metric.kind):
            return f"it is a {kind} here, a {metric.kind} in the catalogue"
        fits = {
            Kind.GAUGE: ("",),
            Kind.COUNTER: ("", "_total"),
            Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
        }
        return "" if suffix in fits[metric.kind] else f"sample suffix {suffix!r} is unexpected"

    def _note_unmapped(self, family: str) -> None:
        base = family.removesuffix("_created")
        if not any(entry.pattern.fullmatch(base) for entry in self.engine.ignored):
            self.unmapped.setdefault(family, "the catalogue does not know it")

    def _reading(
        self,
        gauges: dict[_Target, float],
        cumulative: dict[tuple[str, str], tuple[_Target, dict[str, float]]],
    ) -> Reading:
        merged: dict[Key, list[float]] = {}
        histograms: dict[Key, list[Buckets]] = {}
        for target, value in gauges.items():
            merged.setdefault(self._key(target), []).append(value)
        reset = False
        for identity, (target, values) in cumulative.items():
            group = self._groups.get(identity)
            if group is None:
                group = self._groups[identity] = _Group()
            reset |= group.update(values)
            totals = group.totals()
            if target.metric.kind is Kind.COUNTER:
                merged.setdefault(self._key(target), []).append(totals[""])
            elif (buckets := _buckets(totals)) is not None:
                histograms.setdefault(self._key(target), []).append(buckets)
        self.resets += reset
        return Reading(
            {key: _merge(METRICS[key.metric].across, values) for key, values in merged.items()},
            {key: whole for key, parts in histograms.items() if (whole := _add(parts)) is not None},
        )

    def _key(self, target: _Target) -> Key:
        model = target.model
        if model is None:
            model = next(iter(self.models)) if len(self.models) == 1 else ""
        rank = (target.rank or "") if len(self._ranks) > 1 else ""
        return Key(target.metric.name, (self.engine.name, self.server, model, rank, *target.more))


def _product(labels: dict[str, str], names: tuple[str, ...]) -> float | None:
    product = 1.0
    for name in names:
        try:
            product *= float(labels[name])
        except (KeyError, ValueError):
            return None
    return product if math.isfinite(product) else None


def _bound(text: str) -> str:
    """Write a bound in one way: Go says 1, Python 1.0."""
    try:
        value = float(text)
    except ValueError:
        return ""
    return "+Inf" if math.isinf(value) else repr(value)


def _buckets(values: dict[str, float]) -> Buckets | None:
    """Order the parts of a histogram; None if it is not whole."""
    bounds = sorted(
        (part for part in values if part not in ("sum", "count", "", "+Inf")), key=float
    )
    total = values.get("+Inf", values.get("count"))
    if total is None:
        return None
    counts = {bound: values[bound] for bound in bounds}
    counts["+Inf"] = total
    return Buckets(counts, values.get("sum"))


def _merge(across: Across, values: list[float]) -> float:
    if across is Across.MAX:
        return max(values)
    total = math.fsum(values)
    return total / len(values) if across is Across.MEAN else total


def _add(parts: list[Buckets]) -> Buckets | None:
    """Add histograms; None if their bounds differ, for then the sum would lie."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.counts.keys() != first.counts.keys() for part in parts):
        return None
    return Buckets(
        {bound: sum(part.counts[bound] for part in parts) for bound in first.counts},
        sum(part.sum for part in parts if part.sum is not None)
        if all(part.sum is not None for part in parts)
        else None,
    )


def recognise(text: str, engines: dict[str, Engine]) -> Engine | None:
    """Say which engine wrote a scrape; None if none of the catalogue's did."""
    for engine in engines.values():
        for prefix in engine.prefixes:
            for family in engine.recognise:
                if re.search(rf"^{re.escape(prefix + family)}(_total)?[ {{]", text, re.MULTILINE):
                    return engine
    return None


def families(text: str, most: int = 5) -> list[str]:
    """Return the first families that a scrape names, for a message."""
    return [hit[1] for hit, _ in zip(_TYPE.finditer(text), range(most), strict=False)]
