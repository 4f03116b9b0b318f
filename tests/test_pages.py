"""Each page and state of the app."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tailscope.app import (
    blame,
    strips,
    verdicts,
)
from tailscope.app.box import Box
from tailscope.app.pages import PAGES
from tailscope.app.pair import Pair
from tailscope.app.prometheus import Prometheus
from tailscope.app.source import Source
from tailscope.records.record import RequestRecord
from tailscope.triage.cause import Cause
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.hardware import Trouble
from tests import recorded
from tests.openpage import Open, diagnosed, open_page, sent, table, words
from tests.process import until
from tests.shop import diagnosis, shop

__all__ = ["diagnosis", "open_page", "shop"]


OTHER_PAGES = [name for name in PAGES if name != "overview"]


# Each page


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_every_page_opens_in_chinese(open_page: Open, shop: Path, page: str) -> None:
    test = open_page(
        shop, page=page, window="all", lang="zh-CN", request="tail-0216-umbrella", live="false"
    )
    assert not test.error
    assert any("\u4e00" <= letter <= "\u9fff" for letter in words(test))
    assert test.sidebar.selectbox(key="lang").value == "zh-CN"


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_every_page_says_what_to_do_without_a_store(
    open_page: Open, tmp_path: Path, page: str
) -> None:
    test = open_page(tmp_path / "none", page=page)
    assert "No exporter has written into this store." in words(test)
    assert not test.error


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_every_page_bears_one_request_without_tenant_or_stages(
    open_page: Open, tmp_path: Path, page: str
) -> None:
    row = RequestRecord("t", "engine", 0, span_id="ff", total_seconds=1.0, ttft_seconds=0.2)
    store = recorded.store(tmp_path / "s", recorded.shifted([row], ago=5))
    test = open_page(store, page=page, window="all", request="ff")
    assert not test.error
    assert words(test)


def test_the_slow_page_compares_with_the_rest(open_page: Open, shop: Path) -> None:
    test = open_page(shop, page="slow", window="all")
    assert "14 requests** (5 %) are slow by the rule p95" in words(test)
    common = table(test, "dimension")
    assert {"tenant", "tokens in"} <= set(common["dimension"])
    assert list(common["rest"].between(0, 100)) == [True] * len(common)


def test_a_box_in_the_address_is_the_cohort(open_page: Open, shop: Path) -> None:
    frame = Source(shop).window(None).frame
    low, high = int(frame["arrived_ns"].min()), int(frame["arrived_ns"].max())
    box = Box(low, high + 10**6, 3.0, 60.0)
    inside = int((frame["total_seconds"] >= 3.0).sum())
    test = open_page(shop, page="slow", window="all", box=str(box))
    assert f"**{inside} requests**" in words(test)
    assert "are boxed" in words(test)
    test.button[0].click().run()
    assert "are slow by the rule" in words(test)
    assert "is no selection" in "".join(
        str(one.value) for one in open_page(shop, page="slow", window="all", box="x").warning
    )


def test_tenants_and_fixes_are_those_of_diagnose(
    open_page: Open, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = diagnosed(capsys, "--data", str(shop))
    test = open_page(shop, page="tenants", window="all")
    assert shape["verdict"]["text"] in words(test)
    found = table(test, "held_seconds")
    assert list(found["grade"]) == [one["grade"] for one in shape["suspects"]]
    assert list(found["saved"]) == pytest.approx(
        [100 * max(one["removal_share"], 0) for one in shape["suspects"]], abs=1e-3
    )
    said = words(open_page(shop, page="fixes", window="all"))
    for fix in shape["fixes"]:
        assert fix["change"] in said
    assert shape["verdict"]["text"] in said


def test_capacity_is_that_of_diagnose(
    open_page: Open, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = diagnosed(capsys, "--data", str(shop))
    test = open_page(shop, page="capacity", window="all", slo="60")
    if "capacity" not in shape:
        assert "No curve is shown without a replay" in words(test)
        return
    knee = shape["capacity"].get("knee")
    assert test.metric[0].value == ("beyond 3 \u00d7" if knee is None else f"{knee:.2f} \u00d7")
    assert test.metric[1].value.endswith("\u00d7")


def test_before_and_after_says_why_it_cannot_be_told(open_page: Open, shop: Path) -> None:
    middle = int(Source(shop).window(None).frame["arrived_ns"].median())
    test = open_page(shop, page="comparison", window="all", changed=str(middle // 10**9))
    assert "Not comparable" in words(test)
    assert "30 min are needed" in words(test)
    assert "Enter when the change was made" in words(open_page(shop, page="comparison"))


def test_offline_tenants_are_judged_by_their_own_measure(open_page: Open, shop: Path) -> None:
    test = open_page(shop, page="offline", window="all", offline="initech")
    assert "Distribution of the total time" in words(test)
    assert "of the others' slow seconds would not have been" in words(test)


def test_data_health_tells_sources_and_what_is_missing(open_page: Open, shop: Path) -> None:
    test = open_page(shop, page="health", window="all")
    said = words(test)
    assert str(shop) in table(test, "gives")["source"].iloc[0]
    assert "GPUs" in said and "--gpu auto" in said
    assert [metric.value for metric in test.metric] == ["278", "278", "0", "0"]


def test_a_store_that_disappears_is_an_empty_one(
    open_page: Open, shop: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shop, copy)
    test = open_page(copy, window="all")
    assert "over 278 requests" in words(test)
    shutil.rmtree(copy)
    test = open_page(copy, page="slow", window="5m")
    assert "No exporter has written into this store." in words(test)


def test_a_period_in_the_address_is_the_window(open_page: Open, shop: Path) -> None:
    frame = Source(shop).window(None).frame
    arrived = np.sort(frame["arrived_ns"].to_numpy())
    begin, end = int(arrived[50] // 10**9), int(arrived[200] // 10**9)
    inside = int(((arrived >= begin * 10**9) & (arrived < end * 10**9)).sum())
    address = {"window": "between", "from": str(begin), "to": str(end)}
    assert f"over {inside} requests since" in words(open_page(shop, **address))


def test_the_misses_are_counted_over_all_measured_requests(open_page: Open, shop: Path) -> None:
    frame = Source(shop).window(None).frame
    late = int((frame["total_seconds"] > 2.0).sum())
    test = open_page(shop, window="all", slo="2")
    assert test.metric[6].value == f"{late / len(frame):.0%}".replace("%", " %")
    assert test.metric[6].delta == f"{late} over 2.00 s"


# Several stores, Prometheus


def test_two_stores_are_read_as_one(tmp_path: Path) -> None:
    rows = recorded.shifted(recorded.records(), ago=60)
    engine = recorded.store(tmp_path / "e", [row for row in rows if row.role == "engine"])
    gateway = recorded.store(tmp_path / "g", [row for row in rows if row.role == "gateway"])
    frame = Source((engine, gateway)).window(None).frame
    assert len(frame) == 278
    assert frame["tenant"].notna().all() and frame["queue_seconds"].notna().all()
    assert [part.exists for part in Source((engine, tmp_path / "no")).parts()] == [True, False]


@contextmanager
def prometheus(answer: Callable[[], tuple[int, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """A small server in Prometheus' place; yields its address and the headers that it got."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(str(self.headers.get("Authorization")))
            status, body = answer()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def series(start: float) -> bytes:
    values = [[start + at, "0.5"] for at in range(90)]
    metric = {"__name__": "tailscope_gpu_sm_active_ratio", "gpu": "0"}
    return json.dumps({"data": {"result": [{"metric": metric, "values": values}]}}).encode()


def test_series_that_the_store_lacks_come_from_prometheus(
    open_page: Open, shop: Path, tmp_path: Path
) -> None:
    low = Source(shop).span()
    assert low is not None
    header = tmp_path / "headers"
    header.write_text("# who we are\nAuthorization: Bearer secret\n")
    with prometheus(lambda: (200, series(low[0] / 1e9))) as (url, seen):
        more = {"prometheus": url, "headers": header}
        test = open_page(
            shop, page="request", window="all", request="tail-0216-umbrella", settings_of=more
        )
        assert "From Prometheus." in words(test)
        assert set(seen) == {"Bearer secret"}


@pytest.mark.parametrize("page", ["overview", "health"])
def test_a_prometheus_that_fails_is_said(open_page: Open, shop: Path, page: str) -> None:
    with prometheus(lambda: (500, b"no")) as (url, _):
        test = open_page(shop, page=page, window="all", settings_of={"prometheus": url})
        warned = "".join(str(one.value) for one in test.warning)
        assert "it answers 500" in warned.replace("\\", "")
        assert "over 278 requests" in words(test) or page == "health"


def test_a_slow_or_strange_prometheus_is_not_waited_for() -> None:
    end = threading.Event()

    def late() -> tuple[int, bytes]:
        end.wait(60)
        return 200, b"{}"

    with prometheus(late) as (url, seen):
        source = Prometheus(url, timeout=0.2, clock=lambda: 0.0)
        assert source.samples(strips.METRICS, 0, 10**9).empty
        assert source.trouble == "it did not answer within 0.2 s"
        assert source.samples(strips.METRICS, 0, 10**9).empty
        until(lambda: seen, "the request came in, at last")
        assert len(seen) == 1  # it is left alone for a while
        end.set()
    with prometheus(lambda: (200, b"<html>")) as (url, _):
        source = Prometheus(url)
        assert source.samples(strips.METRICS, 0, 10**9).empty
        assert "none of Prometheus' HTTP interface" in source.trouble


# What the pages explain


def test_every_cause_and_trouble_has_its_runbook() -> None:
    folder = Path(__file__).parents[1] / "docs" / "runbooks"
    assert set(Cause) - set(verdicts.RUNBOOKS) == {Cause.GPU, Cause.UNEXPLAINED}
    assert set(verdicts.GPU_RUNBOOKS) == set(Trouble)
    for name in (*verdicts.RUNBOOKS.values(), *verdicts.GPU_RUNBOOKS.values()):
        assert (folder / f"{name}.md").is_file(), name


@pytest.mark.parametrize("page", ["overview", "request", "tenants", "comparison", "offline"])
def test_every_verdict_says_how_it_was_computed(open_page: Open, shop: Path, page: str) -> None:
    test = open_page(
        shop,
        page=page,
        window="all",
        live="false",
        request="tail-0216-umbrella",
        offline="initech",
        changed=str(int(Source(shop).window(None).frame["arrived_ns"].median()) // 10**9),
        settings_of={"runbooks": "https://docs.example.com/runbooks"},
    )
    sent_ = b"".join(sent(test.main))
    assert b"How was this computed" in sent_
    if page in ("overview", "tenants"):
        assert b"https://docs.example.com/runbooks/TailscopeQueueSaturated.md" in sent_


# From the matrix to its requests


def test_a_cell_of_the_matrix_is_a_cohort(open_page: Open, shop: Path) -> None:
    ask = {"page": "slow", "window": "all"}
    whole = words(open_page(shop, **ask))
    test = open_page(shop, **ask, victim="umbrella", worker="initech")
    said = words(test)
    assert "Slow requests of umbrella that owe at least 20 % of their excess" in said
    listed = table(test, "excess")
    assert set(listed["tenant"]) == {"umbrella"}
    assert said != whole
    test.button[0].click().run()
    assert not test.exception
    assert "by the rule p95" in words(test)
    assert "No request is chosen" in words(open_page(shop, **ask, victim="no", worker="initech"))


def test_the_largest_cells_have_links(open_page: Open, shop: Path, diagnosis: Diagnosis) -> None:
    data = blame.cells(diagnosis.matrices[0])
    first = blame.largest(data)[0]
    assert first.worker == "initech" and first.victim != "initech"
    event = {"selection": {blame.SELECTION: [{"victim": "acme", "key": ""}]}}
    assert blame.clicked(event) == Pair("acme", "")
    assert blame.clicked({"selection": {blame.SELECTION: []}}) is None
