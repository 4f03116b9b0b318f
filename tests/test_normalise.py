from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailscope.catalogue.engines import engines
from tailscope.exporter.normalise import Normaliser
from tailscope.exporter.reading import Key
from tailscope.exporter.recognise import families, recognise
from tailscope.exporter.scrapeerror import NotPrometheus, TooManySeries
from tailscope.exporter.seriestext import MAX_LINES
from tests.fake_engine import capture

VLLM = engines()["vllm"]
RUNNING = Key("tailscope_engine_requests_running", ("vllm", "a:1", "", ""))
TOKENS = Key("tailscope_engine_prompt_tokens_total", ("vllm", "a:1", "", ""))


def normaliser() -> Normaliser:
    return Normaliser(VLLM, "a:1")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("vllm:num_requests_running 3", 3),
        ("vllm:num_requests_running 3\r", 3),
        ("vllm:num_requests_running  3", 3),
        ("vllm:num_requests_running\t3", 3),
        ("vllm:num_requests_running{} 3", 3),
        ("vllm:num_requests_running 3 1700000000000", 3),
        ('vllm:num_requests_running{x="a b # {} 9"} 3', 3),
        ('vllm:num_requests_running{x="say \\"hi\\" \\\\ \\n"} 3', 3),
        ("vllm:num_requests_running 3e0", 3),
        ("vllm:num_requests_running NaN", None),
        ("vllm:num_requests_running +Inf", None),
        ("vllm:num_requests_running -Inf", None),
        ("vllm:num_requests_running", None),
        ("vllm:num_requests_running three", None),
        ("vllm:num_requests_running{x=1} 3", None),
        ('vllm:num_requests_running{x="1} 3', None),
        ("# vllm:num_requests_running 3", None),
    ],
)
def test_a_line_read_for_the_first_and_the_second_time(line: str, value: float | None) -> None:
    reader = normaliser()
    for _ in range(2):
        assert reader.read(f"other 1\n{line}\n").numbers.get(RUNNING) == value


def test_a_new_number_is_read_each_time_with_a_time_stamp_too() -> None:
    reader = normaliser()
    for value in (1, 2, 3):
        for stamp in ("", f" {value}"):
            text = f"vllm:num_requests_running {value}{stamp}\n"
            assert reader.read(text).numbers[RUNNING] == value


def test_exemplars_are_passed_over() -> None:
    text = (
        'vllm:request_queue_time_seconds_bucket{{le="1.0"}} {0} # {{trace_id="a"}} 0.{0}\n'
        'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {0} # {{trace_id="b"}} 0.{0} 1.5\n'
        "# EOF\n"
    )
    reader = normaliser()
    for count in (2, 3):
        (histogram,) = reader.read(text.format(count)).histograms.values()
        assert dict(histogram.counts) == {"1.0": count, "+Inf": count}
        assert histogram.sum is None


def test_carriage_returns_everywhere() -> None:
    plain, windows = normaliser(), normaliser()
    expected = plain.read(capture())
    for _ in range(2):
        assert windows.read(capture().replace("\n", "\r\n")) == expected
    assert windows.unmapped == {}


def test_a_series_that_is_there_twice_counts_once() -> None:
    reading = normaliser().read("vllm:prompt_tokens_total 3\nvllm:prompt_tokens_total 4\n")
    assert reading.numbers[TOKENS] == 4


def test_junk_between_the_lines_is_passed_over() -> None:
    lines = capture().splitlines()
    junk = ["<html>", "}{", '{"a": 1}', "\x00\x01", "   ", "9 9 9 9", "= 1", '"', "é{x} 1", "# "]
    mixed = "\n".join(f"{line}\n{junk[i % len(junk)]}" for i, line in enumerate(lines))
    assert normaliser().read(mixed + "\n") == normaliser().read(capture())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "# HELP a b\n# TYPE a gauge\n",
        "<!doctype html>\n<title>Not here</title>\n",
        '{"detail":"Not Found"}',
        '{\n  "error": {\n    "code": 503\n  }\n}',
        "\x00" * 100,
    ],
)
def test_no_sample_is_not_prometheus(text: str) -> None:
    with pytest.raises(NotPrometheus):
        normaliser().read(text)


def test_a_histogram_without_its_whole_is_absent() -> None:
    reader = normaliser()
    reading = reader.read('vllm:request_queue_time_seconds_bucket{le="1.0"} 3\nother 1\n')
    assert not reading.histograms
    reading = reader.read(
        'vllm:request_queue_time_seconds_bucket{le="x"} 3\n'
        'vllm:request_queue_time_seconds_bucket{le="NaN"} 3\n'
        "vllm:request_queue_time_seconds_bucket 3\nother 1\n"
    )
    assert not reading.histograms


def test_a_sum_that_is_no_number_is_absent_and_stays_so_over_a_restart() -> None:
    text = 'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {}\n'
    text += "vllm:request_queue_time_seconds_sum {}\n"
    reader = normaliser()
    for count, total in ((5, "NaN"), (2, "1.5")):
        (histogram,) = reader.read(text.format(count, total)).histograms.values()
        assert histogram.sum is None
    assert histogram.counts["+Inf"] == 7
    assert reader.resets == 1


def test_a_family_that_changes_its_type_is_another_family() -> None:
    reader = normaliser()
    text = "# TYPE vllm:prompt_tokens_total {}\nvllm:prompt_tokens_total 5\nother 1\n"
    assert TOKENS in reader.read(text.format("counter")).numbers
    assert TOKENS not in reader.read(text.format("summary")).numbers
    assert "vllm:prompt_tokens_total" in reader.unmapped
    assert TOKENS in reader.read(text.format("counter")).numbers
    assert "vllm:prompt_tokens_total" not in reader.unmapped


def test_labels_that_change_each_time_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailscope.exporter.seriestext.SPARE", 100)
    monkeypatch.setattr("tailscope.exporter.past.SPARE", 100)
    reader = normaliser()
    tracemalloc.start()
    try:
        sizes = []
        for turn in range(30):
            reader.read(
                "".join(
                    f'vllm:prompt_tokens_total{{model_name="m{turn}",x="{i}"}} 1\n'
                    f"# HELP vllm:odd_{turn}_{i} Odd.\nvllm:odd_{turn}_{i} 1\n"
                    for i in range(40)
                )
            )
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes[20:]) < 1.2 * max(sizes[10:20])
    assert len(reader.unmapped) <= 2 * 80 + 100
    assert len(reader.models) == 1


def test_more_lines_than_any_engine_has_are_refused_and_forgotten() -> None:
    reader = normaliser()
    many = "a 1\n" * MAX_LINES
    assert reader.read(many).numbers == {}
    with pytest.raises(TooManySeries, match=str(MAX_LINES)):
        reader.read(many + "b 1\n")
    assert reader.read("vllm:num_requests_running 3\n").numbers[RUNNING] == 3


LINES = st.one_of(
    st.text(max_size=40),
    st.text(alphabet='vllm:_{}"=, \\\t\r#.0129eENaInf+-TYPE', max_size=40),
    st.sampled_from(
        [
            "# TYPE vllm:prompt_tokens counter",
            "# TYPE vllm:prompt_tokens gauge",
            'vllm:request_queue_time_seconds_bucket{le="1"} 3',
            'vllm:request_queue_time_seconds_bucket{le="+Inf"} 4',
            "vllm:request_queue_time_seconds_sum NaN",
            "vllm:request_queue_time_seconds_created 7",
            "vllm:num_requests_running 1",
            "vllm:prompt_tokens_total -5",
        ]
    ),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.lists(LINES, max_size=5), min_size=1, max_size=3))
@example([["vllm:prompt_tokens_total 5", "vllm:prompt_tokens_total 5 1"]])
def test_any_text_gives_a_finite_reading_or_is_not_prometheus(scrapes: list[list[str]]) -> None:
    reader = normaliser()
    for scrape in scrapes:
        text = "\n".join(scrape)
        recognise(text, [VLLM])
        families(text)
        try:
            reading = reader.read(text)
        except NotPrometheus:
            continue
        assert all(map(math.isfinite, reading.numbers.values()))
        for histogram in reading.histograms.values():
            assert all(map(math.isfinite, histogram.counts.values()))
            assert list(histogram.counts)[-1] == "+Inf"
