from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tailscope.catalogue import Kind, Upstream
from tailscope.catalogue.engines import engines
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.reading import Key
from tailscope.exporter.recognise import recognise
from tests.captures import lines
from tests.fake_engine import CAPTURES, capture
from tests.vllmpages import SCRAPES, SERVER, VLLM, key, normaliser, read

# Captures


@pytest.mark.parametrize("path", SCRAPES, ids=lambda path: path.stem)
def test_every_family_of_a_capture_is_mapped_or_ignored(path: Path) -> None:
    reader = normaliser()
    text = path.read_text(encoding="utf-8")
    reader.read(text)
    assert reader.unmapped == {}
    # And so without a single declaration of a type.
    reader = normaliser()
    reader.read(re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    assert reader.unmapped == {}


def test_every_family_that_vllm_was_ever_seen_with_is_mapped_or_ignored() -> None:
    """Nine runs with other options: two ranks, two API servers, LoRA, admission limits."""
    seen: Mapping[str, str | None] = json.loads((CAPTURES / "0.32-families.json").read_text())
    assert len(seen) > 90
    text = "".join(
        f"# TYPE {name} {kind}\n{name}{'_bucket' if kind == 'histogram' else ''}"
        '{le="+Inf",engine="0",model_name="m"} 1\n'
        for name, kind in seen.items()
        if kind is not None
    )
    reader = normaliser()
    reader.read(text)
    assert reader.unmapped == {}


def test_capture_numbers_by_hand() -> None:
    reading = read(capture())
    assert reading.numbers[key("prompt_tokens_total")] == 101907
    assert reading.numbers[key("generation_tokens_total")] == 9125
    assert reading.numbers[key("prefix_cache_hit_tokens_total")] == 40832
    assert reading.numbers[key("requests_finished_total", "length")] == 278
    # 341 blocks of 128 tokens; the family has no model, and the server has just one.
    assert reading.numbers[key("kv_cache_capacity_tokens")] == 43648
    assert reading.numbers[key("sleeping")] == 0
    steps = reading.histograms[key("step_tokens")]
    assert (steps.counts["+Inf"], steps.sum) == (2370, 70200)
    queue = reading.histograms[key("queue_seconds")]
    assert queue.counts["0.3"] < queue.counts["+Inf"] == 278
    assert list(queue.counts)[:3] == ["0.3", "0.5", "0.8"]


def test_own_bounds_are_kept() -> None:
    queue = read(capture("0.32-all-options")).histograms[key("queue_seconds")]
    assert list(map(float, queue.counts))[:-1] == [0.005 * 2**k for k in (0, 1, 2)] + [
        *(0.05 * 2**k for k in range(11)),
    ]


def test_a_step_histogram_that_is_declared_a_counter() -> None:
    text = capture().replace(
        "# TYPE vllm:iteration_tokens_total histogram", "# TYPE vllm:iteration_tokens_total counter"
    )
    reader = normaliser()
    assert reader.read(text).histograms[key("step_tokens")].counts["+Inf"] == 2370
    assert reader.unmapped == {}


# Names in the wild


def old_names(text: str) -> str:
    """The scrape as vLLM of 2024 would write it: other names, no engine, and no newer families."""
    for new, old in {
        "kv_cache_usage_perc": "gpu_cache_usage_perc",
        "prefix_cache_queries": "gpu_prefix_cache_queries",
        "prefix_cache_hits": "gpu_prefix_cache_hits",
        "inter_token_latency_seconds": "time_per_output_token_seconds",
    }.items():
        text = re.sub(rf"vllm:{new}\b", f"vllm:{old}", text)
        text = re.sub(rf"vllm:{new}_", f"vllm:{old}_", text)
    return text.replace('engine="0",', "")


def test_old_names_give_the_same_reading() -> None:
    text = old_names(capture())
    assert "vllm:gpu_cache_usage_perc{" in text
    assert lines(read(text)) == lines(read(capture()))


@pytest.mark.parametrize("prefix", ["vllm_", "ray_vllm:", "ray_vllm_"])
def test_every_spelling_of_the_prefix(prefix: str) -> None:
    text = capture().replace("vllm:", prefix)
    reader = normaliser()
    assert lines(reader.read(text)) == lines(read(capture()))
    assert reader.unmapped == {}
    assert recognise(text, [VLLM]) is VLLM


def test_counters_without_total() -> None:
    text = re.sub(r"^(# \w+ )?(vllm:(?!iteration)\w+)_total\b", r"\1\2", capture(), flags=re.M)
    assert "vllm:prompt_tokens{" in text
    assert lines(read(text)) == lines(read(capture()))


def test_a_family_under_two_names_counts_once() -> None:
    """Between two names an engine gives both for some versions."""
    text = capture()
    for new, old in (
        ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    ):
        both = [line for line in text.splitlines() if f"vllm:{new}" in line]
        old_lines = "\n".join(line.replace(new, old) for line in both)
        text = f"{old_lines}\n{text}{old_lines}\n"
    assert lines(read(text)) == lines(read(capture()))


def test_replicas_behind_one_page_are_added_and_usage_is_averaged() -> None:
    """Ray gives the series of each worker; they have no label of ours, so they meet in one."""

    def worker(name: str, running: int, usage: float, tokens: int) -> str:
        labels = f'{{WorkerId="{name}",model_name="m"}}'
        return (
            f"ray_vllm_num_requests_running{labels} {running}\n"
            f"ray_vllm_kv_cache_usage_perc{labels} {usage}\n"
            f"ray_vllm_prompt_tokens_total{labels} {tokens}\n"
            f'ray_vllm_request_queue_time_seconds_bucket{{le="1",{labels[1:]} 1\n'
            f'ray_vllm_request_queue_time_seconds_bucket{{le="+Inf",{labels[1:]} 2\n'
            f"ray_vllm_request_queue_time_seconds_sum{labels} 3\n"
            f"ray_vllm_request_queue_time_seconds_count{labels} 2\n"
        )

    reader = normaliser()
    reading = reader.read(worker("a", 3, 0.2, 100) + worker("b", 4, 0.6, 50))
    assert reading.numbers[key("requests_running", model="m")] == 7
    assert reading.numbers[key("kv_cache_usage_ratio", model="m")] == pytest.approx(0.4)
    assert reading.numbers[key("prompt_tokens_total", model="m")] == 150
    queue = reading.histograms[key("queue_seconds", model="m")]
    assert (dict(queue.counts), queue.sum) == ({"1.0": 2, "+Inf": 4}, 6)
    # One of them restarts: its counts go on, the other's are as they were.
    reading = reader.read(worker("a", 0, 0.0, 5) + worker("b", 4, 0.6, 60))
    assert reading.numbers[key("prompt_tokens_total", model="m")] == 165
    assert reader.resets == 1


def test_a_sum_does_not_go_back_when_a_replica_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailscope.exporter.past.SPARE", 3)

    def page(*workers: int) -> str:
        return "".join(
            f'ray_vllm_prompt_tokens_total{{WorkerId="{one}"}} {10 * one}\n'
            f'ray_vllm_request_queue_time_seconds_bucket{{WorkerId="{one}",le="+Inf"}} {one}\n'
            f'ray_vllm_request_queue_time_seconds_sum{{WorkerId="{one}"}} {one}\n'
            f'ray_vllm_num_requests_running{{WorkerId="{one}"}} 1\n'
            for one in workers
        )

    reader = normaliser()
    seen = 0
    for turn in range(2, 30):
        reading = reader.read(page(1, turn))
        seen += turn
        # Worker 1 and all that ever were beside it, remembered one by one or together.
        assert reading.numbers[key("prompt_tokens_total", model="")] == 10 * (1 + seen)
        queue = reading.histograms[key("queue_seconds", model="")]
        assert (queue.counts["+Inf"], queue.sum) == (1 + seen, 1 + seen)
        assert reading.numbers[key("requests_running", model="")] == 2
    assert reader.resets == 0
    # One that comes back goes on from where it was.
    assert reader.read(page(1, 29)).numbers[key("prompt_tokens_total", model="")] == 10 * (1 + seen)


def test_a_replica_of_another_version_takes_the_place_of_one_with_other_bounds() -> None:
    def page(worker: str, bound: str) -> str:
        start = "ray_vllm_request_queue_time_seconds_bucket"
        labels = f'WorkerId="{worker}",le='
        return f'{start}{{{labels}"{bound}"}} 1\n{start}{{{labels}"+Inf"}} 2\n'

    reader = normaliser()
    reader.read(page("a", "1"))
    (queue,) = reader.read(page("b", "2")).histograms.values()
    assert dict(queue.counts) == {"2.0": 1, "+Inf": 2}


def test_usage_is_averaged_by_capacity() -> None:
    def worker(name: str, usage: float, blocks: object) -> str:
        return (
            f'ray_vllm_kv_cache_usage_perc{{WorkerId="{name}"}} {usage}\n'
            f'ray_vllm_cache_config_info{{WorkerId="{name}",block_size="16",'
            f'num_gpu_blocks="{blocks}"}} 1\n'
        )

    usage = key("kv_cache_usage_ratio", model="")
    both = read(worker("a", 0.2, 100) + worker("b", 0.8, 300))
    assert both.numbers[usage] == pytest.approx(0.65)
    assert both.numbers[key("kv_cache_capacity_tokens", model="")] == 6400
    # Where one has no capacity, all weigh the same.
    assert read(worker("a", 0.2, 100) + worker("b", 0.8, "None")).numbers[usage] == 0.5


def test_views_of_several_processes_are_one_gauge() -> None:
    reading = read(
        'vllm:num_requests_running{pid="1",engine="0"} 3\n'
        'vllm:num_requests_running{pid="2",engine="0"} 5\n'
    )
    assert reading.numbers == {key("requests_running", model=""): 5}


SGLANG = engines()["sglang"]


def sglang(text: str) -> Mapping[Key, float]:
    found = Normaliser(SGLANG, SERVER).read(text).numbers
    return {Key(key.metric, key.values[3:]): value for key, value in found.items()}


def test_ranks_that_tell_the_same_are_one_and_data_parallel_ranks_are_not() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{tp_rank="{tp}",pp_rank="{pp}",dp_rank="{dp}"}} {5 + dp}\n'
        f'sglang:num_retracted_requests_total{{tp_rank="{tp}",pp_rank="{pp}",dp_rank="{dp}"}} 2\n'
        for dp in range(2)
        for tp in (10, 9, 2)
        for pp in range(2)
    )
    numbers = sglang(text)
    for dp in ("0", "1"):
        assert numbers[Key("tailscope_engine_requests_running", (dp,))] == 5 + int(dp)
        assert numbers[Key("tailscope_engine_preemptions_total", (dp,))] == 2


def test_a_total_beside_its_parts_counts_alone() -> None:
    parts = 'sglang:num_running_reqs{priority="1"} 3\nsglang:num_running_reqs{priority="5"} 4\n'
    running = Key("tailscope_engine_requests_running", ("",))
    assert sglang(parts)[running] == 7
    assert sglang(parts + 'sglang:num_running_reqs{priority=""} 8\n')[running] == 8
    # Counters have no such total: what has no priority is one more part.
    text = 'sglang:prompt_tokens_total{priority="1"} 3\nsglang:prompt_tokens_total{priority=""} 4\n'
    assert sglang(text)[Key("tailscope_engine_prompt_tokens_total", ("",))] == 7


def test_waiting_is_the_queue_and_those_whose_grammar_is_compiled() -> None:
    waiting = Key("tailscope_engine_requests_waiting", ("",))
    assert sglang("sglang:num_queue_reqs 3\n")[waiting] == 3
    assert sglang("sglang:num_queue_reqs 3\nsglang:num_grammar_queue_reqs 2\n")[waiting] == 5
    assert waiting not in sglang("sglang:num_grammar_queue_reqs 2\nsglang:token_usage 0\n")


def test_what_an_engine_gives_is_not_derived() -> None:
    capacity = Key("tailscope_engine_kv_cache_capacity_tokens", ("",))
    pages = "sglang:num_pages 100\nsglang:page_size 16\n"
    assert sglang(pages)[capacity] == 1600
    assert sglang(pages + "sglang:max_total_num_tokens 1599\n")[capacity] == 1599


def test_histograms_with_other_bounds_are_not_added() -> None:
    def worker(name: str, bound: str) -> str:
        return (
            f'vllm:request_queue_time_seconds_bucket{{w="{name}",le="{bound}"}} 1\n'
            f'vllm:request_queue_time_seconds_bucket{{w="{name}",le="+Inf"}} 2\n'
        )

    assert read(worker("a", "1") + worker("b", "1.0")).histograms
    assert not read(worker("a", "1") + worker("b", "2")).histograms


def test_two_ranks_are_told_apart() -> None:
    first = capture()
    second = re.sub(r"^#.*\n", "", first.replace('engine="0"', 'engine="1"'), flags=re.M)
    second = re.sub(r"^vllm:admission.*\n", "", second, flags=re.M)  # per API server, not per rank
    second = re.sub(r"^(?!vllm).*\n", "", second, flags=re.M)
    reading = read(first + second)
    for rank in "01":
        assert reading.numbers[key("prompt_tokens_total", rank=rank)] == 101907
        assert reading.numbers[key("kv_cache_usage_ratio", rank=rank)] == 0
        assert reading.histograms[key("queue_seconds", rank=rank)].counts["+Inf"] == 278
    assert reading.numbers[key("admission_rejections_total", "max_num_queued_reqs")] == 0
    assert key("prompt_tokens_total") not in reading.numbers


def test_a_rank_that_is_gone_and_another_model_leave_no_trace() -> None:
    reader = normaliser()
    text = 'vllm:num_requests_running{{engine="{}",model_name="{}"}} 1\n'
    reader.read(text.format("0", "old") + text.format("1", "old"))
    reading = reader.read(
        text.format("0", "new") + 'vllm:cache_config_info{num_gpu_blocks="2",block_size="16"} 1\n'
    )
    assert reading.numbers == {
        key("requests_running", model="new"): 1,
        key("kv_cache_capacity_tokens", model="new"): 32,
    }


def test_unknown_capacity_is_absent() -> None:
    reading = read('vllm:cache_config_info{num_gpu_blocks="None",block_size="16"} 1\na 1\n')
    assert not reading.numbers


# The model of an engine, beyond what vLLM needs


def test_scale_is_for_values_bounds_and_sums_and_not_for_counts() -> None:
    engine = replace(
        VLLM,
        upstream=(
            Upstream("tailscope_engine_queue_seconds", ("queue_ms",), scale=0.001),
            Upstream("tailscope_engine_requests_running", ("running",), scale=2.0),
        ),
    )
    reading = Normaliser(engine, SERVER).read(
        'vllm:queue_ms_bucket{le="5"} 3\nvllm:queue_ms_bucket{le="+Inf"} 4\n'
        "vllm:queue_ms_sum 5000\nvllm:queue_ms_count 4\nvllm:running 3\n"
    )
    queue = reading.histograms[key("queue_seconds", model="")]
    assert (dict(queue.counts), queue.sum) == ({"0.005": 3, "+Inf": 4}, 5)
    assert reading.numbers[key("requests_running", model="")] == 6


def test_a_family_that_is_not_what_the_catalogue_says_is_left_out_and_named() -> None:
    reader = normaliser()
    reader.read("# TYPE vllm:prompt_tokens info\nvllm:prompt_tokens 5\nvllm:nothing_new 1\n")
    assert reader.unmapped == {
        "vllm:prompt_tokens": "it is a info here, a counter in the catalogue",
        "vllm:nothing_new": "the catalogue does not know it",
    }
    # A summary where a histogram should be has no buckets.
    reader.read("# TYPE vllm:e2e_request_latency_seconds summary\n" + capture())
    assert VLLM.kinds["iteration_tokens_total"] is Kind.HISTOGRAM


@pytest.mark.parametrize("kind", ["untyped", "unknown", "counter", "gauge"])
def test_a_counter_by_any_type_but_a_wrong_one(kind: str) -> None:
    text = f"# TYPE vllm:prompt_tokens_total {kind}\nvllm:prompt_tokens_total 5\n"
    assert read(text).numbers[key("prompt_tokens_total", model="")] == 5


def test_no_engine_is_recognised_in_other_metrics() -> None:
    assert recognise("node_load1 0.3\nmyvllm:num_requests_running 1\n", [VLLM]) is None
    assert recognise("", [VLLM]) is None
    assert recognise("# TYPE vllm:num_requests_running gauge\n", [VLLM]) is None
