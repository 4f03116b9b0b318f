"""The DCGM source over HTTP: a dcgm-exporter that is well, ill, slow or gone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tailscope.catalogue import METRICS, PREFIX, dcgm
from tailscope.exporter.exposition import render
from tailscope.exporter.health import SourceError
from tailscope.exporter.poller import Poller
from tailscope.exporter.sources.dcgm import ACTIVITY, FROZEN_SECONDS, HEALTH, SM_ACTIVE, DcgmSource
from tailscope.records.samples import Sample
from tests.dcgmpages import (
    CAPTURES,
    H100,
    PAGES,
    UUID_0,
    UUID_1,
    UUID_2,
    Clock,
    flat,
    line,
    only,
    page,
    values,
)
from tests.process import until

WAIT = 60.0
"""Seconds for what the slowest machine takes, and in which what hangs gives up."""


class Exporter:
    """A small HTTP server that answers as dcgm-exporter does, or as one that is ill."""

    def __init__(self) -> None:
        self.body: str | bytes = ""
        self.status = 200
        self.content_type = "text/plain; charset=utf-8"
        self.hang = threading.Event()
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.paths.append(self.path)
                body = outer.body.encode() if isinstance(outer.body, str) else outer.body
                if outer.hang.is_set():
                    outer.release.wait(WAIT)
                self.send_response(outer.status)
                self.send_header("Content-Type", outer.content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                pass  # the client has gone: that is what some tests are about

        self.release = threading.Event()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    server = Exporter()
    yield server
    server.close()


Make = Callable[..., DcgmSource]
Golden = Callable[[Path, str], None]


@pytest.fixture
def make(exporter: Exporter) -> Iterator[Make]:
    made: list[DcgmSource] = []

    def build(
        only_for: Callable[[], frozenset[str]] | None = None,
        keep: Callable[[Sequence[Sample]], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        deadline: float = WAIT,
    ) -> DcgmSource:
        source = DcgmSource(
            exporter.url,
            deadline=deadline,
            longest=3.0,
            keep=keep,
            activity_only_for=only_for,
            now=now,
        )
        made.append(source)
        return source

    yield build
    for source in made:
        source.close()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_golden(path: Path, exporter: Exporter, make: Make, golden: Golden) -> None:
    exporter.body = path.read_text()
    source = make()
    message = source.read().replace(exporter.url, "http://host")
    gives = [f"# {uuid}: {', '.join(sorted(what))}" for uuid, what in sorted(source.gives.items())]
    lines = render([source.lines(True)], None, False).decode().replace(exporter.url[7:], "host")
    shown = [each for each in lines.splitlines() if not each.startswith("#")]
    text = "\n".join([f"# {message}", *gives, *shown]) + "\n"
    golden(CAPTURES / "golden" / f"{path.stem}.txt", text)


def test_unknown_fields_are_logged_once_and_counted(
    exporter: Exporter, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    source = make()
    for value in range(3):
        exporter.body = H100 + line("DCGM_FI_DEV_NEW_THING", value) + "other_thing 1\n"
        source.read()
    told = [record for record in caplog.records if "DCGM_FI_DEV_NEW_THING" in record.message]
    assert len(told) == 1
    assert only(flat(source.lines(True)), "source_unmapped_families") == 2.0
    assert not any("other_thing" in record.message for record in caplog.records)


def test_integrals_and_distributions(exporter: Exporter, make: Make) -> None:
    clock = Clock()
    source = make(now=clock)
    for step, active in enumerate((0.2, 0.4, 0.4, 1.0)):
        exporter.body = line("DCGM_FI_PROF_DRAM_ACTIVE", active, n=str(step))
        source.read()
        clock.now += 1
    found = flat(source.lines(True))
    assert only(found, "gpu_dram_active_seconds_total") == pytest.approx(0.3 + 0.4 + 0.7)
    assert only(found, "gpu_dram_active_ratio_sampled_count") == 4
    assert only(found, "gpu_dram_active_ratio_sampled_bucket", le="0.4") == 3
    assert not values(found, "gpu_sm_active_seconds_total")


def test_what_is_stored(exporter: Exporter, make: Make) -> None:
    kept: list[Sample] = []
    exporter.body = H100
    make(keep=kept.extend).read()
    names = {sample.metric for sample in kept}
    assert names <= {name for name, metric in METRICS.items() if metric.stored}
    assert {f"{PREFIX}gpu_{name}" for name in ("sm_active_ratio", "dram_active_ratio", "up")} <= (
        names
    )
    (sample,) = (
        s for s in kept if s.metric == f"{PREFIX}gpu_sm_active_ratio" and UUID_0 in s.labels
    )
    assert sample.value == 0.903117
    assert not any("xid_errors" in sample.metric for sample in kept)
    assert abs(sample.time_ns - time.time_ns()) < 60e9


def test_what_it_gives_and_says(exporter: Exporter, make: Make) -> None:
    exporter.body = H100
    source = make()
    message = source.read()
    assert exporter.paths == ["/metrics"]
    assert source.uuids == {UUID_0, UUID_1, UUID_2}
    assert set(source.gives.values()) == {frozenset({HEALTH, ACTIVITY, SM_ACTIVE})}
    assert message == f"dcgm-exporter answers at {exporter.url}/metrics: 3 of 3 GPUs can be read"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("t4_docker_3.1", "DCGM_FI_PROF_SM_ACTIVE"),
        ("h100_4.9_newnames", "DCGM_FI_PROF_SM_UTIL_RATIO"),
    ],
)
def test_sm_activity_that_is_off_is_not_made_up(
    exporter: Exporter, make: Make, name: str, field: str
) -> None:
    exporter.body = page(name)
    source = make()
    message = source.read()
    assert f"no SM activity of any: {field} is off by default" in message
    assert set(source.gives.values()) == {frozenset({HEALTH, ACTIVITY})}
    found = flat(source.lines(True))
    assert not any("sm_active" in series or "sm_occupancy" in series for series, _ in found)


@pytest.mark.parametrize("name", ["l4_noprof_4.4", "rtx4090_ws_4.4", "mixed_noprof_4.8.3"])
def test_missing_profiling_fields_are_explained(exporter: Exporter, make: Make, name: str) -> None:
    exporter.body = page(name)
    source = make()
    message = source.read()
    assert "no activity of any" in message
    assert "datacenter-gpu-manager-4-proprietary" in message
    assert "off by default" not in message
    assert set(source.gives.values()) == {frozenset({HEALTH})}


def test_what_one_gpu_of_several_lacks_is_said_with_its_name(
    exporter: Exporter, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    exporter.body = H100
    source = make()
    source.read()
    assert not caplog.records
    exporter.body = re.sub(rf'DCGM_FI_PROF_\w+\{{gpu="1",UUID="{UUID_1}".*\n', "", H100)
    message = source.read()
    assert f"no activity of {UUID_1}: no DCGM_FI_PROF_ fields" in message
    assert source.gives[UUID_1] == {HEALTH}
    assert [record.message for record in caplog.records] == [f"source {source.name}: {message}"]


def test_activity_alone_and_only_for_those_who_want_it(exporter: Exporter, make: Make) -> None:
    wanted: set[str] = set()
    kept: list[Sample] = []
    exporter.body = H100
    source = make(only_for=lambda: frozenset(wanted), keep=kept.extend)
    source.read()
    assert not any("_gpu_" in name for name, _ in flat(source.lines(True)))
    assert source.uuids == {UUID_0, UUID_1, UUID_2}
    wanted.add(UUID_1)
    source.read()
    found = flat(source.lines(True))
    gpus = {series: value for series, value in found.items() if "_gpu_" in series[0]}
    assert {dict(own)["uuid"] for _, own in gpus} == {UUID_1}
    plain = {name.removeprefix(PREFIX) for name, _ in gpus}
    assert {"gpu_sm_active_ratio", "gpu_sm_active_seconds_total"} <= plain
    assert {name for name in plain if METRICS.get(PREFIX + name) is not None} <= {
        *(name.removeprefix(PREFIX) for name in dcgm.ACTIVITY),
        *(f"gpu_{what}_active_seconds_total" for what in ("sm", "dram", "tensor")),
    }
    assert {sample.metric for sample in kept} <= dcgm.ACTIVITY


def test_old_readings_are_not_shown(exporter: Exporter, make: Make) -> None:
    exporter.body = H100
    source = make()
    source.read()
    assert any("_gpu_" in name for name, _ in flat(source.lines(True)))
    assert {name for name, _ in flat(source.lines(False))} == {
        f"{PREFIX}source_resets_total",
        f"{PREFIX}source_unmapped_families",
    }


HTML = "<!doctype html><html><head><title>Sign in</title></head><body>no</body></html>"


@pytest.mark.parametrize(
    ("status", "content_type", "body", "reason"),
    [
        (503, "text/plain", "unavailable", "http_503"),
        (500, "application/json", '{"error": "x"}', "http_500"),
        (200, "text/html; charset=utf-8", HTML, "not_prometheus"),
        (200, "application/json", "{}", "not_prometheus"),
        (200, "text/plain", HTML, "no_metrics"),
        (200, "text/plain", "", "no_metrics"),
        (200, "text/plain", "# HELP DCGM_FI_DEV_GPU_TEMP x\n# TYPE x gauge\n", "no_metrics"),
        (200, "text/plain", 'vllm:num_requests_running{model_name="m"} 3\n', "no_metrics"),
        (200, "application/octet-stream", b"\xff\xfe\x00\x01" * 100, "no_metrics"),
    ],
)
def test_other_answers(
    exporter: Exporter,
    make: Make,
    status: int,
    content_type: str,
    body: str | bytes,
    reason: str,
) -> None:
    exporter.body = H100
    source = make()
    source.read()
    exporter.status, exporter.content_type, exporter.body = status, content_type, body
    with pytest.raises(SourceError) as caught:
        source.read()
    assert caught.value.reason == reason
    assert exporter.url in str(caught.value)
    assert source.uuids == frozenset()
    exporter.status, exporter.content_type, exporter.body = 200, "text/plain", H100
    source.read()
    assert len(source.uuids) == 3


def test_a_hang_ends_with_the_deadline(exporter: Exporter, make: Make) -> None:
    exporter.body = H100
    exporter.hang.set()
    source = make(deadline=0.2)
    with pytest.raises(SourceError) as caught:
        source.read()
    assert caught.value.reason == "timeout"
    assert exporter.paths == ["/metrics"], "it was asked, and has not answered yet"


def test_nobody_there(exporter: Exporter) -> None:
    url = exporter.url
    exporter.close()
    source = DcgmSource(url, deadline=1.0, longest=3.0)
    with pytest.raises(SourceError) as caught:
        source.read()
    assert caught.value.reason in ("unreachable", "timeout")
    source.close()


def test_a_page_without_end_is_left_alone(exporter: Exporter, make: Make) -> None:
    exporter.body = H100 + "x 1\n" * 60_000
    with pytest.raises(SourceError) as caught:
        make().read()
    assert caught.value.reason == "too_many_series"


def test_names_and_passwords_stay_out_of_names_and_messages(exporter: Exporter) -> None:
    host = exporter.url.removeprefix("http://")
    source = DcgmSource(f"http://me:secret@{host}/metrics?token=hidden", deadline=WAIT, longest=3.0)
    exporter.body = "x 1\n"
    with pytest.raises(SourceError) as caught:
        source.read()
    source.close()
    assert source.name == f"dcgm:{host}"
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_url_with_a_path_is_taken_as_it_is(exporter: Exporter) -> None:
    exporter.body = H100
    source = DcgmSource(f"{exporter.url}/gpu/metrics?x=1", deadline=WAIT, longest=3.0)
    source.read()
    source.close()
    assert exporter.paths == ["/gpu/metrics?x=1"]
    assert source.name == f"dcgm:{exporter.url.removeprefix('http://')}"


def test_a_page_that_stands_still_shows_the_past(exporter: Exporter, make: Make) -> None:
    clock = Clock()
    source = make(now=clock)
    exporter.body = H100
    source.read()
    clock.now += FROZEN_SECONDS - 1
    source.read()
    clock.now += 2
    with pytest.raises(SourceError) as caught:
        source.read()
    assert caught.value.reason == "frozen"
    exporter.body = H100.replace(" 1148209335127", " 1148209335128")
    source.read()
    # Without energy there is nothing in it that has to change.
    exporter.body = line("DCGM_FI_DEV_GPU_TEMP", 40)
    source.read()
    clock.now += 10 * FROZEN_SECONDS
    source.read()


def test_behind_a_poller(exporter: Exporter, make: Make) -> None:
    exporter.body = H100
    poller = Poller(make(), 0.05, 1.0)
    poller.start()
    try:

        def ups() -> list[float]:
            return values(flat(*poller.lines()), "gpu_up")

        until(lambda: ups() == [1.0] * 3)
        exporter.status = 503
        until(lambda: poller.health.state.reason == "http_503")
        until(lambda: not ups())
        found = flat(*poller.lines())
        assert values(found, "source_up") == [0.0]
        assert only(found, "source_state", reason="http_503") == 1.0
        assert not any("_gpu_" in name for name, _ in found)
        exporter.status = 200
        until(lambda: ups() == [1.0] * 3)
    finally:
        poller.stop()
        poller.join(WAIT)
