"""Pages that differ from those that were recorded: other names, ranks, types and prefixes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tailscope.catalogue.engines import engines
from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import SourceError
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.poller import Poller
from tailscope.exporter.recognise import recognise
from tailscope.exporter.sources.engine import EngineSource
from tailscope.exporter.targets import parse_target
from tests.captures import page_of
from tests.fake_engine import Exchange, FakeEngine, answers, fake_engine
from tests.process import PATIENCE, until

JSON = "application/json"
LATE = 0.4
"""Seconds that a slow server takes at least."""


def numbers(engine: str, text: str) -> dict[tuple[str, ...], float]:
    """What is read of a page: metric, rank and further labels to the number."""
    reading = Normaliser(engines()[engine], "a:1").read(text)
    return {
        (key.metric.removeprefix("tailscope_engine_"), *key.values[3:]): value
        for key, value in reading.numbers.items()
    }


def name_of(text: str) -> str | None:
    engine = recognise(text, engines().values())
    return engine.name if engine else None


@contextmanager
def read_from(
    pages: Mapping[str, list[tuple[bytes, str]]], told: str = ""
) -> Iterator[EngineSource]:
    """A source of a server that answers each path with one body after the other."""

    def behaviour(exchange: Exchange) -> None:
        bodies = pages.get(exchange.path)
        if not bodies:
            exchange.reply(b'{"detail":"Not Found"}', JSON, 404)
            return
        body, kind = bodies.pop(0) if len(bodies) > 1 else bodies[0]
        exchange.reply(body, kind, 200)

    server = FakeEngine(behaviour)
    engine = engines()[told] if told else None
    source = EngineSource(server.url, engines(), engine=engine, deadline=PATIENCE, longest=10)
    try:
        yield source
    finally:
        source.close()
        server.stop()


# Types


def test_ray_gives_each_counter_as_a_gauge_too_and_it_counts_once() -> None:
    text = (
        "# TYPE ray_vllm_prompt_tokens_total counter\n"
        'ray_vllm_prompt_tokens_total{WorkerId="a",engine="0",model_name="m"} 31\n'
        "# TYPE ray_vllm_prompt_tokens gauge\n"
        'ray_vllm_prompt_tokens{WorkerId="a",engine="0",model_name="m"} 31\n'
    )
    reader = Normaliser(engines()["vllm"], "a:1")
    (number,) = reader.read(text).numbers.values()
    assert number == 31
    assert reader.unmapped == {}
    # Before Ray 2.10 there was the gauge alone.
    old = text.partition("# TYPE ray_vllm_prompt_tokens gauge")[2].partition("\n")[2]
    assert numbers("vllm", "# TYPE ray_vllm_prompt_tokens gauge\n" + old) == {
        ("prompt_tokens_total", ""): 31
    }


def test_a_gauge_that_is_declared_a_counter_is_a_gauge() -> None:
    reader = Normaliser(engines()["vllm"], "a:1")
    for running in (9, 2):
        text = f"# TYPE vllm:num_requests_running counter\nvllm:num_requests_running {running}\n"
        assert list(reader.read(text).numbers.values()) == [running]
    assert reader.resets == 0


@pytest.mark.parametrize(
    ("family", "metric", "numbers_of"),
    [
        ("num_requests_running", "requests_running", {-1: None, 0: 0, 3: 3}),
        ("kv_cache_usage_perc", "kv_cache_usage_ratio", {-1: None, 0.5: 0.5, 1.02: 1, 45: None}),
    ],
)
def test_what_cannot_be_is_left_out(
    family: str, metric: str, numbers_of: Mapping[float, float | None]
) -> None:
    for raw, expected in numbers_of.items():
        page = f"vllm:{family} {raw}\nvllm:num_requests_waiting 1\n"
        assert numbers("vllm", page).get((metric, "")) == expected
    # What one rank cannot be is not added to the others.
    page = f'vllm:{family}{{engine="0"}} -7\nvllm:{family}{{engine="1"}} 0.5\n'
    assert numbers("vllm", page) == {(metric, "1"): 0.5}


@pytest.mark.parametrize(("used", "ratio"), [(50, 0.5), (101, 1.0), (120, None)])
def test_a_share_that_is_computed_cannot_be_more_than_all(used: int, ratio: float | None) -> None:
    page = f"trtllm_kv_cache_used_blocks {used}\ntrtllm_kv_cache_max_blocks 100\n"
    assert numbers("trtllm", page).get(("kv_cache_usage_ratio", "")) == ratio


# Who it is


@pytest.mark.parametrize(("more", "name"), [(',engine_type="undefined"', "trtllm"), ("", "nim")])
def test_names_without_a_prefix_are_of_nim_or_of_an_older_trtllm(more: str, name: str) -> None:
    page = "".join(
        f'{family}{{model_name="m"{more}}} 2\n'
        for family in ("num_requests_running", "num_requests_waiting", "request_success_total")
    )
    assert name_of(page) == name
    assert numbers(name, page)["requests_running", ""] == 2


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("dynamo_frontend_disconnected_clients 0\n", "NVIDIA Dynamo frontend"),
        ('litellm_deployment_state{litellm_model_name="a"} 0\npython_info 1\n', "LiteLLM"),
    ],
)
def test_a_gateway_before_its_first_request_is_up_and_says_nothing(page: str, title: str) -> None:
    with read_from({"/metrics": [(page.encode(), "text/plain")]}) as source:
        assert source.read().startswith(f"{title} answers")
        found = page_of(source)
    assert "tailscope_engine_up{" in found
    assert "tailscope_engine_requests" not in found and "tailscope_gateway_" not in found


def test_an_engine_whose_metrics_are_off_is_not_taken_for_an_idle_one() -> None:
    pages = {"/metrics": [(b"python_info 1\n", "text/plain")]}
    with read_from(pages, "vllm") as source, pytest.raises(SourceError, match="switched on"):
        source.read()


# SGLang


def test_sglang_requests_that_wait_for_another_server_or_for_room_wait() -> None:
    page = "".join(
        f'sglang:{family}{{engine_type="decode",dp_rank="{rank}"}} {value + rank}\n'
        for rank in (0, 1)
        for family, value in {
            "num_queue_reqs": 1,
            "num_decode_prealloc_queue_reqs": 20,
            "num_decode_transfer_queue_reqs": 300,
            # Its prefill is done; it waits for no place.
            "num_prefill_inflight_queue_reqs": 4000,
        }.items()
    )
    found = numbers("sglang", page)
    assert found["requests_waiting", "0"] == 321
    assert found["requests_waiting", "1"] == 324
    assert found["requests_waiting_by_reason", "1", "prefill_inflight"] == 4001


def test_sglang_usage_and_capacity_of_a_rank_are_not_added_up_over_priorities() -> None:
    page = "".join(
        f'sglang:{family}{{priority="{priority}",tp_rank="{rank}"}} {value}\n'
        for rank in (0, 1)
        for family, value in {"token_usage": 0.5, "max_total_num_tokens": 1000}.items()
        for priority in ("", "0", "1")
    )
    assert numbers("sglang", page) == {
        ("kv_cache_usage_ratio", ""): 0.5,
        ("kv_cache_capacity_tokens", ""): 1000,
    }


def test_sglang_total_of_retractions_that_is_declared_a_gauge() -> None:
    page = "# TYPE sglang:total_retracted_reqs gauge\nsglang:total_retracted_reqs 7\n"
    assert numbers("sglang", page) == {("preemptions_total", ""): 7}


# LMDeploy


def test_lmdeploy_requests_before_the_ranks_are_of_no_rank() -> None:
    page = 'lmdeploy:num_api_requests_waiting{model_name="m"} 3\n' + "".join(
        f'lmdeploy:num_requests_waiting{{engine="{rank}",model_name="m"}} {rank + 1}\n'
        for rank in (0, 1)
    )
    assert numbers("lmdeploy", page) == {
        ("requests_waiting", "0"): 1,
        ("requests_waiting", "1"): 2,
        ("requests_waiting", ""): 3,
    }


# TensorRT-LLM


def test_trtllm_rows_by_which_it_is_found_count() -> None:
    """The list is emptied by the read that tells who it is."""

    def rows(*ended: int) -> tuple[bytes, str]:
        found = [{"iter": 1, "iterLatencyMS": 2.5, "numCompletedRequests": one} for one in ended]
        return json.dumps(found).encode(), JSON

    with read_from({"/metrics": [rows(2, 3), rows(), rows(4)]}) as source:
        for total in (5, 5, 9):
            source.read()
            (line,) = source.lines(True)["tailscope_engine_requests_finished_total"]
            assert line.value == total


# Dynamo


def test_dynamo_worker_ranks_are_told_apart() -> None:
    page = "".join(
        f'dynamo_component_gpu_cache_usage_percent{{model="m",dp_rank="{rank}"}} 0.{rank + 2}\n'
        f'sglang:num_running_reqs{{model_name="m",dp_rank="{rank}"}} {rank}\n'
        for rank in (0, 1)
    )
    found = numbers("dynamo_worker", page)
    assert [found["kv_cache_usage_ratio", rank] for rank in "01"] == [0.2, 0.3]
    assert [found["requests_running", rank] for rank in "01"] == [0, 1]


def test_dynamo_under_a_prefix_of_its_users_own() -> None:
    page = (
        "# TYPE acme_inflight_requests_total gauge\n"
        'acme_inflight_requests_total{model="m"} 7\nacme_queued_requests{model="m"} 2\n'
        'acme_requests_started_total{model="m"} 9\n'
    )
    with fake_engine(answers(page)) as server:
        target = parse_target(f"{{url: {server.url}, engine: dynamo, prefix: acme_}}")
        source = EngineSource(
            server.url, engines(), engine=target.engine, deadline=PATIENCE, longest=1
        )
        source.read()
        found = page_of(source)
        source.close()
    assert 'tailscope_engine_requests_running{engine="dynamo"' in found
    assert f'tailscope_source_unmapped_families{{source="engine:{server.address}"}} 0.0' in found
    (running,) = [line for line in found.splitlines() if "requests_running{" in line]
    assert running.endswith(" 5.0")


# Slow servers


def late(gate: threading.Event) -> FakeEngine:
    """A server that answers when a gate is open."""

    def behaviour(exchange: Exchange) -> None:
        gate.wait(PATIENCE)
        exchange.reply(b"vllm:num_requests_running 3\n", "text/plain", 200)

    return FakeEngine(behaviour)


def test_a_server_that_does_not_answer_is_given_more_time() -> None:
    gate = threading.Event()
    server = late(gate)
    source = EngineSource(server.url, engines(), deadline=0.2, longest=0.1)
    for deadline in (0.4, 0.8):
        with pytest.raises(SourceError) as caught:
            source.read()
        assert (caught.value.reason, source.deadline) == ("timeout", deadline)
    gate.set()
    source.close()
    server.stop()


def test_a_server_that_answers_late_is_given_the_time_that_it_took() -> None:
    gate = threading.Event()
    server = late(gate)
    source = EngineSource(server.url, engines(), deadline=0.2, longest=0.1)
    source.deadline = PATIENCE
    opener = threading.Thread(target=_open_late, args=(gate, server))
    opener.start()
    began = time.monotonic()
    source.read()
    took = time.monotonic() - began
    # Three times what it took.
    assert 3 * LATE <= source.deadline <= max(0.2, min(3 * took, 30))
    opener.join()
    source.close()
    server.stop()


def _open_late(gate: threading.Event, server: FakeEngine) -> None:
    until(lambda: server.requests)
    time.sleep(LATE)  # no wait for something: it is what the server takes at least
    gate.set()


class _Slow:
    """A source whose read takes ten of its intervals, by a clock that it turns."""

    name = "slow"

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def read(self) -> str:
        self.now += 10.0
        return "read"

    def lines(self, fresh: bool) -> Lines:
        return {"fresh": []} if fresh else {}

    def close(self) -> None:
        pass


def test_what_took_long_to_read_holds_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _Slow()
    monkeypatch.setattr("tailscope.exporter.poller.time", source)
    poller = Poller(source, interval=1.0, deadline=2.0)
    poller._read()
    source.now += 29
    assert "fresh" in poller.lines()[0]
    source.now += 2
    assert "fresh" not in poller.lines()[0]


def test_sglang_queue_whose_name_was_misspelt_until_0_4_10() -> None:
    text = (
        'sglang:num_queue_reqs{model_name="m"} 1\n'
        'sglang:num_prefill_infight_queue_reqs{model_name="m"} 4\n'
    )
    read = numbers("sglang", text)
    assert read["requests_waiting_by_reason", "", "prefill_inflight"] == 4
    # Their prefill is done: they wait for no place.
    assert read["requests_waiting", ""] == 1


@pytest.mark.parametrize(
    ("engine", "family"),
    [
        ("dynamo_worker", "trtllm_num_aborted_requests_total"),
        ("dynamo_worker", "trtllm_kv_transfer_bytes"),
        ("litellm", "litellm_not_a_premium_user_metric_total"),
        ("sglang", "sglang:diffusion_num_queue_reqs"),
        ("vllm", "lmcache:num_hit_tokens_total"),
        ("vllm", "nv_inference_request_success"),
        ("vllm", "vllm:time_per_prefill_token_request_seconds_count"),
    ],
)
def test_families_of_other_releases_and_neighbours_are_left_out_with_a_reason(
    engine: str, family: str
) -> None:
    reader = Normaliser(engines()[engine], "a:1")
    assert not reader.read(f'{family}{{model_name="m"}} 1\n').numbers
    assert reader.unmapped == {}


def test_a_trtllm_model_beside_vllm_in_one_triton_is_named_as_left_out() -> None:
    reader = Normaliser(engines()["vllm"], "a:1")
    reader.read('nv_trt_llm_request_metrics{request_type="waiting",model="m"} 1\n')
    assert [*reader.unmapped] == ["nv_trt_llm_request_metrics"]
