"""The DCGM page against anything: what it gives can be, or is not given."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailscope.catalogue import METRICS, Unit, dcgm
from tailscope.exporter.dcgmpage import DcgmPage
from tailscope.exporter.reading import Key, Reading, Writer
from tailscope.exporter.scrapeerror import NotPrometheus
from tests.dcgmpages import BLANKS, MIB, PAGES, flat, line, only, published, values


def check(numbers: Mapping[Key, float]) -> None:
    for key, value in numbers.items():
        metric = METRICS[key.metric]
        assert len(key.values) == len(metric.labels)
        assert math.isfinite(value)
        assert value >= 0
        if metric.unit is Unit.RATIO:
            assert value <= 1
    flat(Writer().lines(Reading(numbers)))


NAMES = st.sampled_from([name for field in dcgm.FIELDS for name in field.names])
NUMBERS = st.one_of(
    st.floats(width=64).map(repr),
    st.integers(-10, 2**64).map(str),
    st.sampled_from(BLANKS),
    st.text(max_size=12),
)
LABEL_VALUES = st.one_of(st.sampled_from(["", "0", "1", "GPU-a", "3g.20gb"]), st.text(max_size=8))


@st.composite
def lines_of_dcgm(draw: st.DrawFn) -> str:
    labels = draw(
        st.dictionaries(
            st.sampled_from(
                ["gpu", "UUID", "uuid", "modelName", "GPU_I_ID", "GPU_I_PROFILE", "xid", "pod"]
            ),
            LABEL_VALUES,
        )
    )
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{draw(NAMES)}{{{text}}} {draw(NUMBERS)}"


@given(st.lists(st.lists(st.one_of(lines_of_dcgm(), st.text(max_size=60)), max_size=8), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_text_gives_readings_that_can_be_or_none(scrapes: list[list[str]]) -> None:
    pages = DcgmPage()
    for lines in scrapes:
        with contextlib.suppress(NotPrometheus):
            check(pages.read("\n".join(lines)).numbers)


@given(data=st.data(), path=st.sampled_from(PAGES))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_page_gives_readings_that_can_be_or_none(data: st.DataObject, path: Path) -> None:
    text = path.read_text()
    pages = DcgmPage()
    pages.read(text)
    for _ in range(3):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 40))
        text = text[:at] + data.draw(st.text(max_size=10)) + text[at + length :]
        with contextlib.suppress(NotPrometheus):
            check(pages.read(text).numbers)


@given(raws=st.lists(st.integers(0, 10**8), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_counter_never_goes_back(raws: list[int]) -> None:
    pages = DcgmPage()
    totals = [
        only(published(line("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", raw), pages), "gpu_pcie_replays_total")
        for raw in raws
    ]
    assert totals == sorted(totals)
    grown = sum(max(0, b - a) if b >= a else b for a, b in itertools.pairwise(raws))
    assert totals[-1] - totals[0] == grown


@given(
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    power=st.floats(1, 1000),
    used=st.integers(0, 80000),
)
@settings(max_examples=25, deadline=None)
def test_sums_do_not_grow_with_instances_or_pods(
    counts: list[int], power: float, used: int
) -> None:
    text = ""
    for gpu, instances in enumerate(counts):
        for gi in range(instances):
            for pod in ("a", "b"):
                labels = {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "pod": pod}
                split = {"GPU_I_ID": str(gi), "GPU_I_PROFILE": "1g.5gb"} if instances > 1 else {}
                text += line("DCGM_FI_DEV_POWER_USAGE", power, **labels, **split)
                text += line("DCGM_FI_DEV_FB_USED", used, **labels, **split)
    found = published(text)
    assert values(found, "gpu_power_watts") == [power] * len(counts)
    assert sum(values(found, "gpu_memory_used_bytes")) == used * MIB * sum(counts)
