"""Pages of dcgm-exporter for tests, and what is read from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tailscope.catalogue import PREFIX
from tailscope.exporter.dcgmpage import DcgmPage
from tailscope.exporter.exposition import Lines, render
from tailscope.exporter.reading import Reading, Writer

CAPTURES = Path(__file__).parent / "captures" / "dcgm"
PAGES = sorted(CAPTURES.glob("*.prom"))
MIB = 1 << 20

Series = tuple[str, tuple[tuple[str, str], ...]]


def page(name: str) -> str:
    return (CAPTURES / f"{name}.prom").read_text()


H100 = page("h100_k8s_4.8")
A100 = page("a100_mig_4.4")
UUID_0, UUID_1, UUID_2 = (f"GPU-0a11c0de-0000-4a00-8a00-00000000000{i}" for i in (1, 2, 3))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def flat(*groups: Lines) -> dict[Series, float]:
    """Parse the exposition with the client's own parser; a series that comes twice is an error."""
    text = render(groups, None, False).decode()
    found: dict[Series, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = (sample.name, tuple(sorted(sample.labels.items())))
            assert series not in found, series
            found[series] = sample.value
    return found


def published(text: str, pages: DcgmPage | None = None) -> dict[Series, float]:
    return flat(Writer().lines(Reading((pages or DcgmPage()).read(text).numbers)))


def values(found: Mapping[Series, float], metric: str, **labels: str) -> list[float]:
    """Return the values of the series of a metric that have these labels."""
    return [
        value
        for (name, own), value in found.items()
        if name == PREFIX + metric and labels.items() <= dict(own).items()
    ]


def only(found: Mapping[Series, float], metric: str, **labels: str) -> float:
    (value,) = values(found, metric, **labels)
    return value


def line(family: str, value: object, **more: str) -> str:
    labels = {"gpu": "0", "UUID": "GPU-x", "device": "nvidia0", "modelName": "NVIDIA L4", **more}
    text = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{family}{{{text}}} {value}\n"


BLANKS = (
    *("2147483632", "2147483633", "2147483634", "2147483635"),
    *(str(9223372036854775792 + i) for i in range(4)),
    *(f"{140737488355328 + i}.000000" for i in range(4)),
    *("4294967295", "NaN", "+Inf", "-Inf", "-1", "1e300"),
    *("<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>", "N/A", ""),
)
