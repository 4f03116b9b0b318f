"""What an engine's page may be like, and what must not happen then."""

from __future__ import annotations

import gc
import logging
import math
import shutil
import ssl
import subprocess
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailscope.catalogue.engines import engines
from tailscope.exporter.access import Access
from tailscope.exporter.exposition import Lines
from tailscope.exporter.fetch import MAX_BODY
from tailscope.exporter.health import SourceError
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.poller import Poller
from tailscope.exporter.reading import Key
from tailscope.exporter.seriestext import MAX_FAMILY, MAX_LINES
from tailscope.exporter.sources.engine import EngineSource
from tests import fake_engine as fakes
from tests.fake_engine import Exchange, FakeEngine, answers, capture, fake_engine
from tests.process import PATIENCE, until

VLLM = engines()["vllm"]
TOKENS = "tailscope_engine_prompt_tokens_total"
RUNNING = Key("tailscope_engine_requests_running", ("vllm", "a:1", "tiny-llama", ""))
PROMPT = Key(TOKENS, ("vllm", "a:1", "tiny-llama", ""))
QUEUE = Key("tailscope_engine_queue_seconds", ("vllm", "a:1", "tiny-llama", ""))


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with fake_engine() as running:
        yield running


def source_of(url: str, access: Access | None = None, deadline: float = PATIENCE) -> EngineSource:
    return EngineSource(url, engines(), deadline=deadline, longest=1, access=access or Access())


def tokens(lines: Lines) -> float | None:
    found = [line.value for line in lines.get(TOKENS, ())]
    return found[0] if found else None


def normaliser() -> Normaliser:
    return Normaliser(VLLM, "a:1")


# Size


def test_a_page_of_20_megabytes_and_100_000_series_is_read(engine: FakeEngine) -> None:
    filler = "".join(
        f'other_family_{i % 50}{{path="/a/rather/long/path/{i}",{"x" * 140}="{i}"}} {i}.0\n'
        for i in range(100_000)
    )
    text = capture() + filler
    assert 20e6 < len(text) < MAX_BODY
    assert text.count("\n") < MAX_LINES
    engine.behaviour = answers(text)
    source = source_of(engine.url, deadline=5 * PATIENCE)
    source.read()
    assert tokens(source.lines(True)) == 101907
    # What is not mapped takes no memory: only names are remembered.
    tracemalloc.start()
    try:
        source.read()
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 4e6
    source.close()


@pytest.fixture
def at_most(monkeypatch: pytest.MonkeyPatch) -> int:
    """A smaller limit, for a quicker test."""
    monkeypatch.setattr("tailscope.exporter.seriestext.MAX_FAMILY", 1000)
    return 1000


def test_a_family_with_too_many_series_harms_no_other(at_most: int) -> None:
    reader = normaliser()
    many = "".join(f'vllm:prompt_tokens_total{{x="{i}"}} 1\n' for i in range(at_most + 1))
    text = capture() + many
    for _ in range(2):
        reading = reader.read(text)
        assert PROMPT not in reading.numbers
        assert reading.numbers[RUNNING] == 0
        assert reading.histograms[QUEUE].counts["+Inf"] == 278
    assert reader.unmapped == {"vllm:prompt_tokens_total": f"more than {at_most} series"}


def test_a_family_whose_series_come_and_go_is_kept(at_most: int) -> None:
    reader = normaliser()
    for turn in range(4):
        text = "".join(
            f'vllm:prompt_tokens_total{{model_name="tiny-llama",x="{turn}-{i}"}} 1\n'
            for i in range(at_most // 2)
        )
        reading = reader.read(text)
        assert reading.numbers[PROMPT] == (turn + 1) * (at_most // 2)
    assert reader.unmapped == {}


def test_thousands_of_series_of_one_mapped_family_are_read() -> None:
    assert MAX_FAMILY > 900 * 21
    reader = normaliser()
    text = "".join(
        f'vllm:request_queue_time_seconds_bucket{{model_name="m{i}",le="{bound}"}} 1\n'
        for i in range(900)
        for bound in (*range(20), "+Inf")
    )
    for _ in range(2):
        assert len(reader.read(text).histograms) == 900


# Odd values and lines


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-Inf"])
def test_a_value_that_is_no_number_leaves_out_its_series_alone(odd: str) -> None:
    text = capture().replace(
        'vllm:prompt_tokens_total{engine="0",model_name="tiny-llama"} 101907.0',
        f'vllm:prompt_tokens_total{{engine="0",model_name="tiny-llama"}} {odd}',
    )
    assert odd in text
    reader = normaliser()
    for _ in range(2):
        reading = reader.read(text)
        assert PROMPT not in reading.numbers
        assert reading.histograms[QUEUE].counts["+Inf"] == 278
        assert all(map(math.isfinite, reading.numbers.values()))
    assert reader.read(capture()).numbers[PROMPT] == 101907


def test_everything_twice_counts_once() -> None:
    assert normaliser().read(capture() * 2) == normaliser().read(capture())


ODD_LINES = """\
# TYPE vllm:request_queue_time_seconds_native histogram
vllm:odd_native {count:17,sum:324789.3,schema:0,zero_threshold:1e-128,positive_spans:[0:2]}
# TYPE vllm:routing gaugehistogram
vllm:routing_bucket{gt="0",le="1"} 3
vllm:routing_bucket{gt="1",le="+Inf"} 1
vllm:routing_gcount 4
vllm:routing_gsum 7
# TYPE vllm:num_requests_running_states stateset
vllm:num_requests_running_states{state="a"} 1
# UNIT vllm:prompt_tokens tokens
{"vllm:quoted.name",x="1"} 3
vllm:prompt_tokens_total{engine="0",model_name="tiny-llama",
= 3
"""


def test_native_and_gauge_histograms_and_other_odd_lines_are_passed_over() -> None:
    reader = normaliser()
    expected = normaliser().read(capture())
    for _ in range(2):
        assert reader.read(ODD_LINES + capture() + ODD_LINES) == expected
    assert reader.unmapped.keys() == {"vllm:routing", "vllm:num_requests_running_states"}


def test_a_mapped_family_that_is_a_gauge_histogram_or_a_summary() -> None:
    reader = normaliser()
    reading = reader.read(
        "# TYPE vllm:request_queue_time_seconds gaugehistogram\n"
        'vllm:request_queue_time_seconds_bucket{le="1"} 3\n'
        "# TYPE vllm:e2e_request_latency_seconds summary\n"
        'vllm:e2e_request_latency_seconds{quantile="0.5",model_name="tiny-llama"} 3\n'
        'vllm:e2e_request_latency_seconds_sum{model_name="tiny-llama"} 30\n'
        'vllm:e2e_request_latency_seconds_count{model_name="tiny-llama"} 10\n'
    )
    assert "gaugehistogram" in reader.unmapped["vllm:request_queue_time_seconds"]
    assert QUEUE not in reading.histograms
    # A summary has a mean, and no bucket that could be wrong.
    (whole,) = reading.histograms.values()
    assert (dict(whole.counts), whole.sum) == ({"+Inf": 10}, 30)


def test_a_family_that_is_there_as_a_counter_and_as_a_gauge() -> None:
    """Older Ray gives each counter a second time, as a gauge of the same name."""
    text = (
        "# TYPE ray_vllm_prompt_tokens_total counter\nray_vllm_prompt_tokens_total {0}\n"
        "# TYPE ray_vllm_num_requests_running gauge\nray_vllm_num_requests_running 2\n"
        "# TYPE ray_vllm_prompt_tokens_total gauge\nray_vllm_prompt_tokens_total {0}\n"
    )
    reader = normaliser()
    for count in (5, 7, 9):
        numbers = reader.read(text.format(count)).numbers
        assert {key.metric: value for key, value in numbers.items()} == {
            TOKENS: count,
            RUNNING.metric: 2,
        }
    assert reader.resets == 0


def test_exemplars_on_every_bucket() -> None:
    text = "\n".join(
        f'{line} # {{trace_id="abc"}} 0.1 1700000000.0' if "_bucket{" in line else line
        for line in capture().splitlines()
    )
    assert normaliser().read(text + "\n# EOF\n") == normaliser().read(capture())


# Transport


@pytest.mark.parametrize(
    "kind", ["application/json", "text/html", "application/octet-stream", "", "image/png"]
)
def test_a_wrong_content_type_is_no_reason_to_read_nothing(engine: FakeEngine, kind: str) -> None:
    engine.behaviour = answers(capture(), kind)
    source = source_of(engine.url)
    source.read()
    assert tokens(source.lines(True)) == 101907
    source.close()


def guarded(token: str) -> fakes.Behaviour:
    def behaviour(exchange: Exchange) -> None:
        if exchange.headers.get("Authorization") == f"Bearer {token}":
            exchange.reply(capture().encode())
        else:
            exchange.reply(b'{"error":"Unauthorized"}', "application/json", 401)

    return behaviour


def test_a_bearer_token_of_a_file_is_sent_renewed_and_never_told(
    engine: FakeEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "token"
    path.write_text("hush-1\n")
    engine.behaviour = guarded("hush-1")
    source = source_of(engine.url, Access(token_file=path))
    source.read()
    engine.behaviour = guarded("hush-2")
    with pytest.raises(SourceError, match="wants a token") as caught:
        source.read()
    assert caught.value.reason == "http_401"
    path.write_text("hush-2")
    source.read()
    source.close()
    assert "hush" not in caplog.text + str(caught.value)


def test_a_bearer_token_of_a_variable(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_TOKEN", "hush")
    engine.behaviour = guarded("hush")
    source = source_of(engine.url, Access(token_env="ENGINE_TOKEN"))
    source.read()
    monkeypatch.delenv("ENGINE_TOKEN")
    with pytest.raises(SourceError, match="the variable ENGINE_TOKEN holds no bearer token"):
        source.read()
    source.close()


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "h\u00fcsh"])
def test_a_token_file_without_a_token(engine: FakeEngine, tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    source = source_of(engine.url, Access(token_file=path))
    with pytest.raises(SourceError, match="holds no bearer token") as caught:
        source.read()
    assert caught.value.reason == "token"
    assert text == "" or text not in str(caught.value)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        source.read()
    source.close()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_tls_with_an_authority_of_its_own_and_a_token(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with fake_engine(guarded("hush")) as engine:
        engine.secure(context)
        url = f"https://127.0.0.1:{engine.port}"
        token = tmp_path / "token"
        token.write_text("hush")
        source = source_of(url, Access(token, ca_file=certificate))
        source.read()
        assert tokens(source.lines(True)) == 101907
        source.close()
        stranger = source_of(url, Access(token))
        with pytest.raises(SourceError, match="certificate is not accepted") as caught:
            stranger.read()
        assert caught.value.reason == "tls"
        stranger.close()


# One engine among several


def test_a_model_that_loads_is_one_line_and_then_another(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine.behaviour = fakes.loading()
    poller = Poller(source_of(engine.url), 0.02, 5)
    poller.start()
    until(lambda: len(engine.requests) > 5, "it asks again")
    engine.behaviour = answers(capture())
    until(lambda: poller.health.state.up, "it is up")
    seen = len(engine.requests)
    until(lambda: len(engine.requests) > seen + 5)
    poller.stop()
    poller.join(PATIENCE)
    told = [message for message in caplog.messages if engine.address in message]
    assert len(told) == 2
    assert "http_503" in told[0]
    assert "may still load its model" in told[0]
    assert told[1].endswith(f"vLLM answers at {engine.url}/metrics")


def test_a_slow_body_keeps_no_other_engine_waiting(engine: FakeEngine) -> None:
    with fake_engine(fakes.drips(capture())) as slow:
        pollers = [Poller(source_of(one.url, deadline=1), 0.05, 1) for one in (slow, engine)]
        for poller in pollers:
            poller.start()
        until(lambda: tokens(pollers[1].lines()[0]) == 101907)
        seen = len(engine.requests)
        until(lambda: len(engine.requests) > seen + 10)
        until(lambda: pollers[0].health.state.reason == "timeout")
        assert tokens(pollers[0].lines()[0]) is None
        until(lambda: tokens(pollers[1].lines()[0]) == 101907)
        for poller in pollers:
            poller.stop()
            poller.join(PATIENCE)


# Lists that every read empties


def drained(pages: dict[str, list[bytes]]) -> fakes.Behaviour:
    lock = threading.Lock()

    def behaviour(exchange: Exchange) -> None:
        with lock:
            left = pages.get(exchange.path)
            body = b"[]" if not left else left.pop(0)
        status = 404 if left is None else 200
        exchange.reply(body, "application/json", status)

    return behaviour


ROW = '{"iter": %d, "iterLatencyMS": 5, "numActiveRequests": %d, "numCompletedRequests": %d}'
TIMES = (
    '{"request_id": 1, "perf_metrics": {"timing_metrics": {"arrival_time": 10.0, '
    '"first_scheduled_time": 10.5, "first_token_time": 11.0, "last_token_time": %s}}}'
)


def test_what_every_read_empties_is_added_up_by_its_only_reader(engine: FakeEngine) -> None:
    pages = {
        "/metrics": [
            f"[{ROW % (1, 4, 2)}, {ROW % (2, 3, 1)}]".encode(),
            b"[]",
            f"[{ROW % (3, 5, 4)}]".encode(),
        ],
        "/perf_metrics": [
            f"[{TIMES % 13.0}, {TIMES % 14.0}]".encode(),
            b"[]",
            # A clock that went back gives no time, and no wrong one.
            f"[{TIMES % 12.0}, {TIMES % 9.0}]".encode(),
        ],
    }
    engine.behaviour = drained(pages)
    source = EngineSource(
        engine.url, engines(), engine=engines()["trtllm"], deadline=PATIENCE, longest=1, model="m"
    )

    def read() -> dict[str, float]:
        source.read()
        return {
            line.series.partition("{")[0]: line.value
            for lines in source.lines(True).values()
            for line in lines
        }

    finished = "tailscope_engine_requests_finished_total"
    decode = "tailscope_engine_decode_seconds"
    running = "tailscope_engine_requests_running"
    first = read()
    assert (first[finished], first[f"{decode}_sum"], first[f"{decode}_count"]) == (3, 5, 2)
    assert first[running] == 3
    second = read()
    assert (second[finished], second[f"{decode}_sum"], second[f"{decode}_count"]) == (3, 5, 2)
    # Nothing was run since, so nothing is known of now.
    assert running not in second
    third = read()
    assert (third[finished], third[f"{decode}_sum"], third[f"{decode}_count"]) == (7, 6, 3)
    assert third[running] == 5
    assert third["tailscope_source_resets_total"] == 0
    assert engine.requests.count("/metrics") == engine.requests.count("/perf_metrics") == 3
    source.close()


@pytest.mark.parametrize("path", ["", "/metrics"])
def test_a_drained_list_is_read_once_a_time_when_the_engine_was_found_by_it(
    engine: FakeEngine, path: str
) -> None:
    engine.behaviour = drained(
        {"/metrics": [b"[%s]" % (ROW % (i, 1, 1)).encode() for i in range(3)]}
    )
    source = source_of(engine.url + path)
    for _ in range(3):
        shown = path or "/prometheus/metrics"
        assert source.read() == f"TensorRT-LLM answers at {engine.url}{shown}"
    # What it was found by is read as well, not thrown away.
    assert engine.requests.count("/metrics") == 3
    assert engine.requests.count("/prometheus/metrics") == (0 if path else 1)
    (finished,) = source.lines(True)["tailscope_engine_requests_finished_total"]
    assert finished.value == 3
    source.close()


def test_a_document_that_is_not_there_is_not_asked_for_each_time(engine: FakeEngine) -> None:
    pages = {"/metrics": [f"[{ROW % (i, 1, 1)}]".encode() for i in range(9)]}
    engine.behaviour = drained(pages)
    source = EngineSource(
        engine.url, engines(), engine=engines()["trtllm"], deadline=PATIENCE, longest=1, model="m"
    )
    for _ in range(4):
        source.read()
    assert engine.requests.count("/perf_metrics") == 1
    source.close()
