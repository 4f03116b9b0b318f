"""The overview: what it says, in every state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailscope.app.source import Source
from tailscope.app.text import plain
from tailscope.records.store import Store
from tailscope.triage.identity import find, keys
from tailscope.triage.words import seconds
from tests import recorded
from tests.openpage import Open, diagnosed, open_page, store, table, words

__all__ = ["open_page", "store"]


def test_without_a_store_the_page_says_what_to_do(open_page: Open, tmp_path: Path) -> None:
    test = open_page(tmp_path / "none")
    assert "No exporter has written into this store." in words(test)
    code = "\n".join(block.value for block in test.code)
    assert f"--data {tmp_path / 'none'}" in code
    assert "--otlp-traces-endpoint http://127.0.0.1:4317" in code
    assert not test.metric


def test_an_empty_store_is_told_from_a_missing_one(open_page: Open, tmp_path: Path) -> None:
    Store(tmp_path).close()
    assert "no request record has come in" in words(open_page(tmp_path))


def test_the_page_opens_with_the_verdict(open_page: Open, store: Path) -> None:
    said = words(open_page(store, notice="This is a *recording*."))
    assert "This is a *recording*." in said
    assert "p50 1.72 s, p99 4.68 s over 278 requests since" in said
    assert "83 % of the slow seconds are in the queue." in said
    assert "is owed to tenant initech" in said
    assert "Grade A." in said


def test_the_numbers_are_those_of_diagnose(
    open_page: Open, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = open_page(store, window="all")
    shape = diagnosed(capsys, "--data", str(store))
    for metric in test.metric[:6]:
        level, what = metric.label.split()
        key = {"total": "total", "TTFT": "ttft"}[what]
        assert metric.value == seconds(shape["latency"][key][level]), metric.label
    assert {metric.label.split()[0] for metric in test.metric[:6]} == {"p50", "p95", "p99"}

    parts = table(test, "part").set_index("part")
    for stage, values in shape["latency"]["stages"].items():
        assert parts.loc[stage, "p99"] == values["p99"]
        assert parts.loc[stage, "requests"] == values["count"]
        assert parts.loc[stage, "slow"] == shape["slow"]["by_stage"][stage]
    assert parts.loc["time to first token", "p95"] == shape["latency"]["ttft"]["p95"]

    tenants = table(test, "slot_share").set_index("tenant")
    assert list(tenants.index) == [tenant["name"] for tenant in shape["tenants"]]
    for tenant in shape["tenants"]:
        row = tenants.loc[tenant["name"]]
        assert row["requests"] == tenant["requests"]
        assert row["p99"] == tenant["total"]["p99"]
        assert row["slot_share"] == pytest.approx(100 * tenant["slot_share"])

    slow = table(test, "excess")
    assert list(slow["request"]) == [one["request_id"] for one in shape["slow"]["slowest"]]
    assert list(slow["excess"]) == [one["excess_seconds"] for one in shape["slow"]["slowest"]]


def test_filters_and_rules_in_the_address_choose(
    open_page: Open, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = open_page(store, window="all", slow="2s", tenant="acme")
    shape = diagnosed(capsys, "--data", str(store), "--slow", "2s", "--tenant", "acme")
    assert shape["window"]["requests"] == 140
    assert "over 140 requests" in words(test)
    assert f"{shape['slow']['requests']} requests are slow: 2.00 s or more." in words(test)
    assert test.sidebar.selectbox(key="slow").value == "2s"
    assert test.sidebar.multiselect(key="tenant").value == ["acme"]


def test_a_filter_in_the_page_chooses(open_page: Open, store: Path) -> None:
    test = open_page(store)
    test.sidebar.multiselect(key="tenant").set_value(["globex"]).run()
    assert "over 37 requests" in words(test)
    assert not test.exception


def test_a_window_without_requests_offers_all(open_page: Open, tmp_path: Path) -> None:
    store = recorded.store(tmp_path / "s", recorded.shifted(recorded.records(), ago=4000))
    test = open_page(store)
    assert "The store holds requests from" in words(test)
    test.button[0].click().run()
    assert not test.exception
    assert test.sidebar.selectbox(key="window").value == "all"
    assert "over 278 requests" in words(test)


def test_a_request_in_the_address_is_shown(open_page: Open, store: Path) -> None:
    frame = Source(store).window(None).frame
    position = find(frame, "tail-0216-umbrella")
    assert position is not None
    for name in (keys(frame).iloc[position], "tail-0216-umbrella"):
        said = words(open_page(store, request=name))
        assert "Request tail-0216-umbrella" in said
        assert "It took 4.32 s: 0.437 s frontend, 3.26 s queue" in said
        assert "tenant initech held 6.5 places on average" in said


def test_an_unknown_request_is_not_invented(open_page: Open, store: Path) -> None:
    said = words(open_page(store, request="[nobody](http://example.org)"))
    assert "No request [nobody](http://example.org), in this time window" in said
    assert "over 278 requests" in said


def test_one_request_is_a_page(open_page: Open, tmp_path: Path) -> None:
    rows = [row for row in recorded.records() if row.request_id == "tail-0001-acme"]
    assert len(rows) == 2
    store = recorded.store(tmp_path / "s", recorded.shifted(rows, ago=5))
    said = words(open_page(store))
    assert "over 1 request since" in said
    assert "Fewer than 20 requests are too few" in said
    assert "No request is slow." in said


def test_without_tenants_the_page_says_unknown(open_page: Open, tmp_path: Path) -> None:
    rows = [row for row in recorded.records() if row.role == "engine"]
    store = recorded.store(tmp_path / "s", recorded.shifted(rows, ago=5))
    test = open_page(store)
    assert "278 of 278 requests have no tenant" in words(test)
    assert list(table(test, "slot_share")["tenant"]) == ["unknown"]


def test_with_totals_alone_the_page_leaves_out_what_nobody_knows(
    open_page: Open, tmp_path: Path
) -> None:
    rows = [row for row in recorded.records() if row.role == "gateway"]
    for row in rows:
        row.ttft_seconds = None
    store = recorded.store(tmp_path / "s", recorded.shifted(rows, ago=5))
    test = open_page(store)
    said = words(test)
    assert "p50 1.73 s, p99 4.72 s over 278 requests" in said
    assert "No stage times are known" in said
    assert [metric.value for metric in test.metric][3:6] == ["unknown"] * 3
    assert "queue" not in list(table(test, "part")["part"])
    assert {"ttft_p99", "slot_share"}.isdisjoint(table(test, "tenant").columns)


def test_names_from_clients_are_shown_as_they_are(open_page: Open, tmp_path: Path) -> None:
    name = "<b>**x**</b> :red[y] $z$ [l](http://example.org)"
    rows = recorded.shifted(recorded.records(), ago=5)
    for row in rows:
        row.tenant = name if row.tenant == "initech" else row.tenant
    test = open_page(recorded.store(tmp_path / "s", rows))
    shown_raw = next(m.value for m in test.markdown if "owed to" in m.value)
    assert plain(name) in shown_raw
    assert f"tenant {name}; without it" in words(test)


def test_a_damaged_store_is_said(open_page: Open, store: Path) -> None:
    (store / "requests" / "0000000009-0000000009.parquet").write_bytes(b"no parquet file")
    test = open_page(store)
    assert len(test.error) == 1
    assert "requests" in test.error[0].value
    assert not test.metric


def test_plain_text_has_no_meaning_in_markdown() -> None:
    assert plain("a*b_c[d](e):f:") == r"a\*b\_c\[d\]\(e\)\:f\:"
    assert plain("one\n\n# two") == r"one \# two"
    assert plain("tenant") == "tenant"
