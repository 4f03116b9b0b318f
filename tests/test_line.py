"""One line, read as the library reads it."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tailscope.exporter.line import parse

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True),
    st.text(st.characters(exclude_characters='"\\\n\r', exclude_categories=["Cs"]), max_size=6),
    max_size=3,
)
NUMBERS = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers().map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "Inf", "1e5", "-2.5E-3", "1.", ".5", "1.2.3", "x"]),
)


def by_the_library(line: str) -> list[tuple[str, dict[str, str], float]]:
    try:
        return [
            (sample.name, sample.labels, float(sample.value))
            for family in text_string_to_metric_families(line + "\n")
            for sample in family.samples
        ]
    except (ValueError, KeyError, IndexError):
        return []


@settings(max_examples=300, deadline=None)
@given(NAMES, LABELS, NUMBERS, st.sampled_from(["", " 1700000000000"]), st.booleans())
@example("a", {}, "1", "", False)
def test_a_plain_line_is_read_as_the_library_reads_it(
    name: str, labels: dict[str, str], number: str, stamp: str, comma: bool
) -> None:
    inner = ",".join(f'{label}="{text}"' for label, text in labels.items())
    braces = f"{{{inner}{',' if comma and labels else ''}}}" if labels or comma else ""
    line = f"{name}{braces} {number}{stamp}"
    found, expected = parse(line), by_the_library(line)
    assert [(one.name, one.labels) for one in found] == [one[:2] for one in expected]
    for one, (_, _, value) in zip(found, expected, strict=True):
        assert one.value == value or (math.isnan(one.value) and math.isnan(value))
        assert one.plain == (not stamp)


@pytest.mark.parametrize(
    "line",
    [
        'a{b="1"c="2"} 3',
        'a{b="1",,c="2"} 3',
        "a{b=1} 3",
        'a{b="1} 3',
        "a",
        "{} 3",
        'a{"b"="1"} 3 4 5',
    ],
)
def test_what_is_no_line_is_left_to_the_library(line: str) -> None:
    assert [one[:3] for one in parse(line)] == by_the_library(line)
