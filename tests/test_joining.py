"""How engine rows and gateway rows become one row per request."""

from __future__ import annotations

from typing import Any

import pytest

from tailscope.records.reader import join_records
from tailscope.records.record import COLUMNS, RequestRecord
from tests.requestrows import NOW_NS, SECOND, engine, gateway, values


def test_the_calling_span_is_the_best_key() -> None:
    trace = "b" * 32
    found = join_records(
        [
            engine(1, trace, parent_span_id="a" + "0" * 14 + "2"),
            gateway(1, trace),
            gateway(2, trace),
        ]
    )
    assert values(found, "tenant") == ["t2", "t1"]
    assert values(found, "joined") == ["parent", None]
    assert values(found, "role") == ["engine", "gateway"]


def test_a_trace_with_one_gateway_row_is_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    found = join_records([engine(1, parent_span_id="f" * 16), gateway(1)])
    assert (values(found, "tenant"), values(found, "joined")) == (["t1"], ["trace"])


def test_a_request_id_that_one_gateway_row_has_is_the_third() -> None:
    rows = [engine(1, request_id="r"), gateway(7, request_id="r", trace_id=None)]
    found = join_records(rows)
    assert (values(found, "tenant"), values(found, "joined")) == (["t7"], ["request"])
    twice = join_records([*rows, gateway(8, request_id="r", trace_id=None)])
    assert values(twice, "joined") == [None] * 3
    assert values(twice, "tenant") == [None, "t7", "t8"]


def test_an_agents_trace_is_joined_call_by_call() -> None:
    trace = "c" * 32
    calls = range(5)
    rows = [gateway(number, trace, tenant="agent" if number % 2 else "user") for number in calls]
    rows += [engine(number, trace, parent_span_id=f"a{number:015x}") for number in calls]
    found = join_records(rows)
    assert values(found, "tenant") == ["user", "agent", "user", "agent", "user"]
    assert values(found, "joined") == ["parent"] * 5


def test_gateway_rows_of_a_trace_that_agree_give_the_tenant_and_nothing_else() -> None:
    trace = "d" * 32
    rows = [gateway(1, trace, tenant="x", status=200), gateway(2, trace, tenant="x", status=200)]
    found = join_records([engine(3, trace), *rows])
    mine = found[found["role"] == "engine"]
    assert (values(mine, "tenant"), values(mine, "joined")) == (["x"], ["agreed"])
    assert values(mine, "status") == [None]
    assert len(found) == 3
    rows[1].tenant = "y"
    assert values(join_records([engine(3, trace), *rows]), "joined") == [None] * 3
    rows[1].tenant = None
    assert values(join_records([engine(3, trace), *rows]), "joined") == [None] * 3


def test_two_engine_rows_of_one_call_have_the_same_partner() -> None:
    parent = "a" + "0" * 14 + "1"
    found = join_records(
        [
            engine(1, "e" * 32, parent_span_id=parent),
            engine(2, "e" * 32, parent_span_id=parent),
            gateway(1, "e" * 32),
        ]
    )
    assert values(found, "tenant") == ["t1", "t1"]


# Two views that an engine gives of one request


def line(number: int, **values: Any) -> RequestRecord:
    """A row of a file that an engine writes: it has no span."""
    record = engine(number, **{"request_id": f"r{number}", **values})
    record.span_id = None
    return record


def test_a_line_of_a_file_and_a_span_are_one_request() -> None:
    span = engine(1, request_id="r1", decode_seconds=1.0, total_seconds=2.0)
    told = line(1, queue_seconds=0.5, total_seconds=2.25, tenant="t", outcome="aborted")
    for rows in ([span, told], [told, span]):
        found = join_records(rows)
        assert values(found, "span_id") == [span.span_id]
        assert values(found, "queue_seconds") == [0.5]
        assert values(found, "decode_seconds") == [1.0]
        assert values(found, "total_seconds") == [2.0]
        assert values(found, "tenant") == ["t"]
        assert values(found, "outcome") == ["aborted"]
    told.request_id = None
    assert len(join_records([span, told])) == 1, "they have the trace in common"


@pytest.mark.parametrize(
    "other",
    [
        {"request_id": "another"},
        {"trace": "f" * 32},
        {"engine": "other"},
        {"server": "other", "trace": None},
        {"arrived_ns": NOW_NS + 3 * SECOND},
    ],
)
def test_what_differs_is_another_request(other: dict[str, Any]) -> None:
    told = {"trace": f"{2:032x}", "request_id": "r1", "engine": "e", "server": "s", **other}
    trace = told.pop("trace")
    second = line(1, **told)
    second.trace_id = trace
    assert len(join_records([engine(1, request_id="r1", engine="e", server="s"), second])) == 2


def test_rows_of_one_observer_are_requests_of_their_own() -> None:
    """Two of one call, and an id that is used again an hour later."""
    later = NOW_NS + 3600 * SECOND
    spans = [engine(1, "a" * 32, request_id="n"), engine(2, "a" * 32, request_id="n")]
    spans.append(engine(3, request_id="n", arrived_ns=later))
    lines = [line(n, trace=one.trace_id, request_id="n", arrived_ns=one.arrived_ns)
             for n, one in enumerate(spans)]  # fmt: skip
    for number, one in enumerate(lines):
        one.queue_seconds = 0.25 * number
    found = join_records([*lines, *spans])
    assert values(found, "span_id") == [one.span_id for one in spans]
    assert values(found, "queue_seconds") == [0.0, 0.25, 0.5]
    assert len(join_records(spans)) == len(join_records(lines)) == 3


def test_two_files_and_a_span_are_one_request() -> None:
    rows = [line(1, queue_seconds=0.5), line(1, queue_seconds=0.5), engine(1, request_id="r1")]
    rows[0].source = "file"
    assert values(join_records(rows), "queue_seconds") == [0.5]
    assert len(join_records(rows[:2])) == 1


def test_of_a_span_that_came_twice_the_fuller_one_counts() -> None:
    rows = [engine(1), engine(1, queue_seconds=0.5), engine(1)]
    assert values(join_records(rows), "queue_seconds") == [0.5]


# Several views of one request


TRACE = "b" * 32


def middleware(number: int, **values: Any) -> RequestRecord:
    """A row of the middleware, which knows less than a gateway."""
    record = gateway(number, TRACE, tenant=None, **values)
    record.source = "middleware"
    return record


def test_an_outer_view_is_the_same_request() -> None:
    """A client calls a gateway, which calls the server that has the middleware."""
    outer = gateway(1, TRACE, session="s", total_seconds=3.0, ttft_seconds=1.0)
    inner = middleware(2, parent_span_id=outer.span_id, total_seconds=2.0, status=200)
    served = engine(3, TRACE, parent_span_id=inner.span_id, total_seconds=1.9)
    for rows in ([outer, inner, served], [served, inner, outer]):
        found = join_records(rows)
        assert values(found, "span_id") == [served.span_id]
        assert values(found, "joined") == ["parent"]
        assert values(found, "tenant") == ["t1"]
        assert values(found, "session") == ["s"]
        assert values(found, "status") == [200]
        assert values(found, "client_seconds") == [3.0]
        assert values(found, "client_ttft_seconds") == [1.0]
    alone = join_records([outer, inner])
    assert values(alone, "span_id") == [inner.span_id]
    assert values(alone, "tenant") == ["t1"]


def test_the_outermost_knows_best_how_it_ended() -> None:
    outer = gateway(1, TRACE, outcome="queue_timeout")
    inner = middleware(2, parent_span_id=outer.span_id, outcome="aborted")
    served = engine(3, TRACE, parent_span_id=inner.span_id)
    assert values(join_records([outer, inner, served]), "outcome") == ["queue_timeout"]
    outer.outcome = "ok"
    assert values(join_records([outer, inner, served]), "outcome") == ["aborted"]


def test_a_caller_that_both_have_in_common() -> None:
    """The gateway passes its client's trace context on as it is."""
    outer, inner = gateway(1, TRACE, parent_span_id="c" * 16), middleware(2)
    inner.parent_span_id = "c" * 16
    served = engine(3, TRACE, parent_span_id=inner.span_id)
    found = join_records([outer, inner, served])
    assert values(found, "span_id") == [served.span_id]
    assert values(found, "tenant") == ["t1"]
    two = join_records([outer, inner, served, middleware(4), gateway(5, TRACE)])
    assert len(two) == 4, "which of them belong together is not known"


def test_attempts_share_what_their_call_knows() -> None:
    call = gateway(1, TRACE, outcome="ok", total_seconds=9.0, status=200)
    first = middleware(2, parent_span_id=call.span_id, outcome="rejected", status=503)
    second = middleware(3, parent_span_id=call.span_id, total_seconds=2.0)
    served = engine(4, TRACE, parent_span_id=second.span_id)
    found = join_records([call, first, second, served])
    assert values(found, "span_id") == [first.span_id, served.span_id]
    assert values(found, "tenant") == ["t1", "t1"]
    assert values(found, "session") == [call.span_id] * 2
    assert values(found, "outcome") == ["rejected", "ok"]
    assert values(found, "client_seconds") == [None, 2.0], "the call's time is of all attempts"
    assert values(found, "status") == [503, None]


def test_rows_without_a_partner_stay_with_their_nulls() -> None:
    found = join_records([engine(1), gateway(2, total_seconds=3.0, ttft_seconds=1.0)])
    assert values(found, "tenant") == [None, "t2"]
    assert values(found, "joined") == [None, None]
    assert values(found, "client_seconds") == [None, 3.0]
    assert values(found, "client_ttft_seconds") == [None, 1.0]
    for name in ("ttft_seconds", "queue_seconds", "input_tokens", "model"):
        assert values(found, name)[0] is None


def test_rows_without_any_id_are_nobodys_partner() -> None:
    lone = [
        RequestRecord("file", "engine", NOW_NS),
        RequestRecord("file", "gateway", NOW_NS, tenant="x"),
    ]
    assert values(join_records(lone), "tenant") == [None, "x"]


def test_the_engine_keeps_its_own_and_takes_what_it_lacks() -> None:
    found = join_records(
        [
            engine(1, total_seconds=1.0, output_tokens=5, model="m"),
            gateway(
                1, total_seconds=1.2, output_tokens=6, model="alias", cached_tokens=3, session="s"
            ),
        ]
    ).iloc[0]
    assert (found["total_seconds"], found["client_seconds"]) == (1.0, 1.2)
    assert (found["output_tokens"], found["cached_tokens"]) == (5, 3)
    assert (found["model"], found["session"], found["source"]) == ("m", "s", "vllm")


@pytest.mark.parametrize(
    ("mine", "theirs", "outcome"),
    [
        ("ok", "aborted", "aborted"),
        ("ok", "ok", "ok"),
        ("error", "ok", "error"),
        ("error", None, "error"),
        (None, "ok", "ok"),
        (None, None, None),
    ],
)
def test_the_client_is_right_about_giving_up(
    mine: str | None, theirs: str | None, outcome: str | None
) -> None:
    found = join_records([engine(1, outcome=mine), gateway(1, outcome=theirs)])
    assert values(found, "outcome") == [outcome]


def test_a_row_that_came_twice_counts_once() -> None:
    rows = [engine(1), engine(1), gateway(1), gateway(1), gateway(2, trace_id=None, span_id=None)]
    rows.append(rows[-1])
    found = join_records(rows)
    assert values(found, "tenant") == ["t1", "t2"]


def test_rows_without_a_span_are_the_same_only_in_every_column() -> None:
    rows = [
        RequestRecord("file", "gateway", NOW_NS, tenant=tenant, total_seconds=seconds)
        for tenant, seconds in (("a", 1.0), ("b", 1.0), ("a", 2.0), ("a", 1.0))
    ]
    assert values(join_records(rows), "tenant") == ["a", "b", "a"]


def test_a_file_that_is_read_again_is_known_by_what_it_told() -> None:
    def row(wall: int, server: str | None, told: str | None) -> RequestRecord:
        return RequestRecord(
            *("tensorrt", "engine", NOW_NS + wall),
            ended_ns=NOW_NS + wall + SECOND,
            request_id="7",
            total_seconds=1.0,
            server=server,
            inferred=told,
        )

    again = [row(0, None, "arrived_ns"), row(40, "a:1", "arrived_ns,server")]
    assert len(join_records(again)) == 1
    others = [row(0, "a:1", "server"), row(40, "a:1", "server"), row(0, "b:1", None)]
    assert len(join_records(others)) == 3


def test_tokens_of_the_gateway_are_those_of_its_one_engine_row() -> None:
    tokens: dict[str, Any] = {"input_tokens": 10, "output_tokens": 20}
    found = join_records([engine(1), gateway(1, **tokens), engine(2), gateway(2, **tokens),
                          engine(3, trace=f"{3:032x}")])  # fmt: skip
    assert values(found, "output_tokens") == [20, None, None], "the sum of two is nobody's"
    outer = gateway(5, **tokens)
    inner = gateway(6, outer.trace_id, parent_span_id=outer.span_id)
    assert values(join_records([outer, inner]), "input_tokens") == [10]


def test_the_same_span_id_in_two_traces_is_two_requests() -> None:
    assert len(join_records([engine(1, "1" * 32), engine(1, "2" * 32)])) == 2


@pytest.mark.parametrize("rows", [[], [engine(1)], [engine(1, ended_ns=NOW_NS + 1, status=200)]])
def test_columns_have_one_type_whatever_is_in_them(rows: list[RequestRecord]) -> None:
    frame = join_records(rows)
    kinds = {str: "str", float: "float64", int: "Int64"}
    expected = {name: kinds[kind] for name, kind in COLUMNS.items()}
    expected |= {
        "arrived_ns": "int64",
        "client_seconds": "float64",
        "client_ttft_seconds": "float64",
        "joined": "str",
    }
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == expected
    assert len(frame) == len(rows)


def test_times_are_exact_to_the_nanosecond() -> None:
    found = join_records([engine(1, ended_ns=NOW_NS + 3), engine(2)])
    assert found["arrived_ns"].tolist() == [NOW_NS + 1, NOW_NS + 2]
    assert values(found, "ended_ns") == [NOW_NS + 3, None]
    extreme = join_records([engine(1, arrived_ns=2**63 - 2, ended_ns=2**63 - 1)])
    assert (extreme["arrived_ns"][0], extreme["ended_ns"][0]) == (2**63 - 2, 2**63 - 1)
