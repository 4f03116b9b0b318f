"""What is easy to read wrongly in a gateway's page, and what must come of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from tailscope.exporter.reading import Reading
from tests.captures import FOLDER, lines
from tests.enginereads import key, names, read, text_of


def tenants(text: str, label: str, value: str, many: int) -> str:
    """The page with each series of a tenant as those of many."""
    out = []
    for line in text.splitlines():
        copies = range(many) if f'{label}="{value}"' in line else [None]
        for number in copies:
            new = value if number is None else f"tenant-{number}"
            out.append(line.replace(f'{label}="{value}"', f'{label}="{new}"'))
    return "\n".join(out) + "\n"


def totals(reading: Reading, names_of: Iterable[str]) -> dict[str, float]:
    wanted = {f"tailscope_gateway_{name}" for name in names_of}
    found: dict[str, float] = {}
    for one, number in reading.numbers.items():
        if one.metric in wanted:
            found[one.metric] = found.get(one.metric, 0) + number
    return found


@pytest.mark.parametrize(
    ("engine", "version", "label", "value", "counter"),
    [
        ("litellm", "1.110", "hashed_api_key", "litellm_proxy_master_key", "input_tokens_total"),
        ("llmd", "epp-2026", "fairness_id", "team-a", "cached_input_tokens_total"),
    ],
)
def test_tenants_of_a_gateway_are_added_up_and_become_no_label(
    engine: str, version: str, label: str, value: str, counter: str
) -> None:
    text = text_of(engine, version)
    one, many = read(engine, text), read(engine, tenants(text, label, value, 40))
    assert many.numbers.keys() == one.numbers.keys()
    assert many.histograms.keys() == one.histograms.keys()
    assert totals(many, [counter]) == {
        name: 40 * number for name, number in totals(one, [counter]).items()
    }
    assert "tenant-" not in lines(many)


@pytest.mark.parametrize(
    ("engine", "version"),
    [("litellm", "1.110"), *(("llmd", path.stem) for path in sorted(FOLDER.glob("llmd/*.prom")))],
)
def test_nothing_of_a_caller_gets_out(engine: str, version: str) -> None:
    out = lines(read(engine, text_of(engine, version)))
    for word in ("team-", "master_key", "default_user_id", "127.0.0.1", "10.0.0.2", "urllib"):
        assert word not in out


def test_gateways_have_names_of_their_own_so_that_no_request_counts_twice() -> None:
    for engine, version in (("litellm", "1.110"), ("llmd", "epp-2026")):
        assert all(
            name.startswith("gateway_") for name in names(read(engine, text_of(engine, version)))
        )


def test_litellm_first_token_is_of_streams_only() -> None:
    reading = read("litellm", text_of("litellm", "1.110"))
    first = reading.histograms[key("litellm", "gateway_time_to_first_token_seconds", "tiny.gguf")]
    whole = reading.histograms[key("litellm", "gateway_request_seconds", "tiny.gguf")]
    assert (first.counts["+Inf"], whole.counts["+Inf"]) == (20, 35)


def test_litellm_created_times_are_no_values() -> None:
    text = text_of("litellm", "1.110")
    assert "litellm_output_tokens_metric_created" in text
    tokens = key("litellm", "gateway_output_tokens_total", "tiny.gguf")
    assert read("litellm", text).numbers[tokens] == 812


def test_llmd_old_names_beside_new_ones_count_once() -> None:
    text = text_of("llmd", "router-0.8")
    alone = re.sub(r"^(# \w+ )?inference_(objective|pool|extension)_.*\n", "", text, flags=re.M)
    assert alone != text
    assert lines(read("llmd", text)) == lines(read("llmd", alone))


def test_llmd_first_token_is_of_streams_only() -> None:
    """The newest says so in a label; of an answer in one piece the time is that of all of it."""
    first = read("llmd", text_of("llmd", "epp-2026")).histograms[
        key("llmd", "gateway_time_to_first_token_seconds", "llama-70b")
    ]
    assert first.counts["+Inf"] == 30
    assert first.sum is not None and first.sum < 30


def test_llmd_queue_time_is_of_those_that_were_let_through() -> None:
    queue = read("llmd", text_of("llmd", "router-0.8")).histograms[
        key("llmd", "gateway_queue_seconds", "llama-70b")
    ]
    assert queue.counts["+Inf"] == 60
    assert queue.sum is not None and queue.sum < 30


def test_llmd_saturation_is_the_effective_one_and_may_be_above_1() -> None:
    found = read("llmd", text_of("llmd", "epp-2026")).numbers
    assert [number for one, number in found.items() if one.metric.endswith("saturation")] == [1.2]
