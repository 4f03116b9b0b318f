from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Metric as Parsed
from prometheus_client import ProcessCollector

from tailscope.catalogue import METRICS
from tailscope.catalogue.engines import engines
from tailscope.exporter.exposition import (
    Block,
    Family,
    Line,
    Lines,
    Page,
    bound_text,
    number,
    render,
    series,
    template,
)
from tailscope.exporter.health import Health, SourceError
from tailscope.exporter.histogram import Histogram
from tailscope.exporter.reading import Buckets, Key, Reading, Writer
from tailscope.exporter.requestmetrics import RequestMetrics
from tailscope.exporter.sources.engine import EngineSource
from tailscope.records.record import RequestRecord
from tests.agreement import check_lint, check_page
from tests.fake_engine import fake_engine
from tests.process import PATIENCE

NASTY = 'say "hi" \\ {x="1"} # é\n\r\t,=} 9'


def record(tenant: str, trace_id: str | None) -> RequestRecord:
    return RequestRecord(
        source="vllm",
        role="engine",
        arrived_ns=1,
        engine="vllm",
        server="a:1",
        model=NASTY,
        tenant=tenant,
        trace_id=trace_id,
        frontend_seconds=0.02,
        queue_seconds=0.3,
        prefill_seconds=0.04,
        decode_seconds=2.0,
        ttft_seconds=0.36,
        total_seconds=2.36,
        input_tokens=100,
        cached_tokens=64,
        output_tokens=50,
        attempt=2,
        outcome="ok",
    )


@pytest.fixture(scope="module")
def groups() -> Iterator[list[Lines]]:
    """Lines of every kind, as the exporter gathers them."""
    requests = RequestMetrics()
    for number_, tenant in enumerate(("acme", NASTY, "", "\ud800")):
        requests.observe([(record(tenant, f"{number_:032x}"), None)])
    down = Health("engine:b:1")
    down.failure(SourceError("http_503", "it answers 503"), 0.5)
    with fake_engine() as engine:
        source = EngineSource(engine.url, engines(), deadline=PATIENCE, longest=3)
        source.read()
        source.read()
        yield [requests.lines(), source.lines(fresh=True), down.lines()]
        source.close()


@pytest.fixture(scope="module")
def text(groups: list[Lines]) -> str:
    return render(groups, ProcessCollector(registry=None), openmetrics=False).decode()


@pytest.fixture(scope="module")
def openmetrics(groups: list[Lines]) -> str:
    return render(groups, ProcessCollector(registry=None), openmetrics=True).decode()


def test_prometheus_text_agrees_with_the_catalogue(text: str) -> None:
    families = check_page(text)
    assert len(families) > 50
    assert "process_cpu_seconds" in {family.name for family in families}
    assert text.endswith("\n")
    assert "# EOF" not in text


def test_openmetrics_agrees_with_the_catalogue(text: str, openmetrics: str) -> None:
    families = check_page(openmetrics, openmetrics=True)
    assert len(families) == len(check_page(text))
    assert openmetrics.endswith("\n# EOF\n")


def test_promtool_finds_nothing(text: str) -> None:
    check_lint(text)


def test_both_formats_have_the_same_samples(text: str, openmetrics: str) -> None:
    def samples(families: list[Parsed]) -> dict[tuple[object, ...], float]:
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
            if not family.name.startswith("process_")
        }

    plain = samples(check_page(text))
    assert plain == samples(check_page(openmetrics, openmetrics=True))
    assert len(plain) > 500


def test_exemplars_are_in_openmetrics_only_and_on_request_histograms_only(
    text: str, openmetrics: str
) -> None:
    assert " # {" not in "\n".join(
        line for line in text.splitlines() if not line.startswith("#") and NASTY[:3] not in line
    )
    found = {
        (family.name, sample.exemplar.labels["trace_id"])
        for family in check_page(openmetrics, openmetrics=True)
        for sample in family.samples
        if sample.exemplar
    }
    assert {name for name, _ in found} >= {
        "tailscope_request_seconds",
        "tailscope_request_time_to_first_token_seconds",
        "tailscope_request_stage_seconds",
    }
    assert all(name.startswith("tailscope_request_") for name, _ in found)
    assert ("tailscope_request_seconds", f"{0:032x}") in found


def test_an_exemplar_lies_in_its_bucket_and_the_slowest_stays() -> None:
    histogram = Histogram(METRICS["tailscope_request_input_tokens"], ("vllm", "a:1", "m"))
    histogram.observe_all([3], ["a" * 32])
    histogram.observe_all([4, 3], ["b" * 32, "c" * 32])
    histogram.observe_all([3.5], ["d" * 32])
    histogram.observe_all([5], ["e" * 200])  # more than OpenMetrics allows
    histogram.observe_all([6], [None])
    page = render([{"tailscope_request_input_tokens": histogram.lines()}], None, openmetrics=True)
    (family,) = check_page(page.decode(), openmetrics=True)
    exemplars = {
        sample.labels["le"]: sample.exemplar for sample in family.samples if sample.exemplar
    }
    assert exemplars.keys() == {"4.0"}
    assert exemplars["4.0"].labels == {"trace_id": "b" * 32}
    assert exemplars["4.0"].value == 4


def test_a_label_that_is_no_utf8_does_not_break_the_page() -> None:
    name = "tailscope_source_up"
    lines = {name: [Line(series(name, ("source",), ("file:\udcff",)), 1)]}
    assert check_page(render([lines], None, openmetrics=False).decode())


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_label_values_come_back_as_they_were(value: str) -> None:
    name = "tailscope_source_up"
    lines = {name: [Line(series(name, ("source",), (value,)), 1)]}
    expected = value.encode("utf-8", "replace").decode()
    for openmetrics in (False, True):
        page = render([lines], None, openmetrics).decode()
        (family,) = check_page(page, openmetrics=openmetrics)
        assert family.samples[0].labels == {"source": expected}


def test_several_publishers_of_a_metric_share_its_header() -> None:
    ups: list[Lines] = [Health("a").lines(), Health("b").lines()]
    page = render(ups, None, openmetrics=False).decode()
    assert page.count("# TYPE tailscope_source_up ") == 1
    (up,) = [family for family in check_page(page) if family.name == "tailscope_source_up"]
    assert [sample.labels["source"] for sample in up.samples] == ["a", "b"]


def test_an_engine_histogram_without_a_sum() -> None:
    key = Key("tailscope_engine_queue_seconds", ("vllm", "a:1", "m", ""))
    reading = Reading(histograms={key: Buckets({"0.5": 1, "+Inf": 2}, None)})
    page = render([Writer().lines(reading)], None, openmetrics=False).decode()
    assert "_sum" not in page
    check_page(page)


def test_the_writer_forgets_series_that_are_gone() -> None:
    writer = Writer()
    for turn in range(3000):
        running = Key("tailscope_engine_requests_running", ("vllm", "a:1", f"m{turn}", ""))
        queue = Key("tailscope_engine_queue_seconds", ("vllm", "a:1", f"m{turn}", ""))
        found = writer.lines(Reading({running: 1}, {queue: Buckets({"+Inf": 2}, None)}))
        assert [line.value for name in sorted(found) for line in found[name]] == [2, 2, 1]
    assert len(writer._buckets) < 120
    assert len(writer._layout.keys) == 1


def test_a_page_shows_what_changed_and_keeps_the_rest() -> None:
    requests = RequestMetrics()
    page = Page()
    health = Health("engine:a:1")
    groups: list[Lines]
    kept = [record("acme", f"{turn:032x}") for turn in range(3)]
    for turn, one in enumerate(kept):
        requests.observe([(one, None)])
        if turn == 1:
            health.success(0.5)
        for openmetrics in (False, True):
            groups = [requests.lines(), health.lines()]
            fresh = render(groups, None, openmetrics)
            assert page.render(groups, openmetrics) == fresh
            assert page.render([requests.lines(), health.lines()], openmetrics) == fresh


def test_a_reading_is_written_once() -> None:
    writer = Writer()
    key = Key("tailscope_engine_requests_running", ("vllm", "a:1", "m", ""))
    reading = Reading({key: 1})
    first = writer.lines(reading)
    assert writer.lines(reading) is first
    again = writer.lines(Reading({key: 2}))
    assert [line.value for line in again[key.metric]] == [2]
    assert [line.value for line in first[key.metric]] == [1]


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e22, 0.1, 3.0])
@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_block_writes_what_single_lines_do(value: float, openmetrics: bool) -> None:
    texts = [series("tailscope_gpu_up", ("uuid",), (who,)) for who in ("100 %s %", NASTY)]
    exemplars = ["", ' # {trace_id="ab"} 1.0 2.000']
    block = Block(template(texts), (1.5, value), exemplars)
    lines = [Line(texts[0], 1.5), Line(texts[1], value, exemplars[1])]
    assert list(Family([block])) == lines
    assert len(Family([block])) == 2
    pages = [
        render([{"tailscope_gpu_up": found}], None, openmetrics)
        for found in (Family([block]), lines)
    ]
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5, "5.0"), (0.005, "0.005"), (1e22, "1e+22"), (math.inf, "+Inf"), (-math.inf, "-Inf")],
)
def test_numbers(value: float, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(("bound", "expected"), [(1, "1.0"), (0.005, "0.005"), (math.inf, "+Inf")])
def test_bounds(bound: float, expected: str) -> None:
    assert bound_text(bound) == expected
