"""One engine, read over HTTP: answers of every kind, addresses, who it is."""

from __future__ import annotations

import logging
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tailscope.address import server_name
from tailscope.catalogue import Engine
from tailscope.exporter.fetch import MAX_BODY, Fetcher
from tailscope.exporter.health import SourceError
from tailscope.exporter.sources.engine import EngineSource
from tailscope.records.samples import Sample
from tests import fake_engine as fakes
from tests.enginesources import (
    OTHER,
    SHORT,
    TOKENS,
    VLLM,
    engine,
    failure,
    source_of,
    value,
)
from tests.fake_engine import Behaviour, FakeEngine, answers, capture, fake_engine
from tests.process import PATIENCE, until

__all__ = ["engine"]

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
    error = failure(engine, behaviour, SHORT if reason == "timeout" else PATIENCE)
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
        assert fetcher.get(PATIENCE).content == b"a 1\n"
        assert fetcher.get(PATIENCE).content == b"a 1\n"
        fetcher.close()
        thread.join(PATIENCE)


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
        thread.join(PATIENCE)


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
    return EngineSource(url, known, engine=engine, deadline=PATIENCE, longest=1)


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
