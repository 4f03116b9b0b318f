"""Every page in every state: what it says, and what it says is missing."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tailscope.app import (
    access,
    account,
    blame,
    causes,
    export,
    heatmap,
    strips,
    verdicts,
    waterfall,
)
from tailscope.app.access import masked
from tailscope.app.box import Box
from tailscope.app.pages import PAGES
from tailscope.app.pair import LEAST, Pair
from tailscope.app.prometheus import Prometheus
from tailscope.app.roles import Roles, Viewer
from tailscope.app.source import Question, Source
from tailscope.errors import UsageError
from tailscope.records.record import RequestRecord
from tailscope.triage.cause import Cause
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.hardware import Trouble
from tailscope.triage.identity import find, keys
from tailscope.triage.scope import Scope
from tests import recorded
from tests.openpage import Open, diagnosed, open_page, table, words

__all__ = ["open_page"]

OTHER_PAGES = [name for name in PAGES if name != "overview"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the recording."""
    folder = tmp_path_factory.mktemp("pages")
    return recorded.store(folder / "store", recorded.shifted(recorded.records(), ago=60))


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    found = Diagnosis(recorded.frame())
    assert found.attribution.studies
    return found


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
        end.wait(10)
        return 200, b"{}"

    with prometheus(late) as (url, seen):
        source = Prometheus(url, timeout=0.2)
        assert source.samples(strips.METRICS, 0, 10**9).empty
        assert source.trouble == "it did not answer within 0.2 s"
        assert source.samples(strips.METRICS, 0, 10**9).empty
        assert len(seen) == 1  # it is left alone for a while
        end.set()
    with prometheus(lambda: (200, b"<html>")) as (url, _):
        source = Prometheus(url)
        assert source.samples(strips.METRICS, 0, 10**9).empty
        assert "none of Prometheus' HTTP interface" in source.trouble


# Who may see what


def test_roles_say_who_sees_what(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('operators = ["Ann@example.com"]\n[tenants]\n"bob@example.com" = "acme"\n')
    roles = Roles.read(file)
    assert roles.viewer(["ann@EXAMPLE.com"]) == Viewer()
    assert roles.viewer(["bob@example.com"]) == Viewer("acme")
    assert roles.viewer(["eve@example.com"]) is None
    for wrong, said in (
        ("operators = 3", "`operators` is a list"),
        ("operator = []", "operator is no key of it"),
        ("claim = 3", "claim = 3: it is a name"),
        ('[tenants]\n"eve@example.com" = "other tenants"', "stands for requests of others"),
    ):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=said):
            Roles.read(file)


def test_another_claim_may_say_who_somebody_is(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text(
        'claim = "groups"\noperators = ["sre"]\n[tenants]\nteam-a = "acme"\nteam-b = "bee"\n'
    )
    roles = Roles.read(file)
    assert roles.viewer(["team-a", "staff"]) == Viewer("acme")
    assert roles.viewer(["team-a", "SRE"]) == Viewer()
    assert roles.viewer(["team-a", "team-b"]) is None  # whose numbers would these be
    assert roles.viewer([]) is None


def test_an_address_that_is_not_verified_is_nobody() -> None:
    claims = {"is_logged_in": True, "email": "ann@example.com", "groups": ["a", "b"]}
    assert access.login({}) is None
    assert access.login({**claims, "is_logged_in": False}) is None
    assert access.login(claims) == access.Login("ann@example.com", ("ann@example.com",))
    unsure = access.login({**claims, "email_verified": False})
    assert unsure is not None and unsure.values == ()
    grouped = access.login(claims, "groups")
    assert grouped is not None and grouped.values == ("a", "b")


def test_a_tenant_sees_itself_and_others(shop: Path) -> None:
    source = Source(shop, viewer=Viewer("acme"))
    loaded = source.window(None)
    assert set(loaded.frame["tenant"]) == {"acme", "other tenants"}
    hidden = loaded.frame["tenant"] != "acme"
    assert loaded.frame.loc[hidden, ["span_id", "request_id", "trace_id"]].isna().all(axis=None)
    assert loaded.frame.loc[~hidden, "request_id"].notna().all()
    assert len(loaded.frame) == 278
    verdict = loaded.diagnosis(Question(Scope())).verdict
    assert "initech" not in verdict
    assert masked(loaded.frame, Viewer()) is loaded.frame


def test_with_roles_nobody_sees_anything_before_the_login(
    open_page: Open, shop: Path, tmp_path: Path
) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('operators = ["ann@example.com"]\n')
    test = open_page(shop, settings_of={"roles": file})
    assert "Please log in" in words(test)
    assert not test.metric
    assert "278" not in words(test)


OTHER_NAMES = (b"globex", b"umbrella", b"initech")
"""Names of other tenants than acme; they are in the ids of their requests, too."""


@pytest.fixture
def as_acme(
    open_page: Open, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AppTest]:
    """Open a page as somebody who may see the tenant acme alone."""
    file = tmp_path / "roles.toml"
    file.write_text('[tenants]\n"bob@example.com" = "acme"\n')
    bob = access.Login("bob@example.com", ("bob@example.com",))
    monkeypatch.setattr(access, "signed_in", lambda claim: bob)

    def run(page: str, **address: str) -> AppTest:
        return open_page(shop, page=page, settings_of={"roles": file}, **address)

    return run


def sent(block: Any) -> Iterator[bytes]:
    """Everything that goes to the browser: texts, tables, specifications of charts, their data."""
    for node in getattr(block, "children", {}).values():
        proto = getattr(node, "proto", None)
        if proto is not None:
            yield proto.SerializeToString()
        yield from sent(node)


@pytest.mark.parametrize("page", PAGES)
def test_no_page_tells_a_tenant_of_another(
    as_acme: Callable[..., AppTest],
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
) -> None:
    saved: list[bytes] = []
    monkeypatch.setattr(st, "download_button", lambda label, data, **_: saved.append(data))
    frame = Source(shop).window(None).frame
    theirs = str(keys(frame[frame["tenant"] == "initech"]).iloc[0]).partition("-")[0]
    middle = str(int(frame["arrived_ns"].median()) // 10**9)
    address = {
        "window": "all",
        "live": "false",
        "request": theirs,
        "offline": "other tenants",
        "changed": middle,
        "force": "true",
        "slo": "2",
    }
    test = as_acme(page, **address)
    if page == "tenants":
        test.toggle(key="report").set_value(True).run()
        assert not test.exception
        assert any(b"verdict" in one for one in saved)
    whole = b"".join([*sent(test.main), *sent(test.sidebar), *saved])
    assert len(whole) > 2_000
    for name in (*OTHER_NAMES, str(shop).encode()):
        assert name not in whole, name
    if page in ("overview", "request"):
        assert f"No request {theirs} in this time window." in words(test)


@pytest.mark.parametrize("page", ["overview", "offline", "capacity", "health"])
def test_an_address_does_not_tell_whether_another_tenant_is_there(
    as_acme: Callable[..., AppTest], page: str
) -> None:
    said = [
        words(
            as_acme(
                page,
                window="all",
                live="false",
                tenant=name,
                offline=name,
                grow=name,
                request=f"tail-0216-{name}",
            )
        ).replace(name, "NAME")
        for name in ("umbrella", "nobodyxy")
    ]
    assert said[0] == said[1]


def test_errors_tell_a_tenant_nothing_of_the_machine(
    as_acme: Callable[..., AppTest], shop: Path, tmp_path: Path
) -> None:
    (shop / "requests" / "0000000009-0000000009.parquet").write_bytes(b"no parquet file")
    try:
        test = as_acme("overview", window="24h")
    finally:
        (shop / "requests" / "0000000009-0000000009.parquet").unlink()
    assert [one.value for one in test.error] == [
        "The data cannot be read now. The log of the app tells its operators why."
    ]


def test_a_tenant_sees_others_only_on_engines_that_it_uses() -> None:
    frame = recorded.frame()
    far = frame.assign(server="10.0.0.9:1", model="globex-lora", tenant="globex")
    both = pd.concat([frame, far], ignore_index=True)
    seen = masked(both, Viewer("acme"))
    assert len(seen) == len(frame)
    assert "globex-lora" not in set(seen["model"])
    assert set(seen["tenant"]) == {"acme", "other tenants"}
    assert masked(both, Viewer("nobody")).empty


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


# What is derived


def test_the_ledger_of_a_request_sums_to_its_excess(diagnosis: Diagnosis) -> None:
    at = find(diagnosis.frame, "tail-0216-umbrella")
    assert at is not None
    book = diagnosis.account(at)
    assert book is not None
    found = account.entries(book)
    excess = float(book.excess[0])
    assert sum(entry.seconds for entry in found) == pytest.approx(excess, abs=1e-3)
    assert excess == pytest.approx(diagnosis.reckoning.excess[at], abs=1e-6)
    said = account.words(found, excess, "umbrella")
    assert said.startswith(f"It took {excess:.2f} s longer than it would alone")
    assert "initech" in said


def test_causes_over_time_sum_to_the_slow_seconds(diagnosis: Diagnosis) -> None:
    data = causes.seconds(diagnosis.best.studies, diagnosis.reckoning.origin_ns)
    assert data["seconds"].sum() == pytest.approx(diagnosis.best.excess_seconds, rel=1e-6)
    assert causes.draw(data) is not None
    assert causes.draw(causes.seconds((), 0)) is None


def test_the_matrix_loses_no_second_and_is_bounded(diagnosis: Diagnosis) -> None:
    (one,) = diagnosis.matrices
    data = blame.cells(one)
    assert data["seconds"].sum() == pytest.approx(one.seconds.sum())
    many = tuple(f"t{number}" for number in range(100))
    wide = type(one)("s", many, np.random.default_rng(0).random((100, 101)))
    data = blame.cells(wide)
    assert len(data) == blame.MOST * (blame.MOST + 1)
    assert data["seconds"].sum() == pytest.approx(wide.seconds.sum())


def test_the_band_spans_the_estimates(diagnosis: Diagnosis) -> None:
    data = blame.estimates(diagnosis.quick.suspects, diagnosis.attribution.suspects)
    assert len(data)
    assert (data["low"] <= data["saved"]).all() and (data["saved"] <= data["high"]).all()


def test_the_heatmap_counts_every_request_and_can_be_boxed() -> None:
    frame = recorded.frame()
    data = heatmap.counted(frame, np.ones(len(frame), dtype=bool), "total_seconds")
    assert data["requests"].sum() == len(frame)
    assert heatmap.TIME_BINS * heatmap.VALUE_BINS <= 5_000
    event = {"selection": {"box": {"time": [1.5e12, 1.6e12], "seconds": [3.0, 1.0]}}}
    box = heatmap.boxed(event, "total_seconds")
    assert box == Box(15 * 10**17, 16 * 10**17, 1.0, 3.0)
    assert box is not None and Box.parse(str(box)) == box
    assert heatmap.boxed({}, "total_seconds") is None
    assert heatmap.counted(frame, np.zeros(len(frame), dtype=bool), "ttft_seconds").empty


def test_the_waterfall_leaves_out_what_is_unknown(diagnosis: Diagnosis) -> None:
    frame = recorded.frame()
    chosen = diagnosis.reckoning.slow
    data = waterfall.means(frame, diagnosis.reckoning.stages, chosen)
    queue = data[(data["stage"] == "queue") & (data["group"] == "cohort")]["seconds"].iloc[0]
    assert queue == pytest.approx(frame["queue_seconds"][chosen].mean())
    bare = frame.assign(queue_seconds=float("nan"))
    assert "queue" not in set(waterfall.means(bare, diagnosis.reckoning.stages, chosen)["stage"])


def test_what_leaves_the_app_names_nobody_with_few_requests() -> None:
    rows = pd.DataFrame({"tenant": ["a", "b"], "requests": [5, 4]})
    assert list(export.anonymous(rows, rows["requests"])["tenant"]) == ["a"]
    tenants = pd.Series(["acme"] * 9 + ["bee"] * 5)
    few = export.rare(tenants, np.arange(14) >= 5)  # acme's first lie before the window
    shape = export.nameless({"acme": 1, "said": "tenant acme did; acmes not", "x": ["bee"]}, few)
    assert export.harmless('=HYPERLINK("http://x")') == '\'=HYPERLINK("http://x")'
    assert export.harmless(-1.0) == -1.0
    assert shape == {"hidden": 1, "said": "tenant hidden did; acmes not", "x": ["bee"]}


def test_once_made_is_kept_and_bounded(shop: Path) -> None:
    loaded = Source(shop).window(None)
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert loaded.once(make, "a") == loaded.once(make, "a") == 1
    for number in range(100):
        loaded.once(make, number)
    assert loaded.once(make, "a") > 1


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


def test_requests_of_a_cell_owe_enough_to_its_worker(diagnosis: Diagnosis) -> None:
    pair = Pair("umbrella", "initech")
    chosen = np.flatnonzero(pair.inside(diagnosis))
    assert len(chosen)
    for position in chosen:
        book = diagnosis.account(int(position))
        assert book is not None
        owed = book.owed[0].sum(axis=1)[book.tenants.index("initech")]
        assert owed >= LEAST * book.excess[0] - 1e-9
    assert set(diagnosis.frame["tenant"].iloc[chosen]) == {"umbrella"}
    assert diagnosis.reckoning.slow[chosen].all()
    assert not Pair("umbrella", "nobody knows").inside(diagnosis).any()


def test_the_largest_cells_have_links(open_page: Open, shop: Path, diagnosis: Diagnosis) -> None:
    data = blame.cells(diagnosis.matrices[0])
    first = blame.largest(data)[0]
    assert first.worker == "initech" and first.victim != "initech"
    event = {"selection": {blame.SELECTION: [{"victim": "acme", "key": ""}]}}
    assert blame.clicked(event) == Pair("acme", "")
    assert blame.clicked({"selection": {blame.SELECTION: []}}) is None


def test_what_is_shared_names_nobody_with_few_requests(open_page: Open, tmp_path: Path) -> None:
    rows = recorded.shifted(recorded.records(), ago=60)
    for row in [row for row in rows if row.role == "gateway"][:3]:
        row.tenant, row.request_id = "rare-co", "rare-co-1"
    store = recorded.store(tmp_path / "s", rows)
    open_ = open_page(store, window="all")
    assert "rare-co" in list(table(open_, "slot_share")["tenant"])
    shared = open_page(store, window="all", share="true")
    assert "rare-co" not in list(table(shared, "slot_share")["tenant"])
    assert "rare-co" not in words(shared)
    assert "rare-co" not in str([item.value.to_dict() for item in shared.dataframe])
    assert "acme" in list(table(shared, "slot_share")["tenant"])
