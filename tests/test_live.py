"""The demo as a user starts it, scraped by a real Prometheus that answers every panel."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

from tailscope.address import free
from tailscope.catalogue import METRICS, Metric
from tailscope.catalogue.coverage import How, coverage
from tailscope.catalogue.engines import engines
from tailscope.demo.recording import load as load_recording
from tailscope.demo.recording import save
from tailscope.records.reader import Reader
from tests.agreement import check_page
from tests.boards import BOARDS, EVERYTHING, Asked, expressions, load
from tests.expression import metrics_of
from tests.process import until
from tests.prometheus import Prometheus, running

_PATIENCE = 90.0
_WINDOWS = {**EVERYTHING, "__rate_interval": "10s", "__range": "15s", "offset": "15s"}

MAY_BE_EMPTY = {
    "Engine restarts": "it does not restart",
    "Configuration changes": "nothing changes",
    "Firing alerts": "no rules are loaded",
    "Hit ratio of the cache outside the engine": "there is no such cache",
}
"""Panels without data in a healthy recording, and why."""


class Demo(NamedTuple):
    """The running demo: where its metrics and its store are."""

    listen: str
    data: Path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    data = tmp_path_factory.mktemp("store") / "data"
    # Without its calm parts the recording has bursts all the time, however long the tests take.
    bursts = tmp_path_factory.mktemp("bursts")
    save(replace(load_recording(), calm=()), bursts)
    listen = str(free())
    command = [
        sys.executable,
        "-m",
        "tailscope.cli",
        "demo",
        "--no-app",
        "--recording",
        str(bursts),
    ]
    process = subprocess.Popen(
        [*command, "--listen", listen, "--data", str(data), "--history", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Ctrl-C" in line:
            break
    else:
        pytest.fail(f"the demo ended:\n{said}")
    assert f"http://{listen}/metrics" in said
    yield Demo(listen, data)
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def prometheus(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(tmp_path_factory.mktemp("prometheus"), {"tailscope": demo.listen}) as server:
        yield server


def _empty(prometheus: Prometheus, asked: list[Asked]) -> list[str]:
    """Titles of the panels whose expression gives nothing now."""
    now = time.time()
    found = []
    for title, expr, instant in asked:
        result = prometheus.at(expr, now) if instant else prometheus.over(expr, now - 60, now, 5)
        if not result:
            found.append(title)
    return found


def _published(demo: Demo) -> set[str]:
    """Names of the metrics that the exporter has."""
    with urlopen(f"http://{demo.listen}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    return {name for name in re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE)}


def test_the_demo_publishes_all_but_what_its_recording_has_not(demo: Demo) -> None:
    """So that the rule for empty panels excuses no panel that matters."""
    absent = {
        "tailscope_engine_speculative_draft_tokens_total",
        "tailscope_engine_speculative_accepted_tokens_total",
        "tailscope_request_retries_total",
        "tailscope_records_rejected_total",
    }
    wanted = _wanted() - absent
    until(lambda: _published(demo) >= wanted, f"all of {sorted(wanted)} are published", _PATIENCE)


def _wanted() -> set[str]:
    """What a vLLM without GPUs and gateways gives."""
    vllm = engines()["vllm"]
    return {
        name
        for name, metric in METRICS.items()
        if "_gpu_" not in name
        and (_own(name) or coverage(vllm, METRICS[_sampled(metric)]).how is not How.NO)
    }


def _sampled(metric: Metric) -> str:
    """The gauge that a metric is made of, or the metric itself."""
    return metric.integral_of or metric.distribution_of or metric.name


def _own(name: str) -> bool:
    """Whether the exporter makes a metric itself, whatever the engine gives."""
    return not name.startswith(("tailscope_engine_", "tailscope_gateway_"))


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_shows_the_live_demo(demo: Demo, prometheus: Prometheus, path: Path) -> None:
    """Every panel whose metrics the demo publishes: it has no GPU, and not every option is on."""
    published = _published(demo)
    asked = [
        one
        for one in expressions(load(path), _WINDOWS)
        if one.title not in MAY_BE_EMPTY
        and {metric.name for metric in metrics_of(one.expr)} <= published
    ]
    assert asked
    until(lambda: not _empty(prometheus, asked), "every panel shows something", _PATIENCE, pause=2)


def test_tenants_and_the_slow_stage_are_in_the_metrics(demo: Demo, prometheus: Prometheus) -> None:
    expr = "sum by (tenant) (tailscope_requests_total)"

    def tenants() -> set[str]:
        return {one["metric"]["tenant"] for one in prometheus.at(expr, time.time())}

    until(lambda: tenants() >= {"acme", "globex", "initech", "umbrella"}, expr, _PATIENCE)
    assert len(tenants()) == 4
    stages = {
        one["metric"]["stage"]: float(one["value"][1])
        for one in prometheus.at(
            "sum by (stage) (tailscope_request_stage_seconds_sum)", time.time()
        )
    }
    assert max(stages, key=lambda stage: stages[stage]) == "queue"


def test_exemplars_lead_to_requests_of_the_store(demo: Demo) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with urlopen(Request(f"http://{demo.listen}/metrics", headers=accept), timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        text = answer.read().decode()
    traces = {
        sample.exemplar.labels["trace_id"]
        for family in check_page(text, openmetrics=True)
        if family.name == "tailscope_request_seconds"
        for sample in family.samples
        if sample.exemplar
    }
    assert traces
    assert traces <= set(Reader(demo.data).requests().trace_id)


def test_the_page_names_what_it_is(demo: Demo) -> None:
    with urlopen(f"http://{demo.listen}/", timeout=5) as answer:
        page = answer.read().decode()
    assert re.search(r"<td>engine:127\.0\.0\.1:\d+</td><td>ok</td>", page)
    assert "otlp:grpc" in page
