"""The pages where there are no records, only a real Prometheus that scraped an exporter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailscope.app.buckets import Buckets
from tailscope.app.palette import OTHERS
from tailscope.app.prometheus import Prometheus
from tailscope.app.questions import Unanswered, names, read
from tailscope.app.roles import OPERATOR, Viewer
from tailscope.app.views.outline import tenants
from tailscope.catalogue.requests import SECONDS_BUCKETS
from tailscope.triage.scope import Scope
from tests.openpage import Open, open_page, words
from tests.process import free
from tests.prometheus import Prometheus as Server
from tests.prometheus import backfill, running

__all__ = ["open_page"]

SPAN, STEP = 900, 15
"""Seconds of the history, and between two scrapes."""

TIMES = {"slow": 4.4, "fast": 0.25}
"""Seconds of each request of a tenant; a request a second each."""

LABELS = 'engine="vllm",server="h:1",model="m"'


RARE = 'engine="vllm",server="secret:1",model="theirs"'
"""Engine of a tenant of three requests."""


def history(end: int, *, rare: bool = False) -> str:
    """OpenMetrics of two tenants and an engine, as an exporter would have served them.

    Args:
        end: When it ended, Unix seconds.
        rare: Whether a third tenant had a few requests, on an engine of its own.
    """
    told: dict[str, list[str]] = {}

    def add(family: str, kind: str, sample: str, value: float, at: int) -> None:
        lines = told.setdefault(family, [f"# TYPE {family} {kind}"])
        lines.append(f"{sample} {value:g} {at}")

    for at in range(end - SPAN, end + 1, STEP):
        count = at - (end - SPAN)
        served = [(f'{LABELS},tenant="{tenant}"', took, count) for tenant, took in TIMES.items()]
        if rare:
            served.append((f'{RARE},tenant="rare"', 8.0, min(count // 60, 3)))
        for labels, took, count in served:
            for name in ("request_seconds", "request_time_to_first_token_seconds"):
                family = f"tailscope_{name}"
                for bound in (*SECONDS_BUCKETS, np.inf):
                    edge = "+Inf" if np.isinf(bound) else f"{bound:g}"
                    sample = f'{family}_bucket{{{labels},le="{edge}"}}'
                    add(family, "histogram", sample, count if took <= bound else 0, at)
                add(family, "histogram", f"{family}_count{{{labels}}}", count, at)
                add(family, "histogram", f"{family}_sum{{{labels}}}", count * took, at)
            held = count * took
            add(
                "tailscope_tenant_slot_seconds",
                "counter",
                f"tailscope_tenant_slot_seconds_total{{{labels}}}",
                held,
                at,
            )
            for outcome, share in (("ok", 0.9), ("error", 0.1)):
                sample = f'tailscope_requests_total{{{labels},outcome="{outcome}"}}'
                add("tailscope_requests", "counter", sample, count * share, at)
        count = at - (end - SPAN)
        waiting = 'tailscope_engine_waiting_request_seconds_total{engine="vllm",server="h:1"}'
        add("tailscope_engine_waiting_request_seconds", "counter", waiting, 3 * count, at)
        add("tailscope_build_info", "gauge", 'tailscope_build_info{version="1"}', 1, at)
    return "\n".join(line for lines in told.values() for line in lines) + "\n# EOF\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    """A Prometheus with a history that ended a moment ago; and when, Unix seconds."""
    folder, end = tmp_path_factory.mktemp("series"), int(time.time()) - 5
    (folder / "history").write_text(history(end), encoding="utf-8")
    backfill(folder / "history", folder / "data")
    with running(folder / "data") as started:
        yield started, end


def test_series_alone_fill_the_overview(
    open_page: Open, server: tuple[Server, int], tmp_path: Path
) -> None:
    test = open_page(settings_of={"prometheus": server[0].url}, window="15m", live="false")
    said = words(test)
    assert "percentiles are estimates from buckets" in said
    assert "From Prometheus: bucket estimate." in said
    shown = {one.label: (one.value, one.delta) for one in test.metric}
    assert shown["p99 total"][1] == "4 to 5 s"
    assert shown["p50 total"][1] in ("0.2 to 0.3 s", "3 to 4 s", "4 to 5 s")
    assert "No series of GPU activity" in said
    assert "No series of stages" in said
    assert test.sidebar.multiselect(key="tenant").options == ["fast", "slow"]
    assert test.sidebar.multiselect(key="server").options == ["h:1"]


@pytest.mark.parametrize(
    "page", ["slow", "request", "tenants", "comparison", "fixes", "capacity", "offline"]
)
def test_pages_that_need_records_say_why_and_how(
    open_page: Open, server: tuple[Server, int], page: str
) -> None:
    test = open_page(settings_of={"prometheus": server[0].url}, page=page)
    said = words(test)
    assert "No request records, only series from Prometheus" in said
    assert any(reason in said for reason in ("This page", "Who slowed whom is not shown"))
    code = "\n".join(block.value for block in test.code)
    assert "tailscope exporter --engine http://127.0.0.1:8000 --data DIR" in code


def test_loads_and_slow_shares_are_those_that_were_recorded(server: tuple[Server, int]) -> None:
    started, end = server
    window = (end - SPAN + STEP) * 10**9, end * 10**9
    found = read(Prometheus(started.url), *window, Scope())
    assert found.slow == 4.0
    table = tenants(found).set_index("tenant")
    assert list(table.index) == ["slow", "fast"]
    assert table.loc["slow", "slow_share"] == pytest.approx(100)
    assert table.loc["fast", "slow_share"] == pytest.approx(0)
    assert table.loc["slow", "failed"] == pytest.approx(10, abs=0.5)
    whole = sum(TIMES.values())
    assert table.loc["slow", "batch"] == pytest.approx(100 * TIMES["slow"] / whole, abs=1)
    assert table["requests"].to_list() == pytest.approx([SPAN, SPAN], rel=0.05)
    waiting = found.lines["queue"]
    assert set(waiting["what"]) == {"waiting"}
    assert waiting["value"].median() == pytest.approx(3, rel=0.02)
    part = found.over_time.query("part == 'total' and level == 'p99'")
    assert part["seconds"].between(4, 5).all() and len(part) > 20
    one = read(Prometheus(started.url), *window, Scope(tenants=("fast",), servers=("h:1",)))
    assert one.parts["total"].quantile(0.99).high == 0.3
    assert read(Prometheus(started.url), *window, Scope(servers=('"}',))).parts == {}


def test_a_tenant_sees_others_as_one_in_series(server: tuple[Server, int]) -> None:
    started, end = server
    window, viewer = ((end - SPAN) * 10**9, end * 10**9), Viewer("fast")
    asked = Prometheus(started.url)
    found = read(asked, *window, Scope(), viewer)
    assert set(tenants(found)["tenant"]) == {"fast", OTHERS}
    assert set(found.batch["tenant"]) == {"fast", OTHERS}
    assert names(asked, *window, viewer)["tenant"] == ["fast", OTHERS]
    assert names(asked, *window, OPERATOR)["tenant"] == ["fast", "slow"]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, int]]:
    """The same with a tenant of three requests on an engine of its own."""
    folder, end = tmp_path_factory.mktemp("crowd"), int(time.time()) - 5
    (folder / "history").write_text(history(end, rare=True), encoding="utf-8")
    backfill(folder / "history", folder / "data")
    with running(folder / "data") as started:
        yield Prometheus(started.url), end


def test_tenants_of_few_requests_are_not_named_in_what_is_shared(
    crowd: tuple[Prometheus, int],
) -> None:
    asked, end = crowd
    window, viewer = ((end - SPAN) * 10**9, end * 10**9), Viewer(sharing=True)
    assert "rare" in set(tenants(read(asked, *window, Scope()))["tenant"])
    found = read(asked, *window, Scope(), viewer)
    assert set(tenants(found)["tenant"]) == {"fast", "slow", OTHERS}
    assert set(found.tenants) == {"fast", "slow", OTHERS}
    assert set(found.batch["tenant"]) <= {"fast", "slow", OTHERS}
    assert names(asked, *window, viewer)["tenant"] == ["fast", OTHERS, "slow"]
    only = read(asked, *window, Scope(tenants=(OTHERS,)), viewer)
    assert set(tenants(only)["tenant"]) == {OTHERS}
    assert only.parts["total"].quantile(0.5).low >= 5


def test_an_address_does_not_tell_a_tenant_of_others(crowd: tuple[Prometheus, int]) -> None:
    asked, end = crowd
    window, viewer = ((end - SPAN) * 10**9, end * 10**9), Viewer("fast")
    offered = names(asked, *window, viewer)
    assert offered == {"tenant": ["fast", OTHERS], "model": ["m"], "server": ["h:1"]}
    for hidden in ("slow", "rare", "nobody"):
        found = read(asked, *window, Scope(tenants=(hidden,)), viewer)
        assert (found.by_engine, found.tenants) == (True, {})
        assert tenants(found).empty
    both = read(asked, *window, Scope(tenants=("fast", "slow")), viewer)
    assert set(tenants(both)["tenant"]) == {"fast"}
    others = read(asked, *window, Scope(tenants=(OTHERS,)), viewer)
    assert set(tenants(others)["tenant"]) == {OTHERS}
    # Of engines that it did not use it is told nothing.
    assert read(asked, *window, Scope(servers=("secret:1",)), viewer).empty
    whole = read(asked, *window, Scope(), viewer)
    assert whole.lines["queue"]["value"].median() == pytest.approx(3, rel=0.02)
    assert whole.parts["total"].total == pytest.approx(2 * SPAN, rel=0.05)
    assert read(asked, *window, Scope(), Viewer("stranger")).empty


def test_a_prometheus_without_our_series_says_how_it_gets_them(
    open_page: Open, server: tuple[Server, int]
) -> None:
    long_ago = {"window": "between", "from": "2020-01-01T00:00Z", "to": "2020-01-01T01:00Z"}
    test = open_page(settings_of={"prometheus": server[0].url}, **long_ago)
    assert "answers, but has no series of Tailscope from 2020-01-01 00:00:00" in words(test)
    assert "job_name: tailscope" in test.code[0].value


def test_buckets_say_as_much_as_they_know() -> None:
    rows = pd.DataFrame({"le": ["1", "2", "+Inf"], "value": [50.0, 90.0, 100.0]})
    known = Buckets.of(rows)
    assert known is not None
    assert known.quantile(0.5).value == pytest.approx(1.0)
    assert known.quantile(0.7).value == pytest.approx(1.5)
    last = known.quantile(0.99)
    assert (last.value, last.low, last.high) == (2.0, 2.0, None)
    assert known.above(1.0) == pytest.approx(0.5)
    assert Buckets.of(rows.assign(value=0.0)) is None
    assert Buckets.of(rows.iloc[:2]) is None
    again = Buckets.of(pd.concat([rows, rows]))
    assert again is not None and again.total == 200


def test_what_fails_is_said_and_can_be_asked_again(open_page: Open) -> None:
    url = f"http://{free()}"  # nobody listens
    test = open_page(settings_of={"prometheus": url})
    said = "".join(str(one.value) for one in test.error).replace("\\", "")
    assert "it cannot be reached" in said
    assert [one.label for one in test.button] == ["Ask again now"]
    assert not test.metric
    test.button[0].click().run()
    assert not test.exception
    with pytest.raises(Unanswered):
        read(Prometheus(url), 0, 900 * 10**9, Scope())
