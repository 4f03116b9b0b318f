"""Writes metric lines in the Prometheus text format and in OpenMetrics.

``prometheus-client`` formats each label set anew at every scrape, 15 microseconds a sample; here a
series' text is made once, and a scrape only puts the numbers in, those of a whole block of lines
at once: a quarter of a microsecond a sample. Tests parse the result with the client's own strict
parsers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import NamedTuple, final, overload

from prometheus_client import ProcessCollector

from tailscope.catalogue import METRICS, Kind, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_SERIES = 2_000
"""Texts of series that are remembered."""


class Line(NamedTuple):
    """One sample: ``name{labels}``, its value, and an exemplar's text or an empty string."""

    series: str
    value: float
    exemplar: str = ""


class Block:
    """Several lines of one metric. Its text is made when it is asked for, and then kept.

    Args:
        texts: The ``name{labels}`` of each line, as ``template`` joins them.
        values: Their values.
        exemplars: Their exemplars' texts, empty where there is none.
    """

    __slots__ = ("_exemplars", "_template", "_text", "_values")

    def __init__(
        self, texts: str, values: tuple[float, ...], exemplars: Sequence[str] = ()
    ) -> None:
        self._template = texts
        self._values = values
        self._exemplars = exemplars
        self._text: str | None = None

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Line]:
        lines = self.text.split("\n")
        for place, line in enumerate(lines):
            exemplar = self._exemplars[place] if self._exemplars else ""
            yield Line(line.rpartition(" ")[0], self._values[place], exemplar)

    @property
    def text(self) -> str:
        """The lines, without exemplars."""
        text = self._text
        if text is None:
            values: Iterable[object] = self._values
            if not isfinite(sum(self._values)):
                values = map(_Number, self._values)
            text = self._text = self._template % tuple(values)
        return text

    def openmetrics(self) -> str:
        """The lines with their exemplars."""
        if not any(self._exemplars):
            return self.text
        lines = zip(self.text.split("\n"), self._exemplars, strict=True)
        return "\n".join([line + exemplar for line, exemplar in lines])


class _Number(float):
    """A number whose ``repr`` is what Prometheus reads, infinities too."""

    def __repr__(self) -> str:
        return number(float(self))


@final
class Family(Sequence[Line]):
    """Lines of one metric, single ones and blocks; as a sequence, every single line."""

    __slots__ = ("parts",)

    def __init__(self, parts: Iterable[Line | Block] = ()) -> None:
        self.parts = list(parts)

    def append(self, part: Line | Block) -> None:
        """Add a line or a block."""
        self.parts.append(part)

    def extend(self, lines: Sequence[Line]) -> None:
        """Add the lines of another family; its blocks stay blocks."""
        self.parts.extend(_parts(lines))

    def __iter__(self) -> Iterator[Line]:
        for part in self.parts:
            if isinstance(part, Block):
                yield from part
            else:
                yield part

    def __len__(self) -> int:
        return sum(len(part) if isinstance(part, Block) else 1 for part in self.parts)

    @overload
    def __getitem__(self, place: int) -> Line: ...
    @overload
    def __getitem__(self, place: slice) -> list[Line]: ...
    def __getitem__(self, place: int | slice) -> Line | list[Line]:
        return list(self)[place]


Lines = Mapping[str, Sequence[Line]]
"""Lines by the name of their metric."""


def _parts(lines: Sequence[Line]) -> Sequence[Line | Block]:
    # Not isinstance, which asks all the abstract classes: it is done for each family.
    return lines.parts if type(lines) is Family else lines


def template(texts: Iterable[str]) -> str:
    """Join the ``name{labels}`` of the lines of a block, with places for their values."""
    return "\n".join([text.replace("%", "%%") + " %r" for text in texts])


_INFINITIES = {"inf": "+Inf", "-inf": "-Inf"}


def escape(value: str) -> str:
    """Escape a label value."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def series(name: str, labels: Sequence[str], values: Sequence[str], extra: str = "") -> str:
    """Write ``name{labels}``; ``extra`` is one more label, written out."""
    return _series(name, tuple(labels), tuple(values), extra)


@lru_cache(_SERIES)
def _series(name: str, labels: tuple[str, ...], values: tuple[str, ...], extra: str) -> str:
    parts = [f'{label}="{escape(value)}"' for label, value in zip(labels, values, strict=True)]
    if extra:
        parts.append(extra)
    return f"{name}{{{','.join(parts)}}}" if parts else name


def bound_text(bound: float) -> str:
    """Write a bucket bound as the Python client does: 1.0, 0.005, +Inf."""
    return "+Inf" if bound == float("inf") else repr(float(bound))


def bucket(metric: Metric, values: Sequence[str], bound: str) -> str:
    """Write the series of one bucket."""
    return series(f"{metric.name}_bucket", metric.labels, values, f'le="{bound}"')


def number(value: float) -> str:
    """Write a value: ``repr`` is what the Python client writes, but for the infinities."""
    text = repr(float(value))
    return _INFINITIES.get(text, text)


class Page:
    """The whole exposition, scrape after scrape; what did not change is not written again.

    Args:
        process: The collector of the process's own CPU, memory and descriptors.
    """

    def __init__(self, process: ProcessCollector | None = None) -> None:
        self._process = process
        self._written: dict[tuple[str, bool], tuple[list[Line | Block], str]] = {}

    def render(self, groups: Iterable[Lines], openmetrics: bool) -> bytes:
        """Write it, metrics in the catalogue's order.

        Args:
            groups: Lines of each publisher; several may give lines of the same metric.
            openmetrics: OpenMetrics 1.0 with exemplars, else Prometheus text 0.0.4.
        """
        found: dict[str, list[Line | Block]] = {}
        for group in groups:
            for name, some in group.items():
                found.setdefault(name, []).extend(_parts(some))
        out = [
            self._family(metric, parts, openmetrics)
            for name, metric in METRICS.items()
            if (parts := found.get(name))
        ]
        for family in self._process.collect() if self._process else ():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            out.append(_header(name, family.type, family.documentation, openmetrics))
            out.extend(f"{sample.name} {number(sample.value)}" for sample in family.samples)
        if openmetrics:
            out.append("# EOF")
        # A label may hold what is no UTF-8, for example from a file name; the page goes on.
        return ("\n".join(out) + "\n").encode("utf-8", "replace")

    def _family(self, metric: Metric, parts: list[Line | Block], openmetrics: bool) -> str:
        # Blocks are the same or not; single lines are compared.
        before = self._written.get((metric.name, openmetrics))
        if before is not None and before[0] == parts:
            return before[1]
        write = _openmetrics if openmetrics else _text
        header = _header(metric.name, metric.kind, metric.help, openmetrics)
        text = "\n".join([header, *map(write, parts)])
        self._written[metric.name, openmetrics] = (parts, text)
        return text


def render(groups: Iterable[Lines], process: ProcessCollector | None, openmetrics: bool) -> bytes:
    """Write one exposition, as ``Page`` does."""
    return Page(process).render(groups, openmetrics)


def _text(line: Line | Block) -> str:
    return line.text if isinstance(line, Block) else f"{line[0]} {number(line[1])}"


def _openmetrics(line: Line | Block) -> str:
    if isinstance(line, Block):
        return line.openmetrics()
    return f"{line.series} {number(line.value)}{line.exemplar}"


def _header(name: str, kind: str, help: str, openmetrics: bool) -> str:
    family = name.removesuffix("_total") if openmetrics and kind == Kind.COUNTER else name
    return f"# HELP {family} {help}\n# TYPE {family} {kind}"
