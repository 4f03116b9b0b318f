"""The real exporter as a process, on engines that behave badly."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests import fake_engine as fakes
from tests.agreement import check_lint, check_page
from tests.fake_engine import Behaviour, FakeEngine, answers, capture, fake_engine
from tests.otlp import PROTOBUF, message, span
from tests.process import PATIENCE, Exporter, exporter, run, until
from tests.spanreading import gateway

TOKENS = "engine_prompt_tokens_total"
QUIET = ("--otlp-grpc", "off", "--otlp-http", "off")
STOP_SECONDS = 2.0
HALF = b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with fake_engine() as running:
        yield running


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "exporter.log"


def seen(running: Exporter, server: FakeEngine) -> tuple[float | None, float | None]:
    """Whether an engine is up, and the tokens that it counted."""
    return (
        running.value("engine_up", server=server.address),
        running.value(TOKENS, server=server.address),
    )


def is_in_state(running: Exporter, source: str, reason: str) -> bool:
    return running.state(source) == reason


def works(running: Exporter, server: FakeEngine) -> bool:
    """Whether an engine is up with its count; asked again where a read came late."""
    return seen(running, server) == (1, 101907)


def reasons(running: Exporter, source: str) -> list[str]:
    """Why a source was down, each time, as the log tells."""
    return re.findall(rf"source {re.escape(source)} is down \((\w+)\)", running.log)


# A bad day


TROUBLES: list[tuple[str, Behaviour, str]] = [
    ("HTML", fakes.html(), "not_prometheus"),
    ("a model that loads", fakes.loading(), "http_503"),
    ("JSON", fakes.json_body(), "not_prometheus"),
    ("a scrape that hangs", fakes.hangs(), "timeout"),
    ("a scrape that drips", fakes.drips(capture()), "timeout"),
    ("a connection that is cut", fakes.cut(capture(), 10_000), "broken"),
]


def test_an_engine_has_a_bad_day_and_its_neighbour_does_not_notice(log: Path) -> None:
    with fake_engine() as ill, fake_engine() as well:
        ill.stop()
        flags = ("--engine", ill.url, "--engine", f"vllm={well.url}", "--interval", "200ms")
        with exporter(log, *flags, *QUIET) as running:
            source = f"engine:{ill.address}"
            until(lambda: running.state(source) == "unreachable")
            assert running.value("source_up", source=source) == 0
            # It never answered, so nobody can say which engine it is.
            assert running.value("engine_up", server=ill.address, engine="") == 0
            assert running.value("source_last_success_timestamp_seconds", source=source) is None
            until(lambda: works(running, well))

            ill.start()
            until(lambda: works(running, ill), "it is up at last")
            until(lambda: running.value("engine_up", server=ill.address, engine="vllm") == 1)
            until(lambda: running.value("source_up", source=source) == 1)

            for name, behaviour, reason in TROUBLES:
                ill.behaviour = behaviour
                until(partial(is_in_state, running, source, reason), name)
                assert running.value("source_up", source=source) == 0, name
                until(lambda: seen(running, ill) == (0, None), f"{name}: its series are gone")
                well.requests.clear()
                until(lambda: len(well.requests) > 2, f"{name}: the other is read on")
                until(lambda: works(running, well), name)
                check_page(running.get())
                ill.behaviour = answers(capture())
                until(lambda: works(running, ill), f"after {name}")
                until(partial(is_in_state, running, source, "ok"), f"after {name}")

            ill.stop()
            until(lambda: seen(running, ill) == (0, None))
            ill.behaviour = answers(fakes.restarted(capture()))
            ill.start()
            until(lambda: works(running, ill), "its counts go on")
            assert running.value("source_resets_total", source=source) == 1
            assert running.value("source_resets_total", source=f"engine:{well.address}") == 0
            # A read that the machine was too busy for is a timeout, too, of either.
            assert set(reasons(running, f"engine:{well.address}")) <= {"timeout"}
            expected = ["unreachable", *(reason for *_, reason in TROUBLES), "unreachable"]
            told = reasons(running, source)
            assert set(told) == set(expected)
            rest = iter(told)
            assert all(reason in rest for reason in expected), told
            assert running.stop() == 0
            assert "Traceback" not in running.log


# The pages


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """An exporter with all that it can have."""
    folder = tmp_path_factory.mktemp("exporter")
    rude = fakes.html("text/html; x=<script>alert(1)</script>")
    with fake_engine() as good, fake_engine(rude) as bad:
        flags = [
            *("--engine", good.url, "--engine", bad.url, "--interval", "200ms"),
            *("--requests", str(folder / "requests.jsonl"), "--data", str(folder / "data")),
        ]
        with exporter(folder / "log", *flags) as running:
            until(lambda: works(running, good))
            until(lambda: running.state(f"engine:{bad.address}") == "not_prometheus")
            yield running


def test_the_page_agrees_with_the_catalogue_in_both_formats(busy: Exporter) -> None:
    until(lambda: len(check_page(busy.get())) > 40, "the engine's families are there")
    check_lint(busy.get())
    accept = "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"
    until(lambda: len(check_page(busy.get(Accept=accept), openmetrics=True)) > 40)
    for header, kind in ((accept, "application/openmetrics-text"), ("text/plain", "text/plain")):
        with urlopen(Request(f"{busy.url}/metrics", headers={"Accept": header})) as answer:
            assert answer.headers["Content-Type"].startswith(kind)


def test_sources_are_those_that_were_set_and_no_others(busy: Exporter) -> None:
    sources = {
        sample.labels["source"]
        for family in check_page(busy.get())
        for sample in family.samples
        if "source" in sample.labels
    }
    engines = {source for source in sources if source.startswith("engine:127.0.0.1:")}
    assert len(engines) == 2
    assert sources - engines == {"file:requests.jsonl", "otlp:grpc", "otlp:http"}


def test_ten_scrapes_at_a_time(busy: Exporter) -> None:
    with ThreadPoolExecutor(10) as pool:
        pages = list(pool.map(lambda _: busy.get(), range(50)))
    for page in pages[::10]:
        check_page(page)
    assert all(page.endswith("\n") and "tailscope_engine_up" in page for page in pages)


def test_the_landing_page_shows_each_source_and_runs_nothing(busy: Exporter) -> None:
    page = busy.get("/")
    assert "not_prometheus" in page
    assert "otlp:grpc" in page
    assert "<script" not in page
    assert "alert(1)" not in page  # what a server says is not repeated


@pytest.mark.parametrize(
    "path",
    ["/x%0d%0aX-Evil:%201", "/metrics%0d%0aX-Evil:%201", "//evil.example/", "/?a=%0d%0aX-Evil:1"],
)
def test_a_path_reaches_no_header(busy: Exporter, path: str) -> None:
    with socket.create_connection(("127.0.0.1", busy.port())) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split()[1] == (b"200" if path.startswith("/?") else b"404")
    assert b"evil" not in answer.lower()


def test_garbage_on_the_metrics_port_ends_nothing(busy: Exporter) -> None:
    for garbage in (b"\x00" * 1000, b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000):
        with socket.create_connection(("127.0.0.1", busy.port())) as connection:
            try:
                connection.sendall(garbage + b"\r\n\r\n")
                connection.settimeout(10)
                answer = connection.recv(65536)
            except ConnectionError:
                continue
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert busy.get("/-/healthy") == "Tailscope exporter is healthy.\n"
    assert busy.get("/-/ready") == "Tailscope exporter is ready.\n"


def test_what_is_not_there_is_not_there(busy: Exporter) -> None:
    with pytest.raises(HTTPError, match="404"):
        busy.get("/nothing")
    with pytest.raises(HTTPError, match="405"):
        urlopen(f"{busy.url}/metrics", data=b"x")


# Start and end


def stopped(running: Exporter, number: signal.Signals = signal.SIGTERM) -> float:
    """Stop it; returns the seconds that it took."""
    started = time.monotonic()
    assert running.stop(number) == 0
    assert "Traceback" not in running.log
    return time.monotonic() - started


def test_a_stop_waits_for_nobody(tmp_path: Path) -> None:
    """Neither for a scrape that hangs nor for clients that sent half a request."""
    log, data, needed = tmp_path / "log", str(tmp_path / "data"), []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        with fake_engine(fakes.hangs()) as engine, ExitStack() as stack:
            running = stack.enter_context(exporter(log, "--engine", engine.url, "--data", data))
            until(partial(getattr, engine, "requests"), "a scrape hangs")
            for port in (running.port(), running.port("otlp_http"), running.port("otlp_grpc")):
                idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                idle.sendall(HALF)
            needed.append(stopped(running, number))
        if needed[-1] < STOP_SECONDS:
            return
        # A busy machine is late where nobody has to be waited for, too.
        with exporter(log, "--engine", "http://127.0.0.1:9", "--data", data) as running:
            needed.append(stopped(running))
        if needed[-2] < needed[-1] + STOP_SECONDS:
            return
    raise AssertionError(f"stops took {needed} s, by turns with what hangs and without")


@pytest.mark.parametrize("flag", ["--listen", "--otlp-http", "--otlp-grpc"])
def test_a_port_that_is_taken(flag: str) -> None:
    others = [
        part
        for other in ("--listen", "--otlp-http", "--otlp-grpc")
        if other != flag
        for part in (other, "127.0.0.1:0")
    ]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("exporter", *others, flag, address)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tailscope exporter: {flag} {address}: ")
    assert "listen" in line
    assert re.search("choose another", line, re.IGNORECASE)


def test_a_store_that_is_taken(log: Path, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with exporter(log, "--data", data, *QUIET):
        done = run("exporter", "--listen", "127.0.0.1:0", "--data", data, *QUIET)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tailscope exporter: --data {data}: ")


def test_after_a_restart_engines_rows_wait_for_their_gateway(tmp_path: Path) -> None:
    """Those that come first would otherwise count alone: nobody's, and with an engine's word."""

    def told(number: int) -> dict[tuple[str, str], float]:
        """An engine ends well what its client has given up; the engine tells it first."""
        client = gateway(number, trace=number, error__type="timeout")
        served = span(number + 1, trace=number)
        served.parent_span_id = client.span_id
        body = message([served, client]).SerializeToString()
        with exporter(tmp_path / f"{number}.log", "--data", str(tmp_path / "data")) as running:
            request = Request(running.otlp_http, body, {"Content-Type": PROTOBUF})
            with urlopen(request, timeout=PATIENCE) as answer:
                assert answer.status == 200
            found = until(lambda: running.samples("requests_total"), "they count")
        return {(one.labels["tenant"], one.labels["outcome"]): one.value for one in found}

    assert told(10) == {("unknown", "ok"): 1.0}, "no gateway was known"
    assert told(20) == {("acme", "queue_timeout"): 1.0}


def test_settings_from_variables_and_a_file(log: Path, tmp_path: Path, engine: FakeEngine) -> None:
    settings = tmp_path / "tailscope.yaml"
    settings.write_text("otlp-grpc: off\notlp-http: off\ninterval: 100ms\n")
    with exporter(log, "--config", str(settings), env={"TAILSCOPE_ENGINE": engine.url}) as running:
        until(lambda: works(running, engine))
