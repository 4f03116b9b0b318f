from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.catalogue import STAGES as CATALOGUE_STAGES
from tailscope.records.reader import join_records
from tailscope.records.record import COLUMNS, RequestRecord, complete
from tailscope.triage.diagnosis import Diagnosis, Options
from tailscope.triage.finding import Finding
from tailscope.triage.identity import arrival, find, keys
from tailscope.triage.neighbours import held_by_tenant, neighbours
from tailscope.triage.quality import notes
from tailscope.triage.quantiles import Quantiles, quantiles, quantiles_by, ranks
from tailscope.triage.report import report
from tailscope.triage.scope import Scope
from tailscope.triage.sentence import beside, headline, slowness, stages
from tailscope.triage.slow import SlowRule
from tailscope.triage.stages import STAGES, WHOLE, intervals, phases
from tests import recorded

SECOND = 10**9
START = 1_796_000_000 * SECOND


def engine(at: float, **values: Any) -> RequestRecord:
    """An engine row that arrived ``at`` seconds after the start."""
    known: dict[str, Any] = {
        "tenant": "acme",
        "model": "m",
        "server": "s:1",
        "frontend_seconds": 0.0,
        "queue_seconds": 0.0,
        "prefill_seconds": 0.1,
        "decode_seconds": 0.9,
        "input_tokens": 100,
        "output_tokens": 50,
        "outcome": "ok",
    }
    known |= values
    parts = [known.get(f"{stage}_seconds") for stage in STAGES]
    if "total_seconds" not in known and None not in parts:
        known["total_seconds"] = sum(parts)
    record = RequestRecord("test", "engine", START + int(at * SECOND), **known)
    record.span_id = record.span_id or f"{int(at * 1e6):016x}"
    complete(record)
    return record


def gateway(at: float, **values: Any) -> RequestRecord:
    known: dict[str, Any] = {"tenant": "acme", "total_seconds": 1.0, "outcome": "ok"} | values
    return RequestRecord(
        "test", "gateway", START + int(at * SECOND), span_id=f"{int(at * 1e6):016x}", **known
    )


def diagnosis(rows: list[RequestRecord], **scope: Any) -> Diagnosis:
    return Diagnosis(join_records(rows), Options(Scope(**scope)))


def diagnosed(rows: list[RequestRecord], **scope: Any) -> Finding:
    return diagnosis(rows, **scope).finding


def plain_frame(rows: list[RequestRecord]) -> pd.DataFrame:
    """Engine rows as a frame, without the join: quicker, for many small examples."""
    frame = pd.DataFrame([dataclasses.asdict(row) for row in rows], columns=list(COLUMNS))
    kinds = {str: "str", int: "Int64", float: "float64"}
    frame = frame.astype({name: kinds[kind] for name, kind in COLUMNS.items()})
    frame = frame.assign(client_seconds=np.nan, client_ttft_seconds=np.nan, joined=None)
    return frame.astype({"joined": "str"}).sort_values("arrived_ns", ignore_index=True)


def crowd(count: int = 40) -> list[RequestRecord]:
    """Ordinary requests, one every 2 s, none beside another."""
    return [engine(2.0 * number) for number in range(count)]


def flood() -> list[RequestRecord]:
    """Ordinary requests, and ten that wait 5 s while tenant noisy holds four places."""
    waiting = [engine(100, queue_seconds=5.0, span_id=f"{n + 1:016x}") for n in range(10)]
    noisy = [
        engine(99 + number / 100, tenant="noisy", decode_seconds=7.0, output_tokens=2000)
        for number in range(4)
    ]
    return [*crowd(), *waiting, *noisy]


# Percentiles


def test_the_recording_has_its_known_percentiles() -> None:
    latency = Diagnosis(recorded.frame()).finding.latency

    def three(values: Quantiles | None) -> list[float]:
        assert values is not None
        assert values.count == 278
        return [round(level.value, 4) for level in (values.p50, values.p95, values.p99)]

    assert three(latency.ttft) == [0.8223, 3.4705, 3.7353]
    assert three(latency.stages["queue"]) == [0.2391, 3.1810, 3.4469]
    assert three(latency.stages["prefill"]) == [0.0297, 0.6383, 1.1926]
    assert three(latency.stages["decode"]) == [0.3085, 3.0620, 3.7375]
    assert three(latency.total) == [1.7223, 4.3766, 4.6786]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_percentiles_are_numpys(values: list[float]) -> None:
    found = quantiles(np.array(values))
    assert found is not None
    for level, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
        assert getattr(found, name).value == pytest.approx(np.quantile(values, level))


def test_what_nobody_measured_has_no_percentile() -> None:
    assert quantiles(np.array([np.nan, np.nan])) is None
    assert quantiles_by(np.array([np.nan, 1.0]), np.array([0, 1])).keys() == {1}


def _coverage(count: int, level: float, low: int | None, high: int | None) -> float:
    """Probability that the sorted values of these ranks enclose the percentile, summed exactly."""
    first, last = 0 if low is None else low, count if high is None else high - 1
    return sum(
        math.comb(count, k) * level**k * (1 - level) ** (count - k) for k in range(first, last + 1)
    )


@pytest.mark.parametrize("count", [1, 2, 10, 59, 100, 278, 900])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_an_interval_covers_at_least_95_percent_and_is_not_wider_than_needed(
    count: int, level: float
) -> None:
    low, high = ranks(count, level)
    assert _coverage(count, level, low, high) >= 0.95 - 1e-9
    if low is not None and high is not None and high - low > 2:
        assert _coverage(count, level, low + 1, high - 1) < 0.95


def test_the_approximation_for_many_values_is_within_a_rank() -> None:
    for level in (0.5, 0.95, 0.99):
        exact, near = ranks(9_999, level), ranks(10_000, level)
        for one, other in zip(exact, near, strict=True):
            assert one is not None
            assert other is not None
            assert abs(one - other) <= 2  # one of them for the value more


def test_few_values_have_no_upper_bound() -> None:
    found = quantiles(np.arange(100.0))
    assert found is not None
    assert found.p99.high is None
    assert found.p50.low is not None
    assert found.p50.high is not None
    assert found.p50.low < found.p50.value < found.p50.high


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 100)), min_size=1, max_size=100),
)
def test_percentiles_by_group_are_those_of_the_group(pairs: list[tuple[int, float]]) -> None:
    codes = np.array([code for code, _ in pairs])
    values = np.array([value for _, value in pairs])
    grouped = quantiles_by(values, codes)
    assert grouped.keys() == set(codes.tolist())
    for code, found in grouped.items():
        assert found == quantiles(values[codes == code])


# Excess and slowness


def test_stages_are_those_of_the_catalogue() -> None:
    assert STAGES == CATALOGUE_STAGES


def test_a_long_answer_is_long_not_slow() -> None:
    long = [engine(200.0 + number, output_tokens=3000, decode_seconds=54.0) for number in range(10)]
    found = diagnosed([*crowd(), *long])
    assert found.slow.requests == 0
    assert any("nothing is slow" in text for text in slowness(found))


def test_a_lone_long_answer_is_judged_by_its_time_per_token() -> None:
    found = diagnosed([*crowd(), engine(200, output_tokens=500, decode_seconds=9.0)])
    assert found.slow.requests == 0


def test_unknown_stages_stay_unknown() -> None:
    rows = [*crowd(), engine(200, queue_seconds=None, total_seconds=3.0)]
    for row in rows:
        row.ttft_seconds = None
    found = Diagnosis(join_records(rows)).reckoning
    assert math.isnan(found.stages[-1, STAGES.index("queue")])
    assert np.isfinite(found.stages[:-1]).all()


def test_a_percentile_picks_the_worst_above_the_usual() -> None:
    found = diagnosed(flood())
    assert found.slow.requests == 10
    assert {request.tenant for request in found.slow.slowest} == {"acme"}
    assert found.slow.stage == "queue"
    assert found.slow.by_stage["queue"] == pytest.approx(50.0)
    assert 50.0 <= found.slow.excess_seconds < 60.0


def test_seconds_pick_by_the_total_time() -> None:
    found = diagnosed(flood(), slow=SlowRule.parse("7s"))
    assert found.slow.requests == 4
    assert {request.tenant for request in found.slow.slowest} == {"noisy"}
    assert found.slow.threshold == 7.0


def test_too_few_requests_are_not_judged() -> None:
    found = diagnosed(crowd(5))
    assert found.slow.threshold is None
    assert slowness(found) == (
        "Fewer than 20 requests are too few to say which are unusually slow.",
    )


def test_totals_alone_are_judged_by_their_total() -> None:
    rows = [gateway(2.0 * number) for number in range(40)]
    rows += [gateway(100.0 + number, total_seconds=9.0) for number in range(2)]
    found = diagnosed(rows)
    assert found.slow.requests == 2
    assert found.slow.excess_seconds == pytest.approx(16.0)
    assert found.slow.by_stage == {}
    assert found.slow.stage is None
    assert any("No stage times are known" in text for text in slowness(found))
    assert found.quality.without_stages == 42


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("p95", SlowRule(95.0, None)),
        ("p99.9", SlowRule(99.9, None)),
        ("2", SlowRule(None, 2.0)),
        ("2.5 s", SlowRule(None, 2.5)),
        ("300ms", SlowRule(None, 0.3)),
    ],
)
def test_a_rule_is_read_as_people_write_it(text: str, rule: SlowRule) -> None:
    assert SlowRule.parse(text) == rule
    assert SlowRule.parse(str(rule)) == rule


@pytest.mark.parametrize("text", ["", "p", "p0", "p100", "0", "-1", "fast", "1h", "nan"])
def test_a_rule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a percentile"):
        SlowRule.parse(text)


# Loads


def test_the_recording_names_the_tenant_whose_work_held_the_engine() -> None:
    found = Diagnosis(recorded.frame())
    said = found.sentence
    assert not found.checked
    assert found.attribution.grade == "A"
    assert found.checked
    for text in (said, found.sentence):
        assert text.startswith("p50 1.72 s, p99 4.68 s over 278 requests since ")
        assert "83 % of the slow seconds are in the queue." in text
        assert "is owed to tenant initech" in text
        assert "are a habit of its own" in text
    assert found.finding.tenants[0].name == "initech"
    assert found.finding.slow.stage == "queue"
    assert found.finding.slow.requests == 14


def test_shares_add_up() -> None:
    found = Diagnosis(recorded.frame())
    tenants = found.finding.tenants
    assert sum(load.slot_share or 0.0 for load in tenants) == pytest.approx(1.0)
    assert sum(load.requests for load in tenants) == 278
    quick = found.quick
    owed = sum(quick.mechanisms.values()) + quick.engine_seconds + quick.unexplained_seconds
    assert owed == pytest.approx(quick.excess_seconds)
    assert quick.excess_seconds == pytest.approx(found.finding.slow.excess_seconds)


_seconds = st.one_of(st.none(), st.floats(0, 5))
_rows = st.lists(
    st.builds(
        lambda at, stage, tenant, server: engine(
            at,
            tenant=tenant,
            server=server,
            **{f"{name}_seconds": value for name, value in zip(STAGES, stage, strict=True)},
        ),
        at=st.floats(0, 20),
        stage=st.tuples(_seconds, _seconds, _seconds, _seconds),
        tenant=st.sampled_from(["a", "b", None]),
        server=st.sampled_from(["s:1", "s:2", None]),
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda record: record.span_id,
)


@settings(max_examples=15, deadline=None)
@given(_rows, st.randoms(), st.integers(-(10**6), 10**6))
def test_order_names_and_time_do_not_matter(
    rows: list[RequestRecord], random: Any, shift: int
) -> None:
    rule = SlowRule(None, 2.0)
    before = Diagnosis(plain_frame(rows), Options(Scope(slow=rule))).finding
    for row in rows:
        row.arrived_ns += shift * SECOND
        row.tenant = None if row.tenant is None else f"renamed-{row.tenant}"
    frame = plain_frame(rows)
    order = list(range(len(frame)))
    random.shuffle(order)
    mixed = frame.iloc[order].reset_index(drop=True)
    after = Diagnosis(mixed, Options(Scope(slow=rule))).finding
    assert after.latency == before.latency
    assert after.slow.requests == before.slow.requests
    assert after.slow.by_stage == pytest.approx(before.slow.by_stage)
    assert {load.name: load.slot_seconds for load in after.tenants} == pytest.approx(
        {
            load.name if load.name == "unknown" else f"renamed-{load.name}": load.slot_seconds
            for load in before.tenants
        }
    )


def test_requests_before_the_window_are_load_but_not_judged() -> None:
    rows = [*flood(), *(engine(120.0 + number) for number in range(10))]
    found = diagnosis(rows, start_ns=START + 100 * SECOND, slow=SlowRule.parse("5s"))
    assert found.finding.window.requests == 20
    assert found.finding.slow.requests == 10
    assert [load.name for load in found.finding.tenants] == ["acme"]
    assert found.suspects[0].name == "noisy"
    assert found.suspects[0].ledger_share > 0.9


def test_a_tenant_filter_judges_its_requests_beside_the_load_of_all() -> None:
    found = diagnosis(flood(), tenants=("acme",))
    assert found.finding.window.requests == 50
    assert found.suspects[0].name == "noisy"
    assert diagnosed(flood(), tenants=("noisy",)).window.requests == 4
    assert diagnosed(flood(), servers=("elsewhere",)).window.requests == 0


# Neighbours


@settings(max_examples=60, deadline=None)
@given(_rows, st.data())
def test_neighbours_are_all_that_overlap(rows: list[RequestRecord], data: st.DataObject) -> None:
    frame = plain_frame(rows)
    position = data.draw(st.integers(0, len(frame) - 1))
    at = phases(frame, int(frame["arrived_ns"].iloc[position]))
    around = neighbours(frame, position)
    mine, server = at.iloc[position], frame["server"].fillna("")
    expected = {
        other
        for other in range(len(frame))
        if other != position
        and server.iloc[other] == server.iloc[position]
        and np.minimum(at["ended"].iloc[other], mine["ended"])
        > max(at["arrived"].iloc[other], mine["arrived"])
    }
    assert set(around.others.index) == expected
    held = around.others["held_seconds"].dropna()
    assert held.is_monotonic_decreasing
    assert (around.others["overlap_seconds"] > 0).all()
    assert len(held_by_tenant(around)) == around.others["tenant"].fillna("unknown").nunique()


def test_one_request_is_told_in_words() -> None:
    frame = recorded.frame()
    position = find(frame, "tail-0216-umbrella")
    assert position is not None
    around = neighbours(frame, position)
    assert stages(around) == (
        "It took 4.32 s: 0.437 s frontend, 3.26 s queue, 0.027 s prefill, 0.588 s decode."
    )
    assert beside(around).startswith("While it waited 3.70 s for its place in the batch, tenant ")
    assert "tenant initech held 6.5 places on average" in beside(around)


def test_a_lone_request_has_no_neighbours() -> None:
    around = neighbours(join_records([engine(0, queue_seconds=1.0)]), 0)
    assert around.others.empty
    assert held_by_tenant(around).empty
    assert beside(around) == ""


def test_a_timeline_has_every_stage_and_no_unknown_one() -> None:
    rows = [engine(0, queue_seconds=2.0), gateway(1)]
    bars = intervals(join_records(rows), START)
    mine = bars[bars["row"] == 0].set_index("stage")[["start", "end"]]
    assert list(mine.loc["queue"]) == pytest.approx([0.0, 2.0])
    assert list(mine.loc["prefill"]) == pytest.approx([2.0, 2.1])
    assert list(mine.loc["decode"]) == pytest.approx([2.1, 3.0])
    assert "frontend" not in mine.index  # it took no time
    other = bars[bars["row"] == 1]
    assert other["stage"].tolist() == [WHOLE]
    assert other[["start", "end"]].iloc[0].tolist() == pytest.approx([1.0, 2.0])


def test_a_request_is_found_by_each_of_its_names() -> None:
    frame = recorded.frame()
    key = keys(frame).iloc[7]
    row = frame.iloc[7]
    for name in (key, row["span_id"], row["trace_id"], row["request_id"]):
        assert find(frame, name) == 7
    assert arrival(key) == row["arrived_ns"]
    for name in ("", "nothing", "1796000000000000000", key[:-1], key + "0"):
        assert find(frame, name) is None
    assert find(frame.iloc[:0], key) is None
    assert keys(frame).is_unique


# Words and JSON


def test_nothing_is_said_of_nothing() -> None:
    found = diagnosis([])
    assert found.sentence == "There is no request in this window."
    shape = report(found)
    assert shape["latency"] == {"stages": {}}
    assert shape["window"] == {"requests": 0, "servers": [], "models": []}
    assert shape["suspects"] == []
    assert shape["fixes"] == []
    assert "cause" not in shape
    assert "from" not in shape["window"]


def test_one_request_is_no_statistic() -> None:
    found = diagnosed([engine(0)])
    assert headline(found).startswith("p50 1.00 s, p99 1.00 s over 1 request since ")
    assert found.latency.total is not None
    assert found.latency.total.p50.low is None


def test_few_slow_requests_name_nobody() -> None:
    rows = [*crowd(), *(engine(100 + n, queue_seconds=9.0) for n in range(2))]
    found = diagnosis(rows)
    assert "too few to say whose load it was" in found.verdict
    assert "acme" not in found.verdict
    assert not any(one.accused for one in found.suspects)


def test_requests_without_a_tenant_are_unknown_never_accused_and_said() -> None:
    rows = flood()
    for row in rows:
        row.tenant = None if row.tenant == "noisy" else row.tenant
    found = diagnosis(rows)
    assert found.suspects[0].name == "unknown"
    assert not found.suspects[0].accused
    assert "requests without a tenant" in found.verdict
    assert found.finding.quality.without_tenant == 4
    assert "4 of 54 requests have no tenant" in report(found)["data_quality"]["notes"][0]


def test_failed_requests_are_counted_and_cut_ones_are_lower_bounds() -> None:
    rows = [
        *crowd(30),
        engine(200, outcome="rejected", total_seconds=0.001, decode_seconds=None),
        engine(201, outcome="error", total_seconds=99.0, decode_seconds=None),
        engine(202, outcome="aborted", total_seconds=10.0, decode_seconds=None),
    ]
    found = diagnosed(rows)
    assert found.window.requests == 33
    assert found.latency.total is not None
    assert found.latency.total.count == 31
    assert found.quality.failed == 2
    assert found.quality.cut_short == 1
    assert "count as that in the percentiles of the total" in " ".join(notes(found))
    assert found.quality.outcomes == {"ok": 30, "rejected": 1, "error": 1, "aborted": 1}


def test_inferred_times_are_said_and_other_inferred_columns_counted() -> None:
    rows = crowd(30)
    for row in rows[:10]:
        row.inferred = "server,model"
    rows[0].inferred = "queue_seconds"
    data = report(diagnosis(rows))["data_quality"]
    assert data["inferred"] == {"server": 9, "model": 9, "queue_seconds": 1}
    assert data["notes"] == ["queue_seconds was inferred, not told, for 1 request."]


def test_the_report_is_json_of_the_agreed_shape() -> None:
    shape = json.loads(json.dumps(report(Diagnosis(recorded.frame())), allow_nan=False))
    assert shape["window"]["requests"] == 278
    assert shape["window"]["servers"] == ["127.0.0.1:18000"]
    assert shape["latency"]["ttft"]["p99"] == pytest.approx(3.7353, abs=1e-4)
    assert list(shape["latency"]["stages"]) == list(STAGES)
    assert shape["slow"]["requests"] == 14
    assert sum(shape["slow"]["by_stage"].values()) == pytest.approx(shape["slow"]["excess_seconds"])
    suspect = shape["suspects"][0]
    assert suspect["name"] == "initech"
    assert suspect["kind"] == "tenant"
    assert suspect["grade"] == "A"
    assert suspect["accused"] is False
    assert suspect["not_accused_because"]
    assert suspect["ledger_share"] > 0.8
    assert suspect["removal_share"] > 0.8
    assert suspect["removal_seconds"] > 0.0
    assert suspect["lift"] > 1.0
    assert shape["cause"]["name"] == "queueing"
    assert 0.0 < shape["cause"]["share"] <= 1.0
    assert {"fact", "value", "unit"} == shape["cause"]["evidence"][0].keys()
    assert shape["engines"][0]["replay"]["passed"] is True
    for fix in shape["fixes"]:
        assert fix["predicted"]["p99_after"] < fix["predicted"]["p99_before"]
        assert fix["others"]["who"]
        assert fix["config"]
        assert fix["grade"] in "AB"
    (matrix,) = shape["matrices"]
    assert matrix["tenants"][0] == "acme"  # its requests lost most
    assert [len(row) for row in matrix["seconds"]] == [len(matrix["tenants"]) + 1] * 4
    assert "gpus" not in shape
    assert "offline" not in shape


def test_slow_requests_that_name_no_server_yet_make_no_matrix_of_their_own() -> None:
    frame = recorded.frame()
    some = [*frame["total_seconds"].nlargest(2).index, *frame["total_seconds"].nsmallest(3).index]
    frame.loc[some, "server"] = None
    frame.loc[some, ["frontend_seconds", "queue_seconds", "prefill_seconds"]] = np.nan
    found = Diagnosis(frame)
    assert len(found.best.studies) == 2
    assert [one.server for one in found.matrices] == ["127.0.0.1:18000"]


@pytest.mark.parametrize("blank", ["tenant", "model", "server", "input_tokens", "ttft_seconds"])
def test_any_column_may_be_missing(blank: str) -> None:
    rows = recorded.records()
    for row in rows:
        setattr(row, blank, None)
    json.dumps(report(diagnosis(rows)), allow_nan=False)


def test_a_frame_without_known_times_says_so() -> None:
    rows = [RequestRecord("test", "gateway", START + n, span_id=f"{n:016x}") for n in range(30)]
    said = diagnosis(rows).sentence
    assert "none with a total time" in said
    assert "nothing can be said about slow requests" in said


def test_many_tenants_are_many_rows() -> None:
    count = 2_000
    frame = pd.concat([recorded.frame().head(1)] * count, ignore_index=True)
    frame["tenant"] = [f"tenant-{n}" for n in range(count)]
    frame["arrived_ns"] += np.arange(count) * SECOND
    found = Diagnosis(frame)
    assert len(found.finding.tenants) == count
    assert found.finding.slow.requests == 0
    assert found.suspects == ()
