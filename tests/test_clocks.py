"""How far clocks are apart, from requests that a gateway and an engine saw."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tailscope.records.reader import Reader
from tailscope.records.record import RequestRecord
from tests import recorded

SECOND = 10**9


def pairs(ahead: float, count: int = 50) -> list[RequestRecord]:
    """Requests that both saw; the engine's clock is so many seconds ahead."""
    dice = random.Random(3)
    rows = []
    for number in range(count):
        arrived = 1_800_000_000 * SECOND + number * SECOND
        there, took, back = (dice.uniform(*span) for span in ((0, 0.01), (1, 2), (0, 0.01)))
        trace = f"{number:032x}"
        rows.append(
            RequestRecord(
                "envoy",
                "gateway",
                arrived,
                span_id=f"a{number:015x}",
                total_seconds=there + took + back,
                tenant="acme",
                trace_id=trace,
                request_id=f"r{number}",
            )
        )
        rows.append(
            RequestRecord(
                "vllm",
                "engine",
                arrived + int((there + ahead) * SECOND),
                span_id=f"b{number:015x}",
                parent_span_id=f"a{number:015x}",
                total_seconds=took,
                server="h:1",
                trace_id=trace,
                request_id=f"r{number}",
            )
        )
    return rows


@pytest.mark.parametrize("ahead", [0.0, 3.0, -0.25])
def test_the_skew_is_found_and_bounded(tmp_path: Path, ahead: float) -> None:
    (found,) = Reader(recorded.store(tmp_path, pairs(ahead))).skews()
    assert (found.server, found.pairs) == ("h:1", 50)
    assert found.seconds == pytest.approx(ahead, abs=0.002)
    assert found.low <= ahead <= found.high
    assert found.high - found.low < 0.005


def test_without_pairs_nothing_is_said(tmp_path: Path) -> None:
    rows = [row for row in pairs(1.0) if row.role == "engine"]
    assert Reader(recorded.store(tmp_path / "e", rows)).skews() == ()
    assert Reader(recorded.store(tmp_path / "f", pairs(1.0, count=2))).skews() == ()
    assert Reader(tmp_path / "none").skews() == ()
