"""Rows of other people's files: which record each becomes, and what of them is left behind."""

from __future__ import annotations

import csv
import gzip
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tailscope.errors import UsageError
from tailscope.records.declaration import declared
from tailscope.records.formats import formats, told_format
from tailscope.records.reader import join_records
from tailscope.records.record import COLUMNS, OUTCOMES, ROLES, RecordError
from tailscope.records.recordfile import LeftOut, read_records
from tailscope.records.tenancy import KINDS, parse_rules
from tailscope.records.translation import ORIGIN_NS, Translator, instant
from tests.foreignrows import DYNAMO, ENVOY, LITELLM, NGINX, NOW, NOW_NS, ROWS, SGLANG, one, with_


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_recognised_and_becomes_a_record(name: str) -> None:
    row, expected = ROWS[name]
    record = one(row)
    known = {column for column in COLUMNS if getattr(record, column) is not None}
    assert {column: getattr(record, column) for column in known} == {"source": name, **expected}
    assert one(row, told=formats()[name]) == record


def test_tensorrts_clock_is_this_machines() -> None:
    before = time.time_ns()
    arrived = time.monotonic() - 10
    times = {
        "arrival_time": arrived,
        "first_scheduled_time": arrived + 0.25,
        "first_token_time": arrived + 0.5,
        "last_token_time": arrived + 1.5,
    }
    row: dict[str, Any] = {
        "request_id": 7,
        "perf_metrics": {"first_iter": 1, "timing_metrics": times},
    }
    record = one(row)
    lasted = time.time_ns() - before
    assert record.arrived_ns == pytest.approx(before - 10 * 10**9, abs=lasted + 10**8)
    assert (record.request_id, record.engine, record.inferred) == ("7", "trtllm", "arrived_ns")
    measured = [record.queue_seconds, record.prefill_seconds, record.decode_seconds]
    assert measured == pytest.approx([0.25, 0.25, 1.0])
    assert (record.ttft_seconds, record.total_seconds) == pytest.approx((0.5, 1.5))
    for ahead in (arrived + 1e6, -5.0):
        row["perf_metrics"]["timing_metrics"]["arrival_time"] = ahead
        with pytest.raises(RecordError) as caught:
            one(row)
        assert caught.value.reason == "no_arrival"


def test_every_format_is_declared_well() -> None:
    assert set(ROWS) | {"tensorrt"} == set(formats())
    for form in formats().values():
        assert form.role in ROLES
        assert form.fields.keys() <= COLUMNS.keys()
        assert {rule.outcome for rule in form.outcomes} <= {*OUTCOMES, "timeout"}
        assert {text.split(":")[0] for text in form.places} <= set(KINDS)


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (with_(SGLANG, finish_reason__type="abort"), "aborted"),
        (with_(DYNAMO, request__finish_reason="cancelled"), "aborted"),
        (with_(LITELLM, status="failure", error_information__error_class="Timeout"),
         "generation_timeout"),
        (with_(LITELLM, status="failure", completionStartTime=LITELLM["endTime"],
               error_information__error_class="Timeout"), "queue_timeout"),
        (with_(LITELLM, stream=False, status="failure",
               error_information__error_class="APITimeoutError"), "queue_timeout"),
        (with_(LITELLM, status="failure", error_information__error_class="RateLimitError"),
         "rejected"),
        (with_(LITELLM, status="failure", error_information__error_code="499"), "aborted"),
        (with_(LITELLM, status="failure", error_information__error_code="500"), "error"),
        (with_(ENVOY, response_code=0, response_flags="DC"), "aborted"),
        (with_(ENVOY, response_code=200, response_flags="DC,UO"), "aborted"),
        (with_(ENVOY, response_code=504, response_flags="UT"), "queue_timeout"),
        (with_(ENVOY, response_code=200, response_flags="SI"), "generation_timeout"),
        (with_(ENVOY, response_code=503, response_flags="UO"), "rejected"),
        (with_(ENVOY, response_code=503, response_flags="UF,URX"), "error"),
        (with_(ENVOY, response_code=429), "rejected"),
        (with_(NGINX, status="499"), "aborted"),
        (with_(NGINX, status="504"), "queue_timeout"),
        (with_(NGINX, status="503"), "rejected"),
        (with_(NGINX, status="500"), "error"),
        (with_(NGINX, request_completion="OK"), "ok"),
        (with_(NGINX, request_completion=""), "aborted"),
        (with_(NGINX, request_completion="", status="503"), "rejected"),
        ({"arrived_ns": NOW_NS, "status": 429}, "rejected"),
        ({"arrived_ns": NOW_NS, "status": 200, "outcome": "aborted"}, "aborted"),
    ],
)  # fmt: skip
def test_outcomes_are_told_apart(row: dict[str, Any], outcome: str) -> None:
    assert one(row).outcome == outcome


@pytest.mark.parametrize(
    ("rules", "row", "tenant"),
    [
        (["litellm:key"], LITELLM, "key-of-acme"),
        (["litellm:user", "litellm:end-user"], LITELLM, "jane"),
        (["litellm:org"], LITELLM, None),
        (["label:tier"], SGLANG, "gold"),
        (["adapter"], SGLANG, "adapter-a"),
        (["request-id:(.)"], SGLANG, "r"),
        (["label:none", "span:tenant.id"], SGLANG, None),
        (["litellm:key"], ENVOY, "acme"),
        (["adapter"], {"arrived_ns": NOW_NS, "adapter": "lora-acme"}, "lora-acme"),
        (["request-id:^(.*)-"], {"arrived_ns": NOW_NS, "request_id": "acme-7"}, "acme"),
        (["adapter"], {"arrived_ns": NOW_NS, "adapter": "a", "tenant": "told"}, "told"),
    ],
)
def test_the_tenant_follows_the_rules(
    rules: list[str], row: dict[str, Any], tenant: str | None
) -> None:
    assert one(row, rules=parse_rules("", rules)).tenant == tenant


def test_what_is_absent_in_a_log_is_absent() -> None:
    record = one(with_(NGINX, http_x_request_id="-", http_traceparent="", http_x_tenant_id="-"))
    assert (record.request_id, record.trace_id, record.tenant) == (None, None, None)
    record = one(with_(NGINX, status="-", http_traceparent="00-no"))
    assert (record.status, record.trace_id, record.outcome) == (None, None, None)


def test_other_rows_of_a_format_are_no_requests() -> None:
    assert Translator().record(with_(DYNAMO, event_type="tool_end")) is None
    wrapped = {"timestamp": 1, "event": DYNAMO}
    assert one(wrapped).request_id == "client-1"


def test_a_text_that_may_be_a_prompt_is_dropped() -> None:
    record = one(with_(LITELLM, id="x" * 300, metadata__user_api_key_team_alias="y" * 300))
    assert (record.request_id, record.tenant) == (None, "key-of-acme")
    assert "prompt" not in repr(one(SGLANG)) + repr(one(LITELLM))


@pytest.mark.parametrize("row", [{}, {"id": 1}, {"timestamp": "x", "input_length": 1}])
def test_a_row_of_no_format_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(RecordError) as caught:
        Translator().record(row)
    assert caught.value.reason == "no_arrival"


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("junk", [None, "x", -1, 1e400, [], {"a": 1}, True, "x" * 999, 10**30])
def test_junk_in_any_place_makes_a_record_or_none(name: str, junk: object) -> None:
    row = ROWS[name][0]
    for key in row:
        try:
            Translator(formats()[name]).record({**row, key: junk})
        except RecordError as error:
            assert "x" * 30 not in str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T00:53:20Z", NOW_NS),
        ("2026-11-30T01:53:20.123456789+01:00", NOW_NS + 123_456_789),
        ("2026-11-30 00:53:20.5", NOW_NS + 500_000_000),
        ("30/Nov/2026:06:13:20 +0000", None),
        ("x", None),
    ],
)
def test_times(text: str, expected: int | None) -> None:
    assert instant(text) == expected


def test_what_litellm_really_writes() -> None:
    """Payloads of LiteLLM 1.110.2: an answer, a stream, and calls that failed in three ways."""
    capture = Path(__file__).parent / "captures" / "litellm" / "payloads.jsonl"
    records = list(read_records(capture, LeftOut()))
    assert {record.source for record in records} == {"litellm"}
    assert {record.tenant for record in records} == {"acme"}
    found = [(r.outcome, r.status, r.input_tokens, r.ttft_seconds is not None) for r in records]
    assert found == [
        ("ok", None, 10, False),
        ("ok", None, 8, True),
        ("rejected", 429, None, False),
        ("error", 500, None, False),
        ("queue_timeout", 408, None, False),
    ]
    assert len({record.session for record in records}) == 5


# Files


def test_a_table_with_a_start(tmp_path: Path) -> None:
    row = ROWS["azure"][0]
    path = tmp_path / "trace.csv.gz"
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
        writer.writerow({**row, "TIMESTAMP": "2023-11-16 18:17:05.4799600"})
        writer.writerow({**row, "TIMESTAMP": "never"})
    left_out = LeftOut()
    records = list(read_records(path, left_out, Translator(start_ns=NOW_NS)))
    assert [record.arrived_ns - NOW_NS for record in records] == [0, 1_500_000_000]
    assert left_out.reasons == {"no_arrival": 1}


def test_rates_that_give_no_times_come_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "chunk-9-trace.csv"
    rows = ["0,nan,1,Gamma,1,1", "600,inf,1,,,", "1200,2,1,Gamma,1e-9,1e-9", "1800,0.1,1,,,"]
    path.write_text("\n".join(rows))
    records = list(read_records(path, LeftOut()))
    windows = Counter((record.arrived_ns - ORIGIN_NS) // (600 * 10**9) for record in records)
    assert windows.keys() == {2, 3}
    assert windows[2] < 50_000
    assert windows[3] == pytest.approx(60, rel=0.5)


def test_a_table_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    row = ROWS["azure"][0]
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n", "utf-8-sig")
    left_out = LeftOut()
    assert len(list(read_records(path, left_out))) == 1
    assert not left_out.reasons


def test_equal_rows_without_any_id_are_requests_of_their_own(tmp_path: Path) -> None:
    rejected = with_(NGINX, http_x_request_id="", http_traceparent="", status="503")
    known = with_(NGINX, http_traceparent="")
    path = tmp_path / "access.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in [rejected] * 3 + [known] * 2))
    records = list(read_records(path, LeftOut()))
    assert records == list(read_records(path, LeftOut())), "read again it is the same"
    assert len({record.span_id for record in records[:3]} - {None}) == 3
    assert len(join_records(records)) == 4, "an id tells that it is the same"


SERVEGEN = "t_s,rate_rps,iat_cv,iat_family,param1,param2"


def test_rates_become_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    rows = [
        "m,5,0,2.0,1.1,Gamma,0.8,0.625",
        "m,5,600,1.0,1.0,,,",
        "m,7,600,3.0,1.0,Weibull,1.0,0.333333",
        "m,9,0,0.0,,,,",
        "m,9,x,1,1,,,",
    ]
    path.write_text("\n".join([f"model,client,{SERVEGEN}", *rows]))
    records = list(read_records(path, LeftOut()))
    assert records == list(read_records(path, LeftOut())), "the same each time"
    arrived = [record.arrived_ns for record in records]
    assert arrived == sorted(arrived)
    assert arrived[0] >= ORIGIN_NS
    assert arrived[-1] < ORIGIN_NS + 1200 * 10**9
    counts = Counter((one.tenant, one.arrived_ns >= ORIGIN_NS + 600 * 10**9) for one in records)
    assert counts["client-5", False] == pytest.approx(1200, rel=0.15)
    assert counts["client-5", True] == pytest.approx(600, rel=0.15)
    assert counts["client-7", True] == pytest.approx(1800, rel=0.15)
    assert len(counts) == 3
    assert {record.input_tokens for record in records} == {None}
    own = tmp_path / "m-small" / "chunk-5-trace.csv"
    own.parent.mkdir()
    own.write_text("0,2.0,1.1,Gamma,0.8,0.625\n")
    record = next(iter(read_records(own, LeftOut(), Translator(start_ns=NOW_NS))))
    assert (record.tenant, record.model, record.arrived_ns) == ("client-5", "m-small", NOW_NS)


def test_a_format_that_is_told() -> None:
    assert told_format("--requests", "a.jsonl") == (None, Path("a.jsonl"))
    assert told_format("--requests", "./a=b.jsonl") == (None, Path("./a=b.jsonl"))
    assert told_format("--requests", "nginx=/var/x") == (formats()["nginx"], Path("/var/x"))
    with pytest.raises(UsageError, match=r"--requests apache=\.\.\.: formats are azure, bailian"):
        told_format("--requests", "apache=/var/x")


# Formats of the user's own


def test_a_mapping_of_ones_own() -> None:
    text = """
    gw:
      arrived_ns: {path: t0, unit: ms}
      total_seconds: {path: took, unit: us}
      tenant: who.team
      status: code
    edge: {like: nginx, tenant: customer}
    """
    own = declared("--request-format", text)
    row = {"t0": NOW * 1000, "took": 1_500_000, "who": {"team": "acme"}, "code": "429"}
    record = one(row, told=own["gw"])
    assert (record.source, record.arrived_ns, record.total_seconds) == ("gw", NOW_NS, 1.5)
    assert (record.tenant, record.status, record.outcome) == ("acme", 429, "rejected")
    record = one(with_(NGINX, customer="globex"), told=own["edge"])
    assert (record.source, record.tenant, record.total_seconds) == ("edge", "globex", 1.5)
    # As it comes from a settings file, by way of the flag.
    assert declared("--request-format", str({"gw": {"arrived_ns": "t"}})).keys() == {"gw"}
    assert declared("--request-format", None) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "no YAML"),
        ("x", "write {NAME"),
        ("{gw: x}", "gw: write {COLUMN"),
        ("{nginx: {arrived_ns: t}}", "nginx: there is a format of that name"),
        ("{gw: {tenant: t}}", "gw: it has no arrival; add arrived_ns"),
        ("{gw: {arrived_ns: t, prompt: p}}", "gw.prompt: no column"),
        ("{gw: {arrived_ns: {path: t, unit: d}}}", "gw.arrived_ns.unit d"),
        ("{gw: {arrived_ns: t, tenant: {path: t, unit: s}}}", "gw.tenant.unit s"),
        ("{gw: {arrived_ns: [t]}}", "gw.arrived_ns: write KEY"),
        ("{gw: {like: apache, arrived_ns: t}}", "gw.like apache: formats are"),
        ("{gw: {role: x, arrived_ns: t}}", "gw.role x: one of engine, gateway"),
    ],
)
def test_a_mapping_that_is_none(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        declared("--request-format", text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--request-format")
