"""Rows that are paired as they come."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailscope.exporter import matcher
from tailscope.exporter.matcher import WAIT_SECONDS, Matcher, Pair
from tailscope.records.reader import join_records
from tailscope.records.record import RequestRecord

NOW_NS = 1_796_000_000_000_000_000
TRACE = "a" * 32


class Watched:
    """A matcher, its clock, and the names of what it handed on: engine's and gateway's."""

    def __init__(self, expect_gateway: bool = True) -> None:
        self.now = 0.0
        self.pairs: list[tuple[str | None, str | None]] = []
        self.matcher = Matcher(
            lambda pairs: self.pairs.extend((_name(mine), _name(theirs)) for mine, theirs in pairs),
            expect_gateway=expect_gateway,
            now=lambda: self.now,
        )

    def add(self, *records: RequestRecord) -> None:
        for record in records:
            self.matcher.add([record])

    def wait(self, seconds: float = WAIT_SECONDS) -> None:
        self.now += seconds
        self.matcher.expire()


def _name(record: RequestRecord | None) -> str | None:
    return record.model if record else None


def row(role: str, name: str, **values: Any) -> RequestRecord:
    return RequestRecord("x", role, NOW_NS, model=name, **values)


def engine(
    name: str, parent: str | None = "s1", trace: str | None = TRACE, **more: Any
) -> RequestRecord:
    return row("engine", name, parent_span_id=parent, trace_id=trace, **more)


def gateway(
    name: str, span: str | None = "s1", trace: str | None = TRACE, **more: Any
) -> RequestRecord:
    return row("gateway", name, span_id=span, trace_id=trace, **more)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("first", ["engine", "gateway"])
@pytest.mark.parametrize("pause", [0, WAIT_SECONDS - 1])
def test_a_pair_counts_once_whatever_comes_first(
    watched: Watched, first: str, pause: float
) -> None:
    rows = [engine("e"), gateway("g")]
    if first == "gateway":
        rows.reverse()
    watched.add(rows[0])
    assert watched.pairs == []
    watched.wait(pause)
    watched.add(rows[1])
    assert watched.pairs == [("e", "g")]
    watched.wait(100)
    assert watched.pairs == [("e", "g")]


def test_what_has_no_partner_counts_alone_after_a_while(watched: Watched) -> None:
    watched.add(engine("e", trace="b" * 32), gateway("g", trace="c" * 32))
    watched.wait(WAIT_SECONDS - 0.1)
    assert watched.pairs == []
    watched.wait(0.1)
    assert watched.pairs == [("e", None), (None, "g")]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_an_agents_calls_are_paired_by_the_calling_span(
    watched: Watched, order: tuple[int, ...]
) -> None:
    rows = [engine("e1", "s1"), engine("e2", "s2"), gateway("g1", "s1"), gateway("g2", "s2")]
    watched.add(*(rows[index] for index in order))
    assert sorted(watched.pairs) == [("e1", "g1"), ("e2", "g2")]
    watched.wait(100)
    assert len(watched.pairs) == 2


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_better_partner_is_waited_for(watched: Watched, order: tuple[int, ...]) -> None:
    rows = [engine("e", "s2"), gateway("other call", "s1"), gateway("mine", "s2")]
    watched.add(*(rows[index] for index in order))
    watched.wait()
    assert sorted(watched.pairs, key=str) == [("e", "mine"), (None, "other call")]


@pytest.mark.parametrize("first", ["engine", "gateway"])
def test_a_trace_with_one_gateway_row_is_met_in_the_end(watched: Watched, first: str) -> None:
    rows = [engine("e", "a span between"), gateway("g", "s1")]
    if first == "gateway":
        rows.reverse()
    watched.add(*rows)
    assert watched.pairs == [], "the gateway row of the calling span may yet come"
    watched.wait()
    assert watched.pairs == [("e", "g")]


@pytest.mark.parametrize("first", ["engine", "gateway"])
@pytest.mark.parametrize(("parent", "span"), [(None, "s1"), ("s1", None), (None, None)])
def test_where_no_better_one_can_come_it_is_met_at_once(
    watched: Watched, first: str, parent: str | None, span: str | None
) -> None:
    rows = [engine("e", parent), gateway("g", span)]
    if first == "gateway":
        rows.reverse()
    watched.add(*rows)
    assert watched.pairs == [("e", "g")]


def test_two_gateway_rows_of_a_trace_are_not_guessed_between(watched: Watched) -> None:
    watched.add(engine("e", None), gateway("g1", None), gateway("g2", None))
    assert watched.pairs == [("e", "g1")], "it was the only one when it came"
    watched.wait(100)
    again = Watched()
    again.add(gateway("g1", None), gateway("g2", None), engine("e", None))
    again.wait()
    assert sorted(again.pairs, key=str) == [("e", None), (None, "g1"), (None, "g2")]


# Several views of one request


def near(name: str, parent: str | None = "s1") -> RequestRecord:
    """A row of the middleware, which the gateway called."""
    found = gateway(name, "s9", parent_span_id=parent)
    found.source = "middleware"
    return found


@pytest.mark.parametrize("parent", ["s1", "caller"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_outer_view_counts_not(watched: Watched, order: tuple[int, ...], parent: str) -> None:
    outer = gateway("outer", parent_span_id="caller", tenant="acme")
    rows = [engine("e", "s9"), near("near", parent), outer]
    watched.add(*(rows[index] for index in order))
    watched.wait(100)
    watched.wait(100)
    assert watched.pairs == [("e", "near")]
    assert watched.matcher._gateways._rows == ({}, {}, {})
    assert watched.matcher._called == {}
    assert len(join_records(rows)) == 1


def told(rows: list[RequestRecord], pause: float = 1.0) -> list[tuple[str | None, str | None]]:
    """Tenant and outcome of each request, of rows that come one after the other."""
    clock = [0.0]
    found: list[Pair] = []
    matcher = Matcher(found.extend, expect_gateway=True, now=lambda: clock[0])
    for row in rows:
        matcher.add([row])
        clock[0] += pause
    for _ in range(4):
        clock[0] += WAIT_SECONDS
        matcher.expire()
    return [
        (gateway.tenant if gateway else None, gateway.outcome if gateway else None)
        for _, gateway in found
    ]


@pytest.mark.parametrize("parent", ["s1", "caller"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_outer_view_gives_its_tenant_and_its_word(order: tuple[int, ...], parent: str) -> None:
    outer = gateway("outer", parent_span_id="caller", tenant="acme", outcome="queue_timeout")
    rows = [engine("e", "s9"), near("near", parent), outer]
    assert told([rows[index] for index in order]) == [("acme", "queue_timeout")]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_nearest_caller_names_the_tenant(order: tuple[int, ...]) -> None:
    program = gateway("program", "s0", tenant="program")
    between = gateway("between", "s1", tenant="team", parent_span_id="s0")
    rows = [program, between, near("near"), engine("e", "s9")]
    assert [tenant for tenant, _ in told([rows[index] for index in order])] == ["team"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_attempts_of_one_call_share_its_tenant(order: tuple[int, ...]) -> None:
    first, second = near("first"), near("second")
    first.span_id, first.outcome = "s8", "rejected"
    rows = [first, second, gateway("call", tenant="acme", outcome="ok"), engine("e", "s9")]
    assert Counter(told([rows[index] for index in order])) == Counter(
        {("acme", "rejected"): 1, ("acme", None): 1}
    )


def test_a_nearer_view_that_comes_after_the_count_is_no_second_request() -> None:
    log = gateway("log", None, tenant="acme")
    assert told([log, engine("e", "s9"), near("near", "caller")]) == [("acme", None)]
    assert told([log, near("near", "caller")], 1.5 * WAIT_SECONDS) == [("acme", None)]


# What comes twice


@pytest.mark.parametrize("expect_gateway", [True, False])
@pytest.mark.parametrize("pause", [0, 5, 100])
def test_what_is_sent_twice_counts_once(expect_gateway: bool, pause: float) -> None:
    watched = Watched(expect_gateway)
    rows = [engine("e", span_id="e1"), engine("alone", "x", "b" * 32, span_id="e1"), gateway("g")]
    for _ in range(3):
        watched.add(*rows)
        watched.wait(pause)
    watched.wait(100)
    assert len(watched.pairs) == 2
    assert Counter(pair[0] for pair in watched.pairs) == {"e": 1, "alone": 1}


def test_what_was_seen_is_forgotten_in_the_end(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope.exporter.views._MAX_SEEN", 10)
    for number in range(100):
        watched.add(engine(str(number), str(number), f"{number:032x}", span_id="e1"))
    seen = watched.matcher._views
    assert len(seen._new) + len(seen._old) <= 20


# Several views of one request of an engine


def of_engine(name: str, span: str | None, request: str = "r", **more: Any) -> RequestRecord:
    """A row of an engine that has a file beside its spans."""
    return engine(name, span_id=span, request_id=request, **more)


@pytest.mark.parametrize("first", ["span", "line"])
def test_a_span_and_a_line_of_a_file_count_once(first: str) -> None:
    """Whatever comes first; once both have been seen, the first waits for the second."""
    watched = Watched(expect_gateway=False)
    for number in range(3):
        rows = [of_engine("s", f"s{number}", f"r{number}"), of_engine("l", None, f"r{number}")]
        if first == "line":
            rows.reverse()
        watched.add(rows[0])
        watched.wait(WAIT_SECONDS - 1)
        watched.add(rows[1])
    assert watched.pairs == [("s" if first == "span" else "l", None), ("s", None), ("s", None)]
    watched.add(of_engine("alone", "s9" if first == "span" else None, "r9"))
    assert len(watched.pairs) == 3
    watched.wait()
    assert watched.pairs[3:] == [("alone", None)]


def test_what_another_view_tells_is_put_in() -> None:
    handed: list[RequestRecord | None] = []
    one = Matcher(
        lambda pairs: handed.extend(mine for mine, _ in pairs),
        expect_gateway=False,
        now=lambda: 0.0,
    )
    for number in range(2):
        one.add([of_engine("s", f"s{number}", f"r{number}", decode_seconds=1.0)])
        one.add([of_engine("l", None, f"r{number}", queue_seconds=0.5, outcome="aborted")])
    assert handed[1] is not None
    assert (handed[1].decode_seconds, handed[1].queue_seconds) == (1.0, 0.5)
    assert (handed[1].model, handed[1].outcome) == ("s", "aborted")


def test_two_requests_with_one_id_have_two_lines() -> None:
    watched = Watched(expect_gateway=False)
    watched.add(of_engine("s1", "s1"), of_engine("s2", "s2"))
    watched.add(of_engine("l1", None), of_engine("l2", None))
    watched.wait(100)
    assert watched.pairs == [("s1", None), ("s2", None)]


def test_a_row_waits_for_its_stages_as_long_as_they_come() -> None:
    handed: list[float | None] = []
    now = 0.0
    one = Matcher(
        lambda pairs: handed.extend(mine.queue_seconds for mine, _ in pairs if mine),
        expect_gateway=False,
        staged=["x"],
        now=lambda: now,
    )
    one.add([of_engine("s", "s1")])
    assert handed == []
    one.add([], [of_engine("s", "s1", queue_seconds=0.5)])
    assert handed == [0.5]
    one.add([of_engine("s", "s2", "r2")])
    now = WAIT_SECONDS
    one.expire()
    assert handed == [0.5, None], "none came"
    one.add([], [of_engine("s", "s2", "r2", queue_seconds=0.5)])
    assert handed == [0.5, None], "it has been counted"


@pytest.mark.parametrize("first", ["engine", "gateway"])
def test_a_request_id_is_enough(watched: Watched, first: str) -> None:
    rows = [engine("e", request_id="r"), gateway("g", None, None, request_id="r")]
    if first == "gateway":
        rows.reverse()
    watched.add(*rows)
    assert watched.pairs == [("e", "g")]


def test_a_request_id_of_two_gateway_rows_is_none(watched: Watched) -> None:
    watched.add(*(gateway(f"g{n}", None, None, request_id="r") for n in range(2)))
    watched.add(engine("e", request_id="r"))
    watched.wait()
    assert sorted(watched.pairs, key=str) == [("e", None), (None, "g0"), (None, "g1")]


def test_rows_without_any_id_count_alone(watched: Watched) -> None:
    watched.add(engine("e", None, None), gateway("g", None, None))
    watched.wait()
    assert watched.pairs == [("e", None), (None, "g")]


@pytest.mark.parametrize("first", ["engine", "gateway"])
def test_parts_of_one_call_each_count_and_the_call_does_not(watched: Watched, first: str) -> None:
    """``n=2`` makes two engine requests of one call."""
    rows = [engine("e1"), engine("e2"), gateway("g")]
    if first == "gateway":
        rows.reverse()
    watched.add(*rows)
    watched.wait(100)
    assert sorted(watched.pairs) == [("e1", "g"), ("e2", "g")]


def test_a_gateway_row_that_comes_twice_counts_once(watched: Watched) -> None:
    watched.add(gateway("g"), engine("e"), gateway("g"))
    watched.wait(100)
    assert watched.pairs == [("e", "g")]


# Before a gateway is known


def test_without_a_gateway_nobody_waits() -> None:
    watched = Watched(expect_gateway=False)
    watched.add(engine("e"))
    assert watched.pairs == [("e", None)]


def test_the_first_gateway_row_may_belong_to_an_engine_row_that_was_counted() -> None:
    watched = Watched(expect_gateway=False)
    watched.add(engine("e"), engine("e2", "s2"))
    watched.add(gateway("g"))
    watched.wait(100)
    assert watched.pairs == [("e", None), ("e2", None)]
    watched.add(engine("e3", "s3"), gateway("g3", "s3"))
    assert watched.pairs[2:] == [("e3", "g3")]


# Too late


@pytest.mark.parametrize("first", ["engine", "gateway"])
def test_a_partner_that_comes_too_late_does_not_count_again(watched: Watched, first: str) -> None:
    rows = [engine("e"), gateway("g")]
    if first == "gateway":
        rows.reverse()
    watched.add(rows[0])
    watched.wait()
    watched.wait(WAIT_SECONDS - 1)
    watched.add(rows[1])
    watched.wait(100)
    assert watched.pairs == [("e", None) if first == "engine" else (None, "g")]


def test_a_long_trace_is_not_one_request(watched: Watched) -> None:
    """An agent works for minutes in one trace, and some of its calls are aborted."""
    for call in range(5):
        watched.add(gateway(f"aborted{call}", f"a{call}"))
        watched.wait(WAIT_SECONDS + 1)
        watched.add(engine(f"e{call}", f"s{call}"), gateway(f"g{call}", f"s{call}"))
        watched.wait(WAIT_SECONDS + 1)
    expected: list[tuple[str | None, str | None]]
    expected = [(None, f"aborted{call}") for call in range(5)]
    expected += [(f"e{call}", f"g{call}") for call in range(5)]
    assert sorted(watched.pairs, key=str) == sorted(expected, key=str)


def test_flush_counts_all_that_waits(watched: Watched) -> None:
    watched.add(engine("e"), gateway("g", "s2", "b" * 32))
    watched.matcher.flush()
    assert watched.pairs == [("e", None), (None, "g")]
    watched.wait(100)
    assert len(watched.pairs) == 2


# Bounds


def test_memory_is_bounded_and_nothing_is_lost() -> None:
    watched = Watched()
    for number in range(50_000):
        watched.matcher.add([engine(str(number), "s", f"{number:032x}")])
    assert len(watched.pairs) > 20_000
    assert _held(watched.matcher) <= 40_001
    watched.wait()
    assert len(watched.pairs) == 50_000
    watched.wait()
    assert _held(watched.matcher) == 0
    assert not any(rows for index in _indices(watched.matcher) for rows in index)


def _held(matcher: Matcher) -> int:
    return len(matcher._waiting) + len(matcher._settled) + matcher._early_rows


def _indices(matcher: Matcher) -> list[Any]:
    return [matcher._engines._rows, matcher._gateways._rows]


# As the reader does


@pytest.mark.parametrize("seed", range(20))
def test_it_counts_what_the_reader_of_the_store_joins(seed: int) -> None:
    """Whatever the order, where identities are clear."""
    random_ = random.Random(seed)
    rows = []
    for number in range(60):
        trace = f"{number // random_.choice((1, 3)) + 1:032x}"
        call, mine = f"{number:016x}", f"f{number:015x}"
        if random_.random() < 0.9:
            for part in range(random_.choice((1, 1, 2))):
                part_id = f"{part}{mine[1:]}"
                rows.append(engine(f"e{number}.{part}", call, trace, span_id=part_id))
        if random_.random() < 0.8:
            rows.append(gateway(f"g{number}", call, trace, tenant=f"t{number}"))
    random_.shuffle(rows)
    watched = Watched()
    for one in rows:
        watched.add(one)
        watched.wait(random_.random() * 0.1)
    watched.wait(100)
    joined = join_records(rows)
    expected = Counter(
        (model, tenant if known else None)
        for model, tenant, known in zip(
            joined["model"], joined["tenant"], joined["tenant"].notna(), strict=True
        )
    )
    counted = Counter(
        (mine or theirs, f"t{theirs[1:]}" if theirs else None) for mine, theirs in watched.pairs
    )
    assert counted == expected


# Whatever comes when


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client: what the gateway and the engine tell of it, and when."""

    trace: int
    start: float
    gateway_after: float
    parts_after: tuple[float, ...]
    """Several where the client asked for several answers, none where it gave up in time."""

    def rows(self, number: int) -> list[tuple[float, RequestRecord]]:
        trace, span = f"{self.trace + 1:032x}", f"{number + 1:016x}"
        mine = [
            (self.start + after, engine(f"e{number}.{part}", span, trace))
            for part, after in enumerate(self.parts_after)
        ]
        return [*mine, (self.start + self.gateway_after, gateway(f"g{number}", span, trace))]

    def counts(self, number: int) -> list[tuple[str | None, str | None]]:
        parts = [(f"e{number}.{part}", f"g{number}") for part in range(len(self.parts_after))]
        return [*parts] or [(None, f"g{number}")]


SOON = st.floats(0, WAIT_SECONDS - 0.01)
CALLS = st.builds(
    Call,
    trace=st.integers(0, 3),
    start=st.floats(0, 60),
    gateway_after=SOON,
    parts_after=st.lists(SOON, max_size=2).map(tuple),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(CALLS, max_size=12), st.floats(0.1, 2))
@example(
    # The call that was given up is the only one known of its trace when its time is over.
    [Call(0, 0.0, 0.0, ()), Call(0, 9.0, 2.0, (0.5,))],
    1.0,
)
def test_each_call_counts_once_with_its_own_partner(calls: list[Call], tick: float) -> None:
    """However calls of a trace overlap, and whichever side of each is told first."""
    rows = [row for number, call in enumerate(calls) for row in call.rows(number)]
    watched = Watched()
    for when, one in sorted(rows, key=itemgetter(0)):
        while watched.now + tick < when:
            watched.wait(tick)
        watched.now = when
        watched.add(one)
    for _ in range(3):
        watched.wait()
    expected = [pair for number, call in enumerate(calls) for pair in call.counts(number)]
    assert Counter(watched.pairs) == Counter(expected)
    assert _held(watched.matcher) == 0
    assert not any(rows for index in _indices(watched.matcher) for rows in index)


@settings(max_examples=100, deadline=None)
@given(st.booleans(), st.sampled_from(["span", "request"]), st.floats(0, 40), st.floats(0.01, 1))
def test_a_late_partner(engine_first: bool, key: str, late: float, tick: float) -> None:
    """Together, then once, then twice: never a third time, and never not at all."""
    span = ("s1", TRACE) if key == "span" else (None, None)
    rows = [engine("e", *span, request_id="r"), gateway("g", *span, request_id="r")]
    if not engine_first:
        rows.reverse()
    watched = Watched()
    watched.add(rows[0])
    while watched.now + tick < late:
        watched.wait(tick)
    watched.now = late
    watched.add(rows[1])
    for _ in range(4):
        watched.wait()
    alone: list[tuple[str | None, str | None]] = [("e", None), (None, "g")]
    if not engine_first:
        alone.reverse()
    if late < WAIT_SECONDS:
        assert watched.pairs == [("e", "g")]
    elif late < 2 * WAIT_SECONDS:
        assert watched.pairs in ([("e", "g")], alone[:1])  # the clock ticks now and then
    elif late > 2 * (WAIT_SECONDS + tick):
        assert watched.pairs == alone
    assert len(watched.pairs) in (1, 2)


@pytest.mark.parametrize("span", ["s1", "another"])
@pytest.mark.parametrize("late", [0.1, WAIT_SECONDS - 0.1])
def test_the_first_gateway_row_is_not_counted_beside_its_engine_row(span: str, late: float) -> None:
    """Also where it is known by its trace only, and waits for a better one first."""
    watched = Watched(expect_gateway=False)
    watched.add(engine("e"))
    watched.wait(late)
    watched.add(gateway("g", span))
    for _ in range(30):
        watched.wait(1)
    assert watched.pairs == [("e", None)]


@pytest.mark.parametrize("make", [engine, gateway])
@pytest.mark.parametrize("trace", ["one", "many"])
def test_more_rows_than_may_wait_each_count_once(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., RequestRecord], trace: str
) -> None:
    monkeypatch.setattr(matcher, "_MAX_ROWS", 50)
    watched = Watched()
    for number in range(500):
        watched.add(make(f"x{number}", f"s{number}", TRACE if trace == "one" else str(number)))
        assert _held(watched.matcher) <= 100
    watched.matcher.flush()
    names = [mine or theirs for mine, theirs in watched.pairs]
    assert names == [f"x{number}" for number in range(500)]


def test_rows_before_any_gateway_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "_MAX_EARLY_ROWS", 50)
    watched = Watched(expect_gateway=False)
    for number in range(500):
        watched.add(engine(f"e{number}", f"s{number}", f"{number + 1:032x}"))
        assert _held(watched.matcher) <= 50
    assert watched.pairs == [(f"e{number}", None) for number in range(500)]
    watched.add(*(gateway(f"g{n}", f"s{n}", f"{n + 1:032x}") for n in (499, 0)))
    watched.matcher.flush()
    assert watched.pairs[500:] == [(None, "g0")], "that of an engine row that is still known"


@st.composite
def identified(draw: st.DrawFn) -> list[RequestRecord]:
    """Rows whose partners are clear when all are known: by span, trace, request id, or none."""
    rows = []
    for trace in range(draw(st.integers(5, 20))):
        calls = draw(st.integers(1, 3))
        for call in range(calls):
            name, span = f"{trace}.{call}", f"{trace}{call}"
            known = draw(st.sampled_from(["span", "request", "nothing"]))
            # Of several calls in a trace only the span tells which one a row belongs to.
            bare = calls == 1 and draw(st.booleans())
            seen_trace = None if known != "span" else f"{trace + 1:032x}"
            request = f"r{name}" if known == "request" or draw(st.booleans()) else None
            for part in range(draw(st.integers(0, 2))):
                parent = draw(st.sampled_from([None, "between", span])) if bare else span
                rows.append(
                    engine(
                        f"e{name}.{part}",
                        parent,
                        seen_trace,
                        span_id=f"{part}e{span}",
                        request_id=request,
                    )
                )
            if draw(st.booleans()):
                own = None if bare and draw(st.booleans()) else span
                rows.append(
                    gateway(f"g{name}", own, seen_trace, request_id=request, tenant=f"g{name}")
                )
    return draw(st.permutations(rows))


@settings(max_examples=12, deadline=None)
@given(identified(), st.booleans())
def test_it_pairs_what_the_reader_joins_by_every_key(
    rows: list[RequestRecord], flush: bool
) -> None:
    watched = Watched()
    for one in rows:
        watched.add(one)
        watched.wait(0.1)
    if flush:
        watched.matcher.flush()
    for _ in range(3):
        watched.wait()
    joined = join_records(rows).astype(object).to_dict("records")
    expected = Counter(
        (row["model"], row["tenant"] if isinstance(row["tenant"], str) else None)
        if row["role"] == "engine"
        else (None, row["model"])
        for row in joined
    )
    assert Counter(watched.pairs) == expected
