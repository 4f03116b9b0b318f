"""Links into the app: from dashboards, alerts and other tools, and of people."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tailscope.app.source import Source
from tailscope.app.timespan import instant
from tailscope.records.record import RequestRecord
from tailscope.triage.identity import keys
from tests import recorded
from tests.openpage import Open, open_page, store, words

__all__ = ["open_page", "store"]


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A store with the recording, which ended two hours ago, and one request of now."""
    rows = recorded.shifted(recorded.records(), ago=7000)
    last = max(row.arrived_ns for row in rows) + 6_900 * 10**9
    late = RequestRecord("test", "gateway", last, span_id="ff", tenant="acme", total_seconds=1.0)
    return recorded.store(tmp_path / "s", [*rows, late])


@pytest.mark.parametrize("name", ["key", "span_id", "trace_id", "request_id"])
def test_a_request_is_found_outside_the_window(open_page: Open, ended: Path, name: str) -> None:
    frame = Source(ended).window(None).frame
    row = frame[frame["request_id"] == "tail-0216-umbrella"]
    wanted = str((keys(row) if name == "key" else row[name]).iloc[0])
    said = words(open_page(ended, window="5m", request=wanted))
    assert "over 1 request since" in said
    assert "Request tail-0216-umbrella" in said
    assert "outside of the time window" in said
    assert "tenant initech held 6.5 places on average" in said


def test_a_link_names_a_trace_as_other_tools_do(open_page: Open, ended: Path) -> None:
    frame = Source(ended).window(None).frame
    row = frame[frame["request_id"] == "tail-0216-umbrella"]
    wanted = str(row["trace_id"].iloc[0])
    test = open_page(ended, page="request", trace_id=wanted)
    assert test.text_input(key="request").value == wanted
    said = words(test)
    assert "Request tail-0216-umbrella" in said
    (link,) = [item for item in test.get("page_link") if "from=" in item.proto.query_string]
    around = parse_qs(link.proto.query_string)
    assert around["window"] == ["between"]
    begin, end = (instant(around[name][0]) for name in ("from", "to"))
    span = Source(ended).span()
    assert span is not None
    assert begin <= span[0] < end < span[1]

    there = open_page(ended, page="request", **{name: text for name, (text,) in around.items()})
    assert "outside of the time window" not in words(there)
    assert "longer than it would alone" in words(there)


def test_times_of_a_link_mean_what_is_between_them(open_page: Open, store: Path) -> None:
    span = Source(store).span()
    assert span is not None
    low, high = str(span[0] // 10**6 - 1000), str(span[1] // 10**6 + 1000)
    test = open_page(store, live="false", **{"from": low, "to": high})
    assert test.selectbox(key="window").value == "between"
    assert "over 278 requests" in words(test)


def test_an_address_of_nonsense_opens_the_page(open_page: Open, store: Path) -> None:
    nonsense = {name: "9" * 19 for name in ("request", "tenant", "slo", "slow", "box", "lang")}
    late = {"from": "9999-12-31T23:59:59Z", "to": "0001-01-01", "window": "between"}
    said = words(open_page(store, **nonsense, **late))
    assert "is no time such as" not in said  # it stands beside the page, not in it
    test = open_page(store, **late)
    assert len(test.sidebar.warning) == 2
    assert "over 278 requests" in words(test)
