"""What the triage says of GPUs, from made-up samples in the shape in which they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailscope.catalogue import METRICS
from tailscope.catalogue.nvml import REASONS
from tailscope.records.samples import Sample
from tailscope.triage import gpu as triage
from tailscope.triage.coincidence import beside
from tailscope.triage.counters import Reads, held, spans, steps, within
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.gpusentence import MAX_SAID, during, health, statements, suspicions
from tailscope.triage.hardware import Gpu, Span, Trouble
from tailscope.triage.report import report
from tailscope.triage.scope import Scope
from tailscope.triage.troubles import CAUSES
from tests import recorded
from tests.gpusamples import BUSY, SECOND, Board, Curve, of, rising, steady

START = 1_796_004_600 * SECOND  # 02:10:00 UTC
BEFORE = 30
"""Seconds that were read before the time that is looked at."""


def frame(samples: Iterable[Sample]) -> pd.DataFrame:
    """Samples as the reader returns them."""
    rows = pd.DataFrame(list(samples), columns=Sample._fields)
    texts = rows.pop("labels")
    parsed = {text: json.loads(text) for text in texts.unique()}
    for name in sorted({key for labels in parsed.values() for key in labels}):
        rows[name] = texts.map({text: labels.get(name) for text, labels in parsed.items()})
    return rows


def examine(*boards: Board, seconds: int = 900) -> tuple[Gpu, ...]:
    """Look at the seconds behind the first thirty."""
    samples = [s for board in boards for s in board.samples(START - BEFORE * SECOND, seconds + 30)]
    return triage.examine(frame(samples), START, START + seconds * SECOND)


def board(index: int = 0, **counters: Curve) -> Board:
    """A GPU that does well, but for clocks that are held down by reason."""
    more = {of("throttled_seconds_total", reason=name): curve for name, curve in counters.items()}
    return Board(index, {**BUSY, **more})


def requests(*times: tuple[float, float]) -> pd.DataFrame:
    """Slow requests: seconds at which they came, and how long they took."""
    return pd.DataFrame(
        {
            "arrived_ns": [START + int(at * SECOND) for at, _ in times],
            "total_seconds": [total for _, total in times],
        }
    )


def seconds_by_cause(gpu: Gpu) -> dict[str, float]:
    return {throttle.cause.name: throttle.seconds for throttle in gpu.throttles}


# What is read


def test_every_metric_is_one_that_the_exporter_stores() -> None:
    for name in triage.METRICS:
        assert METRICS[name].stored, name


def test_every_reason_of_nvml_has_a_meaning() -> None:
    known = {reason for cause in CAUSES for reason in cause.reasons}
    assert set(REASONS.values()) <= known


def test_a_gpu_that_does_well() -> None:
    (found,) = examine(board())
    assert found.name == "GPU 0"
    assert found.model == "NVIDIA H200"
    assert found.watched_seconds == pytest.approx(900)
    assert found.activity["sm"].mean == pytest.approx(0.9)
    assert found.activity["dram"].samples == 901
    assert found.readings["temperature_celsius"].highest == 61
    assert (found.throttles, found.lost, found.xids, found.missing) == ((), (), (), ())
    assert statements(found) == ()
    said = " ".join(health((found,), START))
    assert said == (
        "No loss, no XID event and no long hold of the clocks was seen on GPU 0. "
        "On average: SM activity 90 %, DRAM activity 40 %."
    )


def test_mean_and_p95_of_activity() -> None:
    ramp: Curve = lambda second: (second - BEFORE) / 100  # noqa: E731
    (found,) = examine(Board(0, {of("sm_active_ratio"): ramp}), seconds=100)
    assert found.activity["sm"].mean == pytest.approx(0.5)
    assert found.activity["sm"].p95 == pytest.approx(0.95)


def test_without_samples_there_is_nothing() -> None:
    assert examine() == ()
    early = board().samples(START - 30 * SECOND, 20)
    assert triage.examine(frame(early), START, START + 900 * SECOND) == ()
    assert health((), START) == ()


def test_what_is_missing_is_told_and_not_zero() -> None:
    curves = {name: curve for name, curve in BUSY.items() if "sm_active" not in name[0]}
    (found,) = examine(Board(0, curves))
    assert "sm" not in found.activity
    assert found.missing == ("sm",)
    said = health((found,), START)
    assert "No SM activity is known of GPU 0." in said
    assert "SM activity" not in said[0]
    (bare,) = examine(Board(0, {of("power_watts"): steady(70.0)}))
    assert bare.missing == ("sm", "dram", "tensor")
    assert bare.bandwidth is None


# Throttling


def test_heat_held_a_gpu_down() -> None:
    (found,) = examine(board(hw_thermal=rising(BEFORE + 100, BEFORE + 141)))
    (throttle,) = found.throttles
    assert throttle.cause.name == "heat"
    assert throttle.seconds == pytest.approx(41)
    assert throttle.spans == (Span(START + 100 * SECOND, START + 141 * SECOND, 41.0),)
    assert statements(found) == (
        "GPU 0 was held down by heat for 41.0 s of the 900 s it was watched, between 02:11:40 and "
        "02:12:21 UTC.",
    )


def test_reasons_that_hold_together_are_not_added_up() -> None:
    curve = rising(BEFORE + 100, BEFORE + 140)
    half = rising(BEFORE + 100, BEFORE + 140, each=0.5)
    (found,) = examine(board(hw_thermal=curve, sw_thermal=half, hw_slowdown=curve))
    assert seconds_by_cause(found) == {"heat": pytest.approx(40)}
    assert found.throttles[0].reasons["sw_thermal"] == pytest.approx(20)
    (alone,) = examine(board(hw_slowdown=curve))
    assert seconds_by_cause(alone) == {"hardware": pytest.approx(40)}


def test_a_counter_counts_in_the_window_alone() -> None:
    (found,) = examine(board(hw_thermal=rising(10, BEFORE + 5)))
    assert seconds_by_cause(found) == {"heat": pytest.approx(5)}
    (old,) = examine(board(hw_thermal=rising(0, 20)))
    assert old.throttles == ()


def test_a_total_of_the_past_is_no_rise() -> None:
    """The driver's counter goes back to when the driver was loaded."""
    (found,) = examine(board(hw_thermal=steady(5_000.0)))
    assert found.throttles == ()
    late: Curve = lambda second: 5_000.0 if second > 400 else None  # noqa: E731
    (shown_late,) = examine(board(hw_thermal=late))
    assert shown_late.throttles == ()


def test_a_counter_that_begins_anew_goes_on() -> None:
    """The exporter started again at 200: its counters, and with them the store's, too."""
    first, second = rising(BEFORE + 100, BEFORE + 110), rising(BEFORE + 300, BEFORE + 307)
    curve: Curve = lambda at: first(at) if at < 200 else second(at)  # noqa: E731
    (found,) = examine(board(hw_thermal=curve))
    assert seconds_by_cause(found) == {"heat": pytest.approx(17)}
    assert len(found.throttles[0].spans) == 2
    assert "17.0 s of the 900 s it was watched, 2 times between" in statements(found)[0]


def test_a_counter_that_went_back_counts_from_zero() -> None:
    read = Reads(np.arange(5, dtype=np.int64) * SECOND, 5 * SECOND)
    series = pd.DataFrame({"time_ns": read.times, "value": [7.0, 8.0, 0.5, 0.5, 1.5]})
    rises = steps(series, read)
    assert list(rises["rise"]) == [1.0, 0.5, 1.0]
    assert list(rises["end"] // SECOND) == [1, 2, 4]


def test_over_a_gap_nothing_is_known() -> None:
    quiet = range(BEFORE + 100, BEFORE + 400)
    heat = {of("throttled_seconds_total", reason="hw_thermal"): rising(50, BEFORE + 410)}
    (found,) = examine(Board(0, {**BUSY, **heat}, silent=quiet))
    assert found.watched_seconds == pytest.approx(900 - 301)
    assert seconds_by_cause(found) == {"heat": pytest.approx(410 - 301 - 20)}
    assert "GPU 0 was watched for 599 s of 900 s." in health((found,), START)


def test_a_power_limit_is_said_only_if_it_is_much_of_the_time() -> None:
    (little,) = examine(board(sw_power_cap=rising(100, 150)))
    assert seconds_by_cause(little) == {"power_limit": pytest.approx(50)}
    assert statements(little) == ()
    (much,) = examine(board(sw_power_cap=rising(100, 500)))
    assert "GPU 0 was held at its power limit for 400 s" in statements(much)[0]
    (chosen,) = examine(board(application_clocks=rising(0, 930)))
    assert statements(chosen) == ()
    assert chosen.faulty_seconds == 0
    assert examine(board())[0].faulty_seconds is None


def test_a_reason_that_nobody_knows_is_kept_by_its_name() -> None:
    (found,) = examine(board(moon_phase=rising(100, 400)))
    assert "GPU 0 was held down (moon_phase) for 300 s" in statements(found)[0]


# Lost, XID


def test_a_gpu_that_is_lost() -> None:
    whole, gone = examine(board(0), Board(1, BUSY, lost=range(BEFORE + 600, 2000)))
    assert whole.lost == ()
    assert not whole.lost_at_end
    assert gone.lost == (Span(START + 600 * SECOND, START + 900 * SECOND, 300.0),)
    assert gone.lost_at_end
    assert statements(gone) == ("GPU 1 is lost: it could not be read from 02:20:00 UTC on.",)
    assert gone.activity["sm"].samples == 600
    assert gone.activity["sm"].mean == pytest.approx(0.9)  # its time away is not 0 %


def test_a_gpu_that_was_lost_for_a_while() -> None:
    lost = [*range(BEFORE + 10, BEFORE + 20), *range(BEFORE + 40, BEFORE + 45)]
    heat = {of("throttled_seconds_total", reason="hw_thermal"): rising(0, 25)}
    (found,) = examine(Board(0, {**BUSY, **heat}, lost=lost))
    assert [span.seconds for span in found.lost] == [10.0, 5.0]
    assert not found.lost_at_end
    assert found.throttles == ()  # its counter is back with the old total, which is no rise
    assert "could not be read for 15.0 s, 2 times, from 02:10:10 UTC on." in statements(found)[0]


def test_a_gpu_that_is_back_has_its_old_total() -> None:
    """However little that is: it did not begin anew."""
    heat = {of("throttled_seconds_total", reason="hw_thermal"): rising(BEFORE + 1, BEFORE + 3)}
    (found,) = examine(Board(0, {**BUSY, **heat}, lost=range(BEFORE + 50, BEFORE + 60)))
    assert seconds_by_cause(found) == {"heat": pytest.approx(2)}


def test_a_gpu_that_was_never_there() -> None:
    (found,) = examine(Board(0, BUSY, lost=range(2000)))
    assert found.activity == {}
    assert found.missing == ()
    assert found.lost_seconds == 900


def test_xid_events_are_counted_from_the_first() -> None:
    curves = {
        **BUSY,
        of("xid_errors_total", xid="31", action="restart_app"): rising(5, 6),
        of("xid_errors_total", xid="94", action="restart_app"): rising(BEFORE + 50, BEFORE + 52),
        of("xid_errors_total", xid="79", action="restart_node"): rising(BEFORE + 99, BEFORE + 100),
    }
    (found,) = examine(Board(0, curves))
    assert [(e.code, e.count, (e.time_ns - START) // SECOND) for e in found.xids] == [
        ("94", 1, 51),
        ("94", 1, 52),
        ("79", 1, 100),
    ]
    first, second = statements(found)
    assert first == (
        "GPU 0 had XID 79 (the machine has to be restarted, after NVIDIA's catalogue) at 02:11:40 "
        "UTC."
    )
    assert second.endswith(
        "(it hit a program on the GPU, after NVIDIA's catalogue) at 02:10:51 UTC, 2 times in all."
    )


def test_an_event_after_a_restart_of_the_exporter_is_seen() -> None:
    """Before and after it, the counter of the code stands at 1."""
    curve: Curve = lambda second: float(not 300 < second < 500)  # noqa: E731
    curves = {**BUSY, of("xid_errors_total", xid="48", action="reset_gpu"): curve}
    (found,) = examine(Board(0, curves))
    assert [(e.time_ns - START) // SECOND for e in found.xids] == [500 - BEFORE]


# Bandwidth


def bound(dram: float, tensor: float) -> Gpu:
    curves = {
        **BUSY,
        of("dram_active_ratio"): steady(dram),
        of("tensor_active_ratio"): steady(tensor),
    }
    return examine(Board(0, curves))[0]


def test_memory_that_is_near_its_limit_while_arithmetic_is_not() -> None:
    found = bound(0.83, 0.06)
    assert found.bandwidth is not None
    assert found.bandwidth.share == 1.0
    (said,) = statements(found)
    assert said.startswith(
        "GPU 0 moved data in 83 % of its memory's cycles on average, while its tensor cores were "
        "in use in 6 %"
    )
    for other in (bound(0.5, 0.06), bound(0.8, 0.6)):
        assert other.bandwidth is not None
        assert other.bandwidth.share == 0.0
        assert statements(other) == ()


def test_without_tensor_activity_nobody_knows_what_limits() -> None:
    curves = {of("sm_active_ratio"): steady(0.9), of("dram_active_ratio"): steady(0.9)}
    (found,) = examine(Board(0, curves))
    assert found.bandwidth is None
    assert found.missing == ("tensor",)


def test_a_share_of_the_time() -> None:
    curve: Curve = lambda second: 0.9 if second < BEFORE + 450 else 0.1  # noqa: E731
    curves = {**BUSY, of("dram_active_ratio"): curve, of("tensor_active_ratio"): steady(0.05)}
    (found,) = examine(Board(0, curves))
    assert found.bandwidth is not None
    assert found.bandwidth.share == pytest.approx(0.5, abs=0.01)
    assert "in 50 % of the time it was busy with memory" in statements(found)[0]


# MIG


def test_instances_are_kept_apart() -> None:
    def instance(number: int, sm: float) -> Board:
        curves = {of("sm_active_ratio"): steady(sm), of("dram_active_ratio"): steady(sm / 2)}
        labels = {"gi": str(number), "profile": "1g.18gb"}
        return Board(0, curves, instance=labels, lost=range(BEFORE + 890, 2000))

    parent = Board(0, {of("power_watts"): steady(400.0)}, lost=range(BEFORE + 890, 2000))
    found = examine(parent, instance(11, 0.2), instance(3, 0.8))
    assert [gpu.name for gpu in found] == [
        "GPU 0",
        "GPU 0 instance 3 (1g.18gb)",
        "GPU 0 instance 11 (1g.18gb)",
    ]
    whole, third, eleventh = found
    assert whole.activity == {}
    assert whole.missing == ()  # its instances have it
    assert whole.readings["power_watts"].mean == 400
    assert third.activity["sm"].mean == pytest.approx(0.8)
    assert eleventh.activity["sm"].mean == pytest.approx(0.2)
    assert third.missing == ("tensor",)
    assert whole.lost_at_end
    assert third.lost == ()  # it is said once, of the GPU


# The slow requests


def test_slow_requests_beside_a_throttle() -> None:
    gpus = examine(board(hw_thermal=rising(BEFORE + 100, BEFORE + 140)))
    (found,) = beside(gpus, requests((90, 20), (130, 20), (300, 10)))
    (one,) = found.beside
    assert (one.trouble, one.cause, one.requests, one.slow) == (Trouble.THROTTLED, "heat", 2, 3)
    assert one.share_slow == pytest.approx(20 / 50)
    assert one.share == pytest.approx(40 / 900)
    assert one.suspect
    (said,) = suspicions((found,))
    assert said.endswith(
        "2 of the 3 slow requests ran meanwhile; it was so in 40 % of the slow requests' time and "
        "in 4 % of the whole (association, not proof)."
    )


def test_a_throttle_at_another_time_is_no_suspect() -> None:
    gpus = examine(board(hw_thermal=rising(BEFORE + 100, BEFORE + 140)))
    (found,) = beside(gpus, requests((10, 20), (300, 10)))
    assert found.beside == ()
    assert suspicions((found,)) == ()
    assert "held down by heat" in statements(found)[0]
    assert "slow requests" not in statements(found)[0]


def test_a_power_limit_is_a_suspect_only_if_it_comes_with_the_slow_requests() -> None:
    always = examine(board(sw_power_cap=rising(0, 930)))
    (found,) = beside(always, requests((90, 20), (130, 20)))
    assert found.beside[0].share_slow == pytest.approx(1.0)
    assert not found.beside[0].suspect
    often = examine(board(sw_power_cap=rising(BEFORE + 80, BEFORE + 160)))
    (found,) = beside(often, requests((90, 20), (130, 20)))
    assert found.beside[0].suspect
    assert "held at its power limit" in suspicions((found,))[0]


def test_a_lost_gpu_and_a_fatal_xid_are_suspects() -> None:
    curves = {
        **BUSY,
        of("xid_errors_total", xid="79", action="restart_node"): rising(BEFORE + 99, BEFORE + 100),
        of("xid_errors_total", xid="45", action="ignore"): rising(BEFORE + 99, BEFORE + 100),
    }
    gpus = examine(Board(0, curves, lost=range(BEFORE + 101, 2000)))
    (found,) = beside(gpus, requests((95, 20), (400, 10)))
    told = {(one.trouble, one.cause): (one.requests, one.suspect) for one in found.beside}
    assert told == {
        (Trouble.LOST, ""): (2, True),
        (Trouble.XID, "79"): (1, True),
        (Trouble.XID, "45"): (1, False),
    }
    assert "1 of the 2 slow requests ran at that moment" in statements(found)[1]


def test_requests_of_another_time_say_nothing() -> None:
    gpus = examine(Board(0, BUSY, lost=range(2000)))
    (found,) = beside(gpus, requests((-500, 20), (2_000, 10)))
    assert found.beside == ()
    assert beside(gpus, requests())[0].beside == ()
    (some,) = beside(gpus, requests((-500, 20), (10, 20), (2_000, 10)))
    assert (some.beside[0].requests, some.beside[0].slow) == (1, 1)
    (unknown,) = beside(gpus, requests((10, float("nan"))))
    assert unknown.beside == ()


def test_what_one_request_met() -> None:
    curves = board(hw_thermal=rising(BEFORE + 100, BEFORE + 140), sw_power_cap=rising(130, 135))
    gpus = beside(examine(curves), requests((135, 10)))
    assert during(gpus, 10.0) == ("GPU 0 was held down by heat for 5.00 s of it.",)
    assert during(beside(examine(curves), requests((500, 1))), 1.0) == ()


def test_time_within_spans_is_exact() -> None:
    parts = (Span(0, 10, 10.0), Span(20, 30, 5.0))
    moments = np.array([-5.0, 0, 5, 10, 15, 20, 25, 30, 99])
    assert list(within(parts, moments)) == [0, 0, 5, 10, 10, 10, 12.5, 15, 15]


def test_many_sentences_are_cut() -> None:
    gpus = examine(
        *(board(index, hw_thermal=rising(100, 200)) for index in range(MAX_SAID + 2)), seconds=300
    )
    said = health(gpus, START)
    assert len(said) == MAX_SAID + 1
    assert said[-1] == "2 more such sentences are left out."


def test_a_window_that_was_cut_is_told() -> None:
    (found,) = examine(board())
    assert health((found,), START - SECOND)[-1] == (
        "GPUs were looked at from 2026-11-30 02:10:00 UTC on."
    )


def test_held_ignores_what_has_no_room() -> None:
    rises = pd.DataFrame(
        {
            "start": [0, SECOND, 2 * SECOND],
            "end": [SECOND, 2 * SECOND, 4 * SECOND],
            "rise": [9.0, 1.02, 1.0],
            "gap": [False, False, False],
        }
    )
    found = held(rises, 0, 3 * SECOND)
    assert list(found["rise"]) == [1.0, 0.5]
    assert spans(found) == (Span(SECOND, 3 * SECOND, 1.5),)


# With the requests of a recording


def analysed(*boards: Board) -> dict[str, Any]:
    """The report on the recording, with GPUs that were read beside it."""
    rows = recorded.frame()
    bounds = triage.period(rows, Scope())
    assert bounds is not None
    first, last = bounds
    begin = first - BEFORE * SECOND
    seconds = (last - begin) // SECOND + 5
    samples = [sample for one in boards for sample in one.samples(begin, seconds)]
    gpus = triage.examine(frame(samples), first, last)
    found = Diagnosis(rows, gpus=gpus)
    shape: dict[str, Any] = json.loads(json.dumps(report(found), allow_nan=False))
    return shape


def test_the_report_names_a_gpu_that_was_held_down() -> None:
    shape = analysed(board(0, hw_thermal=rising(BEFORE + 10, BEFORE + 51)), board(1))
    first, second = shape["gpus"]
    assert first["throttled"][0]["seconds"] == pytest.approx(41, abs=0.1)
    assert first["throttled"][0]["spans"][0]["seconds"] == pytest.approx(41, abs=0.1)
    assert second["throttled"] == []
    assert second["activity"]["sm"]["mean"] == pytest.approx(0.9)
    (suspect,) = [one for one in shape["suspects"] if one["kind"] == "gpu"]
    assert suspect["name"] == "GPU 0"
    assert suspect["uuid"] == "GPU-00000000"
    (evidence,) = suspect["evidence"]
    assert (evidence["trouble"], evidence["cause"]) == ("throttled", "heat")
    assert 0 < evidence["slow_requests"] <= evidence["of"] == shape["slow"]["requests"]
    assert "GPU 0 was held down by heat" in shape["sentence"]


def test_the_report_keeps_a_gpu_without_trouble_out_of_the_suspects() -> None:
    shape = analysed(board(0))
    assert [one["kind"] for one in shape["suspects"]] == ["tenant"] * len(shape["suspects"])
    assert len(shape["gpus"]) == 1
    assert "GPU" not in shape["sentence"]


def test_the_report_has_no_gpus_without_samples() -> None:
    plain = report(Diagnosis(recorded.frame()))
    assert "gpus" not in plain
    assert analysed() == json.loads(json.dumps(plain))


def test_the_time_that_is_wanted() -> None:
    rows = recorded.frame()
    first = int(rows["arrived_ns"].min())
    begin, end = triage.period(rows, Scope()) or (0, 0)
    assert begin == first
    assert 0 < end - int(rows["arrived_ns"].max()) < 60 * SECOND
    assert triage.period(rows, Scope(start_ns=5)) == (5, 2**63 - 1)
    assert triage.period(rows, Scope(start_ns=5, end_ns=9)) == (5, 9)
    begin, end = triage.period(rows, Scope(end_ns=first + SECOND)) or (0, 0)
    assert begin == first < end <= first + SECOND
    assert triage.period(rows, Scope(end_ns=5)) is None
