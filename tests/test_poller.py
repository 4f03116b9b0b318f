"""One engine, read by a poller: everything that an HTTP server can do to it."""

from __future__ import annotations

import logging
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tailscope.address import server_name
from tailscope.catalogue import Engine
from tailscope.catalogue.engines import engines
from tailscope.exporter.exposition import Lines
from tailscope.exporter.fetch import MAX_BODY, Fetcher
from tailscope.exporter.health import Health, SourceError
from tailscope.exporter.poller import STALE_INTERVALS, Poller
from tailscope.exporter.sources.engine import EngineSource
from tailscope.records.samples import Sample
from tests import fake_engine as fakes
from tests.fake_engine import Behaviour, FakeEngine, answers, capture, fake_engine
from tests.process import until

VLLM = engines()["vllm"]
TOKENS = "tailscope_engine_prompt_tokens_total"
INTERVAL = 0.05
DEADLINE = 0.2
SHORT = 0.8

OTHER = replace(
    VLLM, name="other", title="Other", paths=("/other",), prefixes=("other:",), ignored=VLLM.ignored
)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with fake_engine() as running:
        yield running


@contextmanager
def source_of(url: str, deadline: float = 10, **options: object) -> Iterator[EngineSource]:
    source = EngineSource(url, engines(), deadline=deadline, longest=1, **options)  # type: ignore[arg-type]
    try:
        yield source
    finally:
        source.close()


@contextmanager
def polled(source: EngineSource, deadline: float = DEADLINE) -> Iterator[Poller]:
    poller = Poller(source, INTERVAL, deadline)
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()
        poller.join(5)


def value(groups: list[Lines], metric: str) -> float | None:
    found = [line.value for group in groups for line in group.get(metric, ())]
    return found[0] if found else None


def failure(engine: FakeEngine, behaviour: Behaviour, deadline: float) -> SourceError:
    """What a source says of one bad answer; the next, good one is read as ever."""
    with source_of(engine.url, deadline) as source:
        source.read()
        engine.behaviour = behaviour
        with pytest.raises(SourceError) as caught:
            source.read()
        engine.behaviour = answers(capture())
        source.read()
        assert value([source.lines(True)], TOKENS) == 101907
    return caught.value


# One read


BAD: dict[str, tuple[Behaviour, str, str]] = {
    "503 with JSON": (fakes.loading(), "http_503", "answers 503"),
    "404 with JSON": (fakes.json_body(404), "http_404", "answers 404"),
    "200 with JSON": (fakes.json_body(), "not_prometheus", "application/json"),
    "HTML": (fakes.html(), "not_prometheus", "text/html"),
    "HTML as text": (fakes.html("text/plain"), "not_prometheus", "no line is a sample"),
    "empty": (answers(""), "not_prometheus", "no line is a sample"),
    "only comments": (answers("# TYPE vllm:x gauge\n"), "not_prometheus", "no line is a sample"),
    "redirect": (fakes.redirects("/elsewhere"), "http_302", "URL that it redirects to"),
    "hangs": (fakes.hangs(), "timeout", f"within {SHORT:g} s"),
    "drips": (fakes.drips(capture()), "timeout", f"within {SHORT:g} s"),
    "cut": (fakes.cut(capture(), 9_000), "broken", "broke off"),
    "cut without a length": (fakes.until_closed(capture()[:9_000]), "broken", "cut off"),
    "hangs up": (fakes.hangs_up(), "broken", "broke off"),
    "huge": (answers("a 1\n" * (MAX_BODY // 4 + 1)), "too_large", str(MAX_BODY)),
    "bomb": (fakes.bomb(200), "too_large", str(MAX_BODY)),
    "other metrics": (
        answers("# TYPE node_load1 gauge\nnode_load1 1\n# TYPE go_info gauge\ngo_info 1\n"),
        "no_metrics",
        "First families: node_load1, go_info",
    ),
    "too many series": (
        answers("".join("a 1\n" for _ in range(500_001))),
        "too_many_series",
        "more than 500000",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_has_a_reason_and_harms_nothing(engine: FakeEngine, name: str) -> None:
    behaviour, reason, words = BAD[name]
    error = failure(engine, behaviour, SHORT if reason == "timeout" else 10)
    assert (error.reason, str(error)) == (reason, str(error))
    assert words in str(error)
    assert f"{engine.url}/metrics" in str(error)


@pytest.mark.parametrize(
    "behaviour",
    [fakes.packed(capture()), fakes.chunked(capture()), fakes.until_closed(capture())],
    ids=["gzip", "chunked", "until closed"],
)
def test_every_way_to_send_a_body(engine: FakeEngine, behaviour: Behaviour) -> None:
    engine.behaviour = behaviour
    with source_of(engine.url) as source:
        for _ in range(3):
            assert source.read() == f"vLLM answers at {engine.url}/metrics"
        assert value([source.lines(True)], TOKENS) == 101907


def test_one_connection_is_kept_and_the_engine_is_not_asked_to_pack(engine: FakeEngine) -> None:
    with source_of(engine.url) as source:
        for _ in range(5):
            source.read()
        assert engine.connections == 1
    assert engine.requests == ["/metrics"] * 5
    assert engine.headers_seen["Accept-Encoding"] == "identity"
    until(lambda: engine.connections == 0, "the connection is closed")


def test_a_kept_connection_that_closes_at_the_moment_of_its_use_is_no_failure() -> None:
    """A server that closes idle connections sometimes does it while a request is on its way."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                first, _ = listener.accept()
                with first:
                    first.recv(4096)
                    first.sendall(answer)
                    first.recv(4096)  # the second request comes, and the connection goes
                second, _ = listener.accept()
                with second:
                    second.recv(4096)
                    second.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        fetcher = Fetcher(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        assert fetcher.get(5).content == b"a 1\n"
        assert fetcher.get(5).content == b"a 1\n"
        fetcher.close()
        thread.join(5)


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with source_of(f"http://127.0.0.1:{port}") as source:
            with pytest.raises(SourceError, match="cannot be reached") as caught:
                source.read()
            assert caught.value.reason == "unreachable"


def test_a_host_that_does_not_exist() -> None:
    with (
        source_of("http://no-such-host.invalid:8000") as source,
        pytest.raises(SourceError, match="name of the host is unknown"),
    ):
        source.read()


# URLs


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", "/metrics"),
        ("/", "/metrics"),
        ("/metrics", "/metrics"),
        ("/metrics/", "/metrics"),
        ("/model-a/metrics", "/model-a/metrics"),
        ("?names=a", "/metrics?names=a"),
        ("/m?key=hush#part", "/m?key=hush"),
    ],
)
def test_paths(engine: FakeEngine, path: str, asked: str) -> None:
    with source_of(engine.url + path) as source:
        message = source.read()
    assert engine.requests == [asked]
    assert "hush" not in message


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://Engine/x", "engine:80"),
        ("https://engine", "engine:443"),
        ("http://[::1]:8000/metrics", "[::1]:8000"),
        ("https://[::1]", "[::1]:443"),
    ],
)
def test_server_names(url: str, server: str) -> None:
    assert server_name(url) == server


def test_an_engine_on_ipv6() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    body = capture().encode()
    head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(head + body)

    with listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        with source_of(f"http://[::1]:{port}") as source:
            source.read()
            assert source.server == f"[::1]:{port}"
        thread.join(5)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=x"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with fake_engine() as engine:
        with source_of(engine.url.replace("http:", "https:")) as source:
            with pytest.raises(SourceError, match="is it an http:// address") as caught:
                source.read()
            assert caught.value.reason == "tls"
        assert engine._server is not None
        engine._server.socket = context.wrap_socket(engine._server.socket, server_side=True)
        url = engine.url.replace("http:", "https:")
        with (
            source_of(url) as source,
            pytest.raises(SourceError, match=r"self-signed.*SSL_CERT_FILE"),
        ):
            source.read()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with source_of(url) as source:
            assert "vLLM answers" in source.read()


# Which engine


def either(url: str, engine: Engine | None = None) -> EngineSource:
    known = {"vllm": VLLM, "other": OTHER}
    return EngineSource(url, known, engine=engine, deadline=5, longest=1)


def test_an_engine_is_recognised_and_one_that_takes_its_place_too(engine: FakeEngine) -> None:
    source = either(engine.url + "/metrics")
    assert up(source, False) == {"engine": "", "server": engine.address}
    assert "vLLM answers" in source.read()
    assert up(source, False)["engine"] == "vllm"
    engine.behaviour = answers(capture().replace("vllm:", "other:"))
    assert "Other answers" in source.read()
    assert up(source, True)["engine"] == "other"
    assert value([source.lines(True)], TOKENS) == 101907
    source.close()


def test_an_engine_that_the_user_named_is_no_other(engine: FakeEngine) -> None:
    source = either(engine.url, engine=OTHER)
    assert up(source, False)["engine"] == "other"
    with pytest.raises(SourceError, match=r"no family of Other.*First families: python_gc"):
        source.read()
    assert engine.requests == ["/other"]
    source.close()


def test_an_unknown_engine_is_told_by_what_it_has(engine: FakeEngine) -> None:
    engine.behaviour = answers("".join(f"# TYPE t{i} gauge\nt{i} 1\n" for i in range(9)))
    source = either(engine.url)
    with pytest.raises(SourceError) as caught:
        source.read()
    assert caught.value.reason == "unknown_engine"
    assert str(caught.value).endswith("(vllm, other); its first families: t0, t1, t2, t3, t4")
    source.close()


def up(source: EngineSource, fresh: bool) -> dict[str, str]:
    (line,) = source.lines(fresh)["tailscope_engine_up"]
    assert line.value == (1 if fresh else 0)
    return dict(re.findall(r'(\w+)="([^"]*)"', line.series))


def test_families_that_are_left_out_are_counted_and_named_once(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine.behaviour = answers(capture() + "vllm:brand_new 1\n")
    with source_of(engine.url) as source:
        for _ in range(3):
            source.read()
        assert value([source.lines(True)], "tailscope_source_unmapped_families") == 1
    assert [message for message in caplog.messages if "vllm:brand_new" in message] == [
        f"source engine:{engine.address}: family vllm:brand_new is left out: "
        "the catalogue does not know it"
    ]


def test_what_is_kept_are_the_stored_metrics_with_their_labels(engine: FakeEngine) -> None:
    kept: list[Sample] = []
    before = time.time_ns()
    with source_of(engine.url, keep=kept.extend) as source:
        source.read()
        assert source.model == "tiny-llama"
    samples = {sample.metric: sample for sample in kept}
    tokens = samples[TOKENS]
    assert tokens.value == 101907
    assert tokens.labels == (
        f'{{"engine":"vllm","model":"tiny-llama","rank":"","server":"{engine.address}"}}'
    )
    assert before <= tokens.time_ns <= time.time_ns()
    assert "tailscope_engine_requests_waiting" in samples
    assert "tailscope_engine_admission_rejections_total" not in samples


# The poller


def test_down_then_up_then_down(engine: FakeEngine) -> None:
    engine.stop()
    with source_of(engine.url, DEADLINE) as source, polled(source) as poller:
        until(lambda: poller.health.state.reason == "unreachable")
        assert value(poller.lines(), "tailscope_source_up") == 0
        assert value(poller.lines(), "tailscope_engine_up") == 0
        assert value(poller.lines(), TOKENS) is None
        engine.start()
        until(lambda: value(poller.lines(), "tailscope_source_up") == 1)
        assert value(poller.lines(), TOKENS) == 101907
        assert value(poller.lines(), "tailscope_engine_up") == 1
        engine.stop()
        until(lambda: value(poller.lines(), TOKENS) is None, "its series are gone")
        assert value(poller.lines(), "tailscope_engine_up") == 0
        assert value(poller.lines(), "tailscope_source_last_success_timestamp_seconds")
        assert value(poller.lines(), "tailscope_source_resets_total") == 0


def test_series_stay_for_three_intervals_and_no_longer(engine: FakeEngine) -> None:
    with source_of(engine.url) as source:
        poller = Poller(source, 0.5, 5)
        poller.start()
        until(lambda: value(poller.lines(), TOKENS))
        engine.stop()
        until(lambda: poller.health.state.up is False)
        last = poller._last_success
        assert last is not None
        until(lambda: value(poller.lines(), TOKENS) is None)
        assert time.monotonic() - last > STALE_INTERVALS * 0.5
        poller.stop()
        poller.join(5)


def test_a_restart_while_it_is_polled(engine: FakeEngine) -> None:
    with source_of(engine.url, DEADLINE) as source, polled(source) as poller:
        until(lambda: value(poller.lines(), TOKENS))
        engine.stop()
        engine.behaviour = answers(fakes.restarted(capture()))
        until(lambda: poller.health.state.up is False)
        engine.start()
        until(lambda: poller.health.state.up)
        assert value(poller.lines(), TOKENS) == 101907
        assert value(poller.lines(), "tailscope_source_resets_total") == 1


def test_a_read_that_never_ends_is_told_once_and_over_when_it_ends(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.behaviour = fakes.drips_head()
    with source_of(engine.url, DEADLINE) as source, polled(source) as poller:
        until(lambda: poller.watch().state.reason == "hanging")
        for _ in range(20):
            assert value(poller.lines(), "tailscope_source_errors_total") == 1
        assert value(poller.lines(), "tailscope_source_up") == 0
        assert "has not ended in" in poller.health.state.message
        engine.stop()
        engine.behaviour = answers(capture())
        engine.start()
        until(lambda: poller.health.state.up)
        assert value(poller.lines(), TOKENS) == 101907
    assert len([m for m in caplog.messages if "is down (hanging)" in m]) == 1


class _Faulty:
    """A source with a fault of its own in its second read."""

    name = "faulty"
    reads = 0

    def read(self) -> str:
        self.reads += 1
        if self.reads == 2:
            raise ZeroDivisionError("a detail that belongs into the log")
        return "read"

    def lines(self, fresh: bool) -> Lines:
        return {}

    def close(self) -> None:
        self.closed = True


def test_a_fault_of_a_source_is_isolated(caplog: pytest.LogCaptureFixture) -> None:
    source = _Faulty()
    poller = Poller(source, 0.02, 1)
    states: list[str] = []
    poller.health.failure = _recorder(poller.health, states)  # type: ignore[method-assign]
    poller.start()
    until(lambda: source.reads >= 3)
    poller.stop()
    poller.join(5)
    assert states == ["internal_error"]
    assert poller.health.state.up
    assert source.closed
    assert "ZeroDivisionError" in caplog.text
    assert poller._thread.name == "faulty"


def _recorder(health: Health, states: list[str]) -> Callable[..., None]:
    failure = health.failure

    def record(error: SourceError, read_seconds: float | None = None) -> None:
        states.append(error.reason)
        failure(error, read_seconds)

    return record


def test_the_beat_is_kept_and_missed_ones_are_skipped() -> None:
    class Slow(_Faulty):
        def __init__(self) -> None:
            self.times: list[float] = []

        def read(self) -> str:
            self.times.append(time.monotonic())
            if len(self.times) == 2:
                time.sleep(0.25)
            return "read"

    source = Slow()
    poller = Poller(source, 0.1, 1)
    poller.start()
    until(lambda: len(source.times) >= 5)
    poller.stop()
    poller.join(5)
    # The fifth read is at the sixth beat; a burst for the two that were missed would have it at
    # the fourth.
    assert source.times[4] - source.times[0] > 0.49


# Health


def test_a_change_is_logged_once_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    health = Health("engine:a:1", now=lambda: 1234.5)
    assert value([health.lines()], "tailscope_source_up") == 0
    assert 'reason="starting"' in health.lines()["tailscope_source_state"][0].series
    for _ in range(3):
        health.failure(SourceError("timeout", "late"), 0.5)
    health.failure(SourceError("http_503", "it answers 503"))
    for _ in range(3):
        health.success(0.01, "vLLM answers")
    health.failure(SourceError("timeout", "late"))
    assert caplog.messages == [
        "source engine:a:1 is down (timeout): late",
        "source engine:a:1 is down (http_503): it answers 503",
        "source engine:a:1: vLLM answers",
        "source engine:a:1 is down (timeout): late",
    ]
    assert value([health.lines()], "tailscope_source_errors_total") == 5
    assert value([health.lines()], "tailscope_source_last_success_timestamp_seconds") == 1234.5


def test_what_an_engine_says_cannot_forge_a_line_of_the_log(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    health = Health("engine:a:1")
    health.failure(SourceError("no_metrics", "x\n2026 source b is up\x1b[2J" + "y" * 5_000))
    (message,) = caplog.messages
    assert "\n" not in message
    assert "\x1b" not in message
    assert len(message) < 500
