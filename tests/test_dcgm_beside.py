"""When a dcgm-exporter is read beside NVML, and for what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailscope.exporter.health import NothingThere, SourceError
from tailscope.exporter.sources.dcgm import DcgmSource
from tailscope.exporter.sources.dcgmbeside import DcgmBeside, Uuids
from tests.dcgmpages import page as capture
from tests.pageserver import PageServer

UUID = "GPU-0a11c0de-0000-4a00-8a00-00000000000{}"


class Nvml:
    """What NVML has, to be changed."""

    def __init__(self) -> None:
        self.boards: frozenset[str] = frozenset()
        self.activities: frozenset[str] = frozenset()
        self.now = 0.0


@pytest.fixture
def server() -> Iterator[PageServer]:
    """A dcgm-exporter with three H100."""
    with PageServer(capture("h100_k8s_4.8")) as server:
        yield server


@pytest.fixture
def nvml() -> Nvml:
    """NVML, with nothing."""
    return Nvml()


def make(url: str, nvml: Nvml | None, *, told: bool = True) -> DcgmBeside:
    def source(only: Uuids | None) -> DcgmSource:
        return DcgmSource(url, deadline=60, longest=3, activity_only_for=only)

    if nvml is None:
        return DcgmBeside("dcgm:x", source, told=told)
    return DcgmBeside(
        "dcgm:x",
        source,
        boards=lambda: nvml.boards,
        activities=lambda: nvml.activities,
        told=told,
        clock=lambda: nvml.now,
    )


def told(source: DcgmBeside) -> set[str]:
    """Who gives what, as the page says."""
    lines = source.lines(True).get("tailscope_gpu_source_info", [])
    return {line.series.partition("{")[2].rstrip("}") for line in lines}


def metrics(source: DcgmBeside, uuid: str) -> set[str]:
    """Metrics of a GPU on the page."""
    return {
        name
        for name, lines in source.lines(True).items()
        if any(uuid in line.series for line in lines)
    }


def test_only_what_nvml_lacks(server: PageServer, nvml: Nvml) -> None:
    source = make(server.url, nvml)
    nvml.boards = frozenset({UUID.format(1), UUID.format(2)})
    nvml.activities = frozenset({UUID.format(2)})
    source.read()
    assert told(source) == {f'gpu="0",uuid="{UUID.format(1)}",readings="activity",source="dcgm"'}
    assert "tailscope_gpu_dram_active_ratio" in metrics(source, UUID.format(1))
    assert "tailscope_gpu_power_watts" not in metrics(source, UUID.format(1))
    assert metrics(source, UUID.format(2)) == metrics(source, UUID.format(3)) == set()


def test_not_read_where_nvml_has_it_all(server: PageServer, nvml: Nvml) -> None:
    source = make(server.url, nvml)
    nvml.boards = nvml.activities = frozenset({UUID.format(1)})
    for _ in range(3):
        source.read()
    assert server.asked == 0
    assert source.lines(True) == {}
    assert not source.hidden  # the user named it


def test_all_of_it_where_nvml_stays_silent(server: PageServer, nvml: Nvml) -> None:
    source = make(server.url, nvml)
    source.read()
    nvml.now = 9
    source.read()
    assert server.asked == 0  # NVML may only be slow to start
    nvml.now = 10
    source.read()
    assert len(told(source)) == 6
    assert "tailscope_gpu_power_watts" in metrics(source, UUID.format(3))
    nvml.boards = nvml.activities = frozenset({UUID.format(1)})  # it is there after all
    assert metrics(source, UUID.format(1)) == set()  # no series twice, at no moment
    source.read()
    assert source.lines(True) == {}


def test_a_short_silence_changes_nothing(server: PageServer, nvml: Nvml) -> None:
    source = make(server.url, nvml)
    nvml.boards = frozenset({UUID.format(1)})
    source.read()
    nvml.boards, nvml.now = frozenset(), 5  # the driver is loaded anew
    source.read()
    assert metrics(source, UUID.format(3)) == set()
    assert told(source) == set()


def test_alone(server: PageServer) -> None:
    source = make(server.url, None)
    source.read()
    assert len(told(source)) == 6
    source.close()


def test_nobody_there(nvml: Nvml) -> None:
    nvml.boards = frozenset({UUID.format(1)})
    source = make("http://127.0.0.1:1", nvml, told=False)
    assert "it would have the activity of GPUs without GPM" in source.read()
    assert source.hidden
    with pytest.raises(SourceError):
        make("http://127.0.0.1:1", nvml).read()


def test_another_answer_is_a_fault_of_one_that_was_named(nvml: Nvml) -> None:
    """At the usual port there may be anything; it is shown, and is nothing that is down."""
    nvml.boards = frozenset({UUID.format(1)})
    with PageServer("<html>") as server:
        for named in (True, False):
            source = make(server.url, nvml, told=named)
            with pytest.raises(SourceError) as caught:
                source.read()
            assert isinstance(caught.value, NothingThere) is not named
            assert not source.hidden


def test_one_that_answered_and_is_gone_is_a_fault(nvml: Nvml) -> None:
    nvml.boards = frozenset({UUID.format(1)})
    with PageServer(capture("h100_k8s_4.8")) as server:
        source = make(server.url, nvml, told=False)
        source.read()
    with pytest.raises(SourceError) as caught:
        source.read()
    assert not isinstance(caught.value, NothingThere)
    assert not source.hidden and not told(source)


def test_what_is_old_is_not_shown(server: PageServer, nvml: Nvml) -> None:
    source = make(server.url, nvml)
    nvml.boards = frozenset({UUID.format(1)})
    source.read()
    assert told(source)
    assert not any("gpu_" in name for name in source.lines(False))


def test_one_that_was_not_named_shows_when_it_answers(server: PageServer, nvml: Nvml) -> None:
    source = make(server.url, nvml, told=False)
    assert source.hidden
    nvml.boards = frozenset({UUID.format(1)})
    source.read()
    assert not source.hidden
    assert told(source)
