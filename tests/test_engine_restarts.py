"""What an engine counts, over its restarts."""

from __future__ import annotations

import pytest

from tailscope.exporter.past import MISTRUST
from tailscope.exporter.scrapeerror import SeveralServers
from tests.captures import lines
from tests.fake_engine import capture, restarted
from tests.vllmpages import key, normaliser


@pytest.mark.parametrize("created", [True, False], ids=["created", "without created"])
def test_counts_go_on_over_a_restart(created: bool) -> None:
    reader = normaliser()
    before = reader.read(capture())
    empty = reader.read(restarted(capture(), created=created))
    assert reader.resets == 1
    assert lines(empty) == lines(before)
    again = reader.read(
        restarted(capture(), created=created).replace(
            'vllm:prompt_tokens_total{engine="0",model_name="tiny-llama"} 0.0',
            'vllm:prompt_tokens_total{engine="0",model_name="tiny-llama"} 7.0',
        )
    )
    assert again.numbers[key("prompt_tokens_total")] == 101914
    assert reader.resets == 1


def test_a_restart_that_was_overtaken_is_seen_by_the_time_of_creation() -> None:
    text = (
        "vllm:prompt_tokens_total {0}\nvllm:prompt_tokens_created {1}\n"
        'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {0}\n'
        "vllm:request_queue_time_seconds_sum {0}\nvllm:request_queue_time_seconds_created {1}\n"
    )
    reader = normaliser()
    reader.read(text.format(5, 1000.5))
    reading = reader.read(text.format(8, 2000.5))
    assert reading.numbers[key("prompt_tokens_total", model="")] == 13
    queue = reading.histograms[key("queue_seconds", model="")]
    assert (dict(queue.counts), queue.sum) == ({"+Inf": 13}, 13)
    assert reader.resets == 1


def test_two_servers_in_turn_are_found_out() -> None:
    """One address with several servers behind it: each answer would look like a restart."""
    text = "vllm:prompt_tokens_total {}\nvllm:prompt_tokens_created {}\n"
    reader = normaliser()
    reader.read(text.format(1000, 1.0))
    reader.read(text.format(900, 2.0))
    with pytest.raises(SeveralServers):
        reader.read(text.format(1001, 1.0))
    reading = reader.read(text.format(901, 2.0))
    assert reading.numbers[key("prompt_tokens_total", model="")] == 1901
    # Once more, and it is not believed for a while: up and down each second would fill the log.
    for count, created in ((1002, 1.0), (902, 2.0), (1003, 1.0)):
        with pytest.raises(SeveralServers):
            reader.read(text.format(count, created))


def test_two_servers_in_turn_without_times_of_creation() -> None:
    def page(tokens: int, requests: int) -> str:
        return (
            f"vllm:prompt_tokens_total {tokens}\nvllm:num_requests_running 1\n"
            f'vllm:request_success_total{{finished_reason="stop"}} {requests}\n'
        )

    reader = normaliser()
    pages = [page(1000, 5), page(900, 4), page(1001, 5), page(901, 4)]
    for text in pages:
        reader.read(text)
    with pytest.raises(SeveralServers, match="in turn"):
        reader.read(page(1002, 5))
    for _ in range(MISTRUST):
        with pytest.raises(SeveralServers):
            reader.read(page(902, 4))
    # One of them is gone: what is left is believed again, and begins anew.
    assert reader.read(page(1003, 5)).numbers[key("prompt_tokens_total", model="")] == 1003


@pytest.mark.parametrize("counts", [(1000, 0, 2000, 4000), (50, 0, 60, 0, 70, 80)])
def test_restarts_are_not_several_servers(counts: tuple[int, ...]) -> None:
    """One that soon has more than ever, and small counts that go back and up again."""
    reader = normaliser()
    total = 0
    for before, count in zip((0, *counts), counts, strict=False):
        total += count - before if count >= before else count
        reading = reader.read(f"vllm:prompt_tokens_total {count}\n")
        assert reading.numbers[key("prompt_tokens_total", model="")] == total


def test_a_sum_that_loses_its_last_digit_is_no_restart() -> None:
    text = (
        'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} 10\n'
        "vllm:request_queue_time_seconds_sum {}\nvllm:prompt_tokens_total {}\n"
    )
    reader = normaliser()
    reader.read(text.format(0.1 + 0.2, 3.0000000000000004))
    reading = reader.read(text.format(0.3, 3.0))
    assert reader.resets == 0
    assert reading.histograms[key("queue_seconds", model="")].counts["+Inf"] == 10


def test_other_bounds_after_a_restart_begin_anew() -> None:
    text = (
        'vllm:request_queue_time_seconds_bucket{{le="{0}"}} {1}\n'
        'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {2}\n'
        "vllm:request_queue_time_seconds_sum 6\nvllm:request_queue_time_seconds_count {2}\n"
    )
    reader = normaliser()
    reader.read(text.format("0.3", 5, 9))
    reader.read(text.format("0.3", 4, 5))
    reading = reader.read(text.format("0.25", 4, 5))
    queue = reading.histograms[key("queue_seconds", model="")]
    assert (dict(queue.counts), queue.sum) == ({"0.25": 4, "+Inf": 5}, 6)
    assert reader.resets == 2


def test_a_series_that_is_away_for_a_while_goes_on() -> None:
    reader = normaliser()
    reader.read("vllm:prompt_tokens_total 10\nvllm:num_requests_running 1\n")
    reader.read("vllm:num_requests_running 1\n")
    reading = reader.read("vllm:prompt_tokens_total 4\n")
    assert reading.numbers[key("prompt_tokens_total", model="")] == 14
