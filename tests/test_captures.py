"""What every engine's captures must keep, whichever engine it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tailscope.catalogue import METRICS, Engine
from tailscope.catalogue.engines import engines
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.recognise import recognise
from tailscope.exporter.sources.engine import EngineSource
from tests.agreement import check_page
from tests.captures import FOLDER, Capture, captures, page_of, served
from tests.conftest import Golden
from tests.process import PATIENCE

CAPTURES = list(captures())
SERVER = "10.0.0.1:8000"


@pytest.fixture(params=CAPTURES, ids=str)
def capture(request: pytest.FixtureRequest) -> Capture:
    found = request.param
    assert isinstance(found, Capture)
    return found


@pytest.fixture
def page(capture: Capture) -> Iterator[str]:
    """What the exporter says of an engine that answers with the capture."""
    told = None if capture.engine.recognise else capture.engine
    with served(capture) as engine:
        source = EngineSource(engine.url, engines(), engine=told, deadline=PATIENCE, longest=1)
        assert source.read().startswith(f"{capture.engine.title} answers at {engine.url}/")
        found = page_of(source)
        source.close()
    yield found.replace(engine.address, SERVER)


def own(page: str) -> str:
    """Only what was read: no integrals, no samples of the moment, nothing of the exporter."""
    names = {
        name
        for name, metric in METRICS.items()
        if name.startswith(("tailscope_engine_", "tailscope_gateway_"))
        and not (metric.integral_of or metric.distribution_of or name.endswith("_engine_up"))
    }
    return "".join(
        f"{line}\n"
        for line in page.splitlines()
        if re.sub(r"(_bucket|_sum|_count)?[{ ].*", "", line) in names
    )


def test_it_is_recognised_and_gives_what_the_golden_says(
    capture: Capture, page: str, golden: Golden
) -> None:
    golden(capture.golden, own(page))


def test_it_is_valid_openmetrics_and_agrees_with_the_catalogue(page: str) -> None:
    for family in check_page(page, openmetrics=True):
        for sample in family.samples:
            assert 0 <= sample.value <= 1 or not family.name.endswith("_ratio")


@pytest.mark.parametrize("capture", [one for one in CAPTURES if one.text], indirect=True, ids=str)
def test_every_family_is_mapped_or_ignored(capture: Capture) -> None:
    reader = Normaliser(capture.engine, SERVER)
    reader.read(capture.text)
    assert reader.unmapped == {}


def test_where_it_comes_from_is_said(capture: Capture) -> None:
    readme = capture.path.parent / "README.md"
    first = capture.text.partition("\n")[0]
    assert re.match(r"# (recorded|re-typed from): ", first) or (
        readme.is_file() and f"`{capture.path.name}`" in readme.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("engine", engines().values(), ids=engines())
def test_every_engine_has_a_capture(engine: Engine) -> None:
    assert list((FOLDER / engine.name).glob("*.prom"))


def test_no_capture_is_taken_for_that_of_another(capture: Capture) -> None:
    if capture.engine.recognise and capture.text:
        assert recognise(capture.text, engines().values()) is capture.engine
