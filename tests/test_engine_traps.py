"""What is easy to read wrongly in each engine's page, and what must come of it."""

from __future__ import annotations

import json
import re

import pytest

from tailscope.catalogue import Engine
from tailscope.catalogue.engines import engines
from tailscope.exporter.documents import DocumentReader, rows
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.recognise import recognise
from tailscope.exporter.sources.engine import EngineSource
from tests.captures import FOLDER, lines, page_of
from tests.enginereads import SERVER, changed, key, names, read, text_of
from tests.fake_engine import Exchange, FakeEngine
from tests.process import PATIENCE

# llama.cpp


def test_llamacpp_rates_come_from_counters_whoever_scraped_before() -> None:
    """Its two throughput gauges are 0 for the second of two scrapers."""
    text = text_of("llamacpp", "b11549-busy")
    after_another = changed(
        text, {"llamacpp:prompt_tokens_seconds": 0, "llamacpp:predicted_tokens_seconds": 0}
    )
    assert after_another != text
    assert lines(read("llamacpp", after_another)) == lines(read("llamacpp", text))


def test_llamacpp_prompt_tokens_with_and_without_the_cache() -> None:
    reading = read("llamacpp", text_of("llamacpp", "b11549-busy"))
    assert reading.numbers[key("llamacpp", "prompt_tokens_total")] == 823 + 462
    by_source = "prompt_tokens_by_source_total"
    assert reading.numbers[key("llamacpp", by_source, "", "local_compute")] == 823
    assert reading.numbers[key("llamacpp", by_source, "", "local_cache_hit")] == 462
    # Builds that do not count cached tokens cannot tell how many there were.
    old = read("llamacpp", text_of("llamacpp", "b4500"))
    assert old.numbers[key("llamacpp", by_source, "", "local_compute")] == 8500
    assert not {"prompt_tokens_total", "prefix_cache_query_tokens_total"} & names(old)


def test_llamacpp_high_water_mark_is_no_counter() -> None:
    """It is declared one; that it stays, or falls after a restart, means nothing."""
    text = text_of("llamacpp", "b11549-busy")
    reader = Normaliser(engines()["llamacpp"], SERVER)
    before = lines(reader.read(text))
    assert lines(reader.read(changed(text, {"llamacpp:n_tokens_max": 3}))) == before
    assert reader.resets == 0


def slots(rows_of: list[dict[str, object]]) -> dict[str, float]:
    document = engines()["llamacpp"].documents[0]
    found = rows(document, json.dumps(rows_of).encode())
    assert found is not None
    text = DocumentReader(document, "").text(found)
    return {name: float(value) for name, value in (line.split() for line in text.splitlines())}


def slot(busy: bool, **more: object) -> dict[str, object]:
    return {"id": 0, "n_ctx": 2048, "is_processing": busy, **more}


def test_llamacpp_slots_that_are_idle_keep_the_length_of_their_last_request() -> None:
    assert slots([slot(True, n_prompt_tokens=301), slot(False, n_prompt_tokens=1500)]) == {
        "slots_context": 4096,
        "slots_tokens": 301,
    }
    assert slots([slot(False), slot(False)]) == {"slots_context": 4096, "slots_tokens": 0}


def test_llamacpp_slots_of_builds_without_lengths_give_none() -> None:
    assert slots([slot(True), slot(False)]) == {"slots_context": 4096}


def test_llamacpp_slots_count_generated_tokens_once() -> None:
    """From the recording: 291 prompt tokens and 20 generated are a sequence of 311."""
    found = json.loads((FOLDER / "llamacpp/b11549-busy.slots.json").read_text(encoding="utf-8"))
    for one in found:
        prompt = one["n_prompt_tokens_processed"] + one["n_prompt_tokens_cache"]
        decoded = one["next_token"][0]["n_decoded"]
        assert one["n_prompt_tokens"] == prompt + decoded
    assert slots(found)["slots_tokens"] == 311 + 292


# TGI


def test_tgi_counters_have_no_total_and_one_is_named_like_part_of_a_histogram() -> None:
    text = text_of("tgi", "3.3")
    reading = read("tgi", text)
    finished = "requests_finished_total"
    assert reading.numbers[key("tgi", finished, "", "success")] == 40
    assert reading.numbers[key("tgi", finished, "", "overloaded")] == 3
    # Batches of prefill and of decode are steps, both.
    assert reading.numbers[key("tgi", "steps_total")] == 38 + 900
    assert reading.histograms[key("tgi", "request_seconds")].counts["+Inf"] == 40
    # A collector in between adds what the format wants.
    other = re.sub(
        r"tgi_(request_(?:success|failure|count)|batch_inference_count)\b", r"tgi_\1_total", text
    )
    assert "\ntgi_request_success_total 40" in other
    assert lines(read("tgi", other)) == lines(reading)


def test_tgi_long_requests_stay_above_the_last_bound() -> None:
    text = changed(
        text_of("tgi", "3.3"),
        {
            "tgi_request_duration_count": 45,
            re.escape('tgi_request_duration_bucket{le="+Inf"}'): 45,
        },
    )
    request = read("tgi", text).histograms[key("tgi", "request_seconds")]
    *bounds, last = request.counts
    assert last == "+Inf"
    assert float(bounds[-1]) == pytest.approx(145.6, abs=0.1)
    assert (request.counts[bounds[-1]], request.counts[last]) == (40, 45)


def test_tgi_tokens_are_the_sums_of_its_histograms() -> None:
    reading = read("tgi", text_of("tgi", "3.3"))
    for total, histogram in (
        ("prompt_tokens_total", "request_input_tokens"),
        ("generation_tokens_total", "request_output_tokens"),
    ):
        assert reading.numbers[key("tgi", total)] == reading.histograms[key("tgi", histogram)].sum


# Triton


def test_triton_milliseconds_and_microseconds_become_seconds() -> None:
    text = text_of("triton", "25.06")
    reading = read("triton", text)
    first = reading.histograms[key("triton", "time_to_first_token_seconds", "tensorrt_llm")]
    assert [float(bound) for bound in first.counts][:-1] == [0.1, 0.5, 2, 5]
    assert first.sum == pytest.approx(
        value(text, "nv_inference_first_response_histogram_ms_sum") / 1e3
    )
    request = reading.histograms[key("triton", "request_seconds", "tensorrt_llm")]
    assert dict(request.counts) == {"+Inf": 50}
    assert request.sum == pytest.approx(151.234567)


def value(text: str, family: str) -> float:
    found = re.search(rf"^{family}(?:{{.*}})? (\S+)$", text, re.M)
    assert found is not None
    return float(found[1])


def test_triton_own_counters_that_stay_0_are_no_requests() -> None:
    assert not {"requests_finished_total", "queue_seconds"} & names(
        read("triton", text_of("triton", "25.06"))
    )


def test_triton_older_releases_lack_waiting_and_fraction() -> None:
    reading = read("triton", text_of("triton", "23.12"))
    assert "requests_waiting" not in names(reading)
    assert reading.numbers[key("triton", "kv_cache_usage_ratio", "tensorrt_llm")] == 3120 / 6400
    capacity = reading.numbers[key("triton", "kv_cache_capacity_tokens", "tensorrt_llm")]
    assert capacity == 6400 * 64


def test_triton_fraction_comes_before_what_can_be_computed() -> None:
    text = re.sub(r'(="fraction".*) \S+$', r"\1 0.25", text_of("triton", "25.06"), flags=re.M)
    assert read("triton", text).numbers[key("triton", "kv_cache_usage_ratio", "tensorrt_llm")] == (
        0.25
    )


def test_triton_iterations_are_counted_over_a_restart() -> None:
    """They are declared a gauge."""
    text = text_of("triton", "25.06")
    reader = Normaliser(engines()["triton"], SERVER)
    reader.read(text)
    again = re.sub(r'(="iteration_counter".*) \d+$', r"\1 7", text, flags=re.M)
    steps = key("triton", "steps_total", "tensorrt_llm")
    assert reader.read(again).numbers[steps] == 48211 + 7
    assert reader.resets == 1


# LMDeploy


def test_lmdeploy_counts_that_are_gauges_and_a_histogram_named_total() -> None:
    reading = read("lmdeploy", text_of("lmdeploy", "0.18"))
    # Of each output of each request: no batch step can be seen in it.
    assert "step_tokens" not in names(reading)
    finished = [
        number
        for one, number in reading.numbers.items()
        if one.metric == "tailscope_engine_requests_finished_total"
    ]
    assert sum(finished) == 44


def test_lmdeploy_requests_wait_in_the_engine_and_before_it() -> None:
    text = text_of("lmdeploy", "0.18")
    waiting = key("lmdeploy", "requests_waiting", "internlm3-8b")
    assert read("lmdeploy", text).numbers[waiting] == 2 + 4
    older = re.sub(r"^lmdeploy:num_api_requests_waiting.*\n", "", text, flags=re.M)
    assert read("lmdeploy", older).numbers[waiting] == 2


def test_lmdeploy_ranks_are_told_apart() -> None:
    first = text_of("lmdeploy", "0.18")
    second = re.sub(r"^(?!lmdeploy:.*engine=).*\n", "", first, flags=re.M)
    second = second.replace('engine="0"', 'engine="1"')
    reading = read("lmdeploy", first + second)
    for rank in "01":
        running = key("lmdeploy", "requests_running", "internlm3-8b", rank=rank)
        waiting = key("lmdeploy", "requests_waiting", "internlm3-8b", rank=rank)
        assert (reading.numbers[running], reading.numbers[waiting]) == (5, 6)


# Dynamo


def test_dynamo_in_flight_has_those_that_wait_in_it() -> None:
    text = text_of("dynamo", "0.5")
    assert "# TYPE dynamo_frontend_inflight_requests_total gauge" in text
    model = "qwen/qwen3-0.6b"
    reading = read("dynamo", text)
    assert reading.numbers[key("dynamo", "requests_running", model)] == 7 - 2
    assert reading.numbers[key("dynamo", "requests_waiting", model)] == 2
    # Two gauges that were not set at the same moment.
    text = re.sub(r"(inflight_requests_total\{.*\}) 7", r"\1 1", text)
    assert read("dynamo", text).numbers[key("dynamo", "requests_running", model)] == 0


def test_dynamo_gauge_that_ends_in_total_is_no_counter() -> None:
    reader = Normaliser(engines()["dynamo"], SERVER)
    text = text_of("dynamo", "0.5")
    reader.read(text)
    reading = reader.read(re.sub(r"(inflight_requests_total\{.*\}) 7", r"\1 4", text))
    assert reading.numbers[key("dynamo", "requests_running", "qwen/qwen3-0.6b")] == 2
    assert reader.resets == 0


def test_dynamo_releases_without_a_queue_do_not_say_what_runs() -> None:
    assert "requests_running" not in names(read("dynamo", text_of("dynamo", "0.3")))


def test_dynamo_requests_for_no_model_are_not_those_of_the_only_one() -> None:
    reading = read("dynamo", text_of("dynamo", "1.6.1"))
    assert reading.histograms[key("dynamo", "request_seconds", "tiny")].counts["+Inf"] == 40
    assert reading.histograms[key("dynamo", "request_seconds", "unknown_model")].counts["+Inf"] == 1


def test_dynamo_worker_gives_its_engines_word_and_each_once() -> None:
    """The page has the usage under vLLM's new and old name; requests also of the runtime."""
    text = text_of("dynamo_worker", "1.6.1")
    assert "vllm:gpu_cache_usage_perc" in text and "vllm:kv_cache_usage_perc" in text
    reading = read("dynamo_worker", text)
    assert reading.numbers[key("dynamo_worker", "requests_running", "tiny")] == 5
    usage = reading.numbers[key("dynamo_worker", "kv_cache_usage_ratio", "tiny")]
    assert usage == pytest.approx(15 / 16384)


def test_dynamo_percent_is_a_ratio() -> None:
    reading = read("dynamo_worker", text_of("dynamo_worker", "0.7-sglang"))
    assert 0.494 in [
        number
        for one, number in reading.numbers.items()
        if one.metric == "tailscope_engine_kv_cache_usage_ratio"
    ]


@pytest.mark.parametrize("name", ["dynamo", "dynamo_worker"])
def test_dynamo_is_recognised_though_its_page_has_other_engines_families(name: str) -> None:
    text = text_of(name, "1.6.1")
    found = recognise(text_of("vllm", "0.32") + text, engines().values())
    assert found is engines()[name]


def test_dynamo_before_its_first_request_is_known_and_read_from_the_first_on() -> None:
    """The page of an idle frontend has nothing to map, and a family that workers have too."""
    idle = (
        "# TYPE dynamo_frontend_disconnected_clients gauge\n"
        "dynamo_frontend_disconnected_clients 0\n"
        'dynamo_component_uptime_seconds{worker_id="e7"} 4.5\n'
    )
    assert recognise(idle, engines().values()) is engines()["dynamo"]


def test_a_page_that_was_taken_for_another_engines_is_looked_at_again() -> None:
    pages = iter(["dynamo_component_uptime_seconds 4.5\n", text_of("dynamo", "1.6.1")])

    def behaviour(exchange: Exchange) -> None:
        exchange.reply(next(pages).encode(), "text/plain; version=0.0.4", 200)

    engine = FakeEngine(behaviour)
    source = EngineSource(engine.url, engines(), deadline=PATIENCE, longest=1)
    try:
        assert source.read().startswith("NVIDIA Dynamo worker answers")
        assert source.read().startswith("NVIDIA Dynamo frontend answers")
        assert "tailscope_engine_requests_running{" in page_of(source)
    finally:
        source.close()
        engine.stop()


# All of them


@pytest.mark.parametrize("engine", engines().values(), ids=engines())
def test_an_idle_engine_of_another_maker_is_not_taken_for_it(engine: Engine) -> None:
    assert recognise("node_load1 0.3\nhttp_requests_total 5\nup 1\n", [engine]) is None
