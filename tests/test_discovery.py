"""Which engine answers: found at its port, told from others, or named."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from tailscope import cli
from tailscope.catalogue import Engine
from tailscope.catalogue.engines import engines
from tailscope.exporter.config import parse
from tailscope.exporter.discovery import Discovery
from tailscope.exporter.health import SourceError
from tailscope.exporter.sidecar import Sidecar
from tailscope.exporter.sources.engine import EngineSource
from tests.captures import FOLDER, Capture, captures, served
from tests.fake_engine import Exchange, FakeEngine, answers, capture, fake_engine
from tests.process import PATIENCE, until

OTHER = "# TYPE node_load1 gauge\nnode_load1 1\n# TYPE go_info gauge\ngo_info 1\n"


def at(*ports: int) -> dict[str, Engine]:
    """The catalogue, with these as its only ports."""
    return {name: replace(engine, ports=ports) for name, engine in engines().items()}


def source_of(url: str, known: Mapping[str, Engine] | None = None) -> EngineSource:
    return EngineSource(url, known or engines(), deadline=PATIENCE, longest=1)


@pytest.fixture
def unused() -> Iterator[int]:
    """A port where nobody answers."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


def test_engines_are_found_where_they_are_and_once(unused: int) -> None:
    found: list[EngineSource] = []
    sglang = (FOLDER / "sglang" / "0.4.prom").read_text()
    with fake_engine() as vllm, fake_engine(answers(sglang)) as other:
        known = at(unused, vllm.port, other.port)
        discovery = Discovery(known, lambda url: source_of(url, known), found.append)
        ports = ", ".join(map(str, sorted((vllm.port, other.port))))
        assert discovery.read() == f"found at the ports {ports}"
        assert [source.server for source in found] == [vllm.address, other.address]
        discovery.read()
        assert len(found) == 2
    for source in found:
        source.close()


def test_nothing_and_something_else_are_no_engine(unused: int) -> None:
    with fake_engine(answers(OTHER)) as other:
        known = at(unused, other.port)
        added: list[EngineSource] = []
        discovery = Discovery(known, lambda url: source_of(url, known), added.append)
        with pytest.raises(SourceError, match=rf"ports {unused}, {other.port}; name one") as caught:
            discovery.read()
        assert caught.value.reason == "none_found"
        assert not added
        other.behaviour = answers(capture())
        discovery.read()
        assert len(added) == 1
        added[0].close()


def test_the_exporter_does_not_take_itself_for_an_engine() -> None:
    known = at(8000, 9836)
    added: list[EngineSource] = []
    assert Discovery(known, source_of, added.append, ours=(9836,)).ports == (8000,)


def test_the_sidecar_reads_what_it_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with fake_engine() as engine:
        monkeypatch.setattr("tailscope.exporter.sidecar.engines", lambda: at(engine.port))
        flags = ["--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-http", "127.0.0.1:0"]
        flags += ["--gpu", "off", "--interval", "100ms"]
        sidecar = Sidecar(parse(cli.parser_for("exporter").parse_args(flags)))
        sidecar.start()
        try:
            until(lambda: b"tailscope_engine_prompt_tokens_total" in sidecar.exposition(False))
            page = sidecar.exposition(False).decode()
        finally:
            sidecar.stop()
    assert f'tailscope_engine_up{{engine="vllm",server="{engine.address}"}} 1.0' in page
    assert 'tailscope_source_up{source="engines"} 1.0' in page
    assert f"found: vLLM answers at {engine.url}/metrics" in caplog.text


def test_no_engine_where_none_was_named_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, unused: int
) -> None:
    monkeypatch.setattr("tailscope.exporter.sidecar.engines", lambda: at(unused))
    flags = ["--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-http", "off"]
    sidecar = Sidecar(parse(cli.parser_for("exporter").parse_args([*flags, "--gpu", "off"])))
    sidecar.start()
    try:
        found = b'tailscope_source_state{source="engines",reason="none_found"} 1.0'
        until(lambda: found in sidecar.exposition(False))
        page = sidecar.exposition(False).decode()
    finally:
        sidecar.stop()
    # Nothing that an alert could take for a source that is down.
    assert "tailscope_source_up{" not in page
    assert 'tailscope_source_errors_total{source="engines"} 0.0' in page


# Which one it is


def test_every_capture_at_its_port_is_told_by_its_pages_alone() -> None:
    for one in captures():
        if one.engine.recognise:
            with served(one) as server:
                source = source_of(server.url)
                assert source.read().startswith(one.engine.title), str(one)
                source.close()


def test_a_named_engine_is_read_where_that_engine_has_its_metrics() -> None:
    with served(Capture(engines()["trtllm"], FOLDER / "trtllm" / "1.3.prom")) as server:
        source = EngineSource(
            server.url, engines(), engine=engines()["trtllm"], deadline=PATIENCE, longest=1
        )
        assert source.read() == f"TensorRT-LLM answers at {server.url}/prometheus/metrics"
        assert "/prometheus/metrics" in server.requests
        source.close()


def test_an_unknown_engine_is_told_by_its_first_families() -> None:
    with fake_engine(answers(OTHER)) as server:
        source = source_of(server.url)
        with pytest.raises(SourceError, match=r"no engine that is known.*node_load1, go_info"):
            source.read()
        source.close()


def test_an_engine_whose_metrics_are_off_is_told_how_to_switch_them_on() -> None:
    with fake_engine(answers(OTHER)) as server:
        source = EngineSource(
            server.url, engines(), engine=engines()["sglang"], deadline=PATIENCE, longest=1
        )
        with pytest.raises(SourceError, match="--enable-metrics") as caught:
            source.read()
        assert caught.value.reason == "no_metrics"
        source.close()


def test_an_engine_that_takes_the_place_of_another_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with fake_engine() as server:
        source = source_of(server.url)
        source.read()
        server.behaviour = answers((FOLDER / "sglang" / "0.4.prom").read_text())
        for _ in range(3):
            source.read()
        source.close()
    assert caplog.messages.count(f"source engine:{server.address}: it is SGLang now") == 1


def test_a_mounted_application_that_wants_a_slash() -> None:
    def behaviour(exchange: Exchange) -> None:
        if exchange.path == "/metrics/":
            exchange.reply(capture().encode())
        else:
            exchange.reply(b"", status=307, Location="/metrics/")

    server = FakeEngine(behaviour)
    source = source_of(server.url)
    for _ in range(3):
        source.read()
    assert server.requests == ["/metrics", "/metrics/", "/metrics/", "/metrics/"]
    source.close()
    server.stop()


# The model's name


def model_server(text: str, models: bytes) -> FakeEngine:
    def behaviour(exchange: Exchange) -> None:
        if exchange.path == "/metrics":
            exchange.reply(text.encode())
        else:
            status = 200 if exchange.path == "/v1/models" else 404
            exchange.reply(models, "application/json", status)

    return FakeEngine(behaviour)


NAMELESS = "vllm:num_requests_running 3\nvllm:prompt_tokens_total 5\n"


@pytest.mark.parametrize(
    ("models", "name"),
    [
        (b'{"data": [{"id": "llama"}]}', "llama"),
        (b'{"data": []}', ""),
        (b'{"data": [{"id": 7}]}', ""),
        (b"[1, 2", ""),
        (b'{"data": [{"id": "' + b"x" * 5000 + b'"}]}', ""),
    ],
)
def test_the_model_is_looked_up_where_no_label_names_it(models: bytes, name: str) -> None:
    server = model_server(NAMELESS, models)
    source = source_of(server.url)
    for _ in range(3):
        source.read()
    (line,) = source.lines(True)["tailscope_engine_requests_running"]
    assert re.findall(r'model="([^"]*)"', line.series) == [name]
    assert server.requests.count("/v1/models") == 1
    source.close()
    server.stop()


def test_the_users_name_for_the_model_needs_no_look_up() -> None:
    server = model_server(NAMELESS, b'{"data": [{"id": "llama"}]}')
    source = EngineSource(server.url, engines(), deadline=PATIENCE, longest=1, model="mine")
    source.read()
    assert source.model == "mine"
    assert "/v1/models" not in server.requests
    source.close()
    server.stop()
