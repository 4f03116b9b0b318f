"""What the pages read, and how long it is kept."""

from __future__ import annotations

from pathlib import Path

from tailscope.app.settings import Settings
from tailscope.app.source import MIN_AGE, Source
from tailscope.records.record import RequestRecord
from tailscope.triage.scope import Scope
from tests import recorded
from tests.openpage import store

__all__ = ["store"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_read_is_shared_while_it_is_young_and_as_long_as_nothing_is_written(
    tmp_path: Path,
) -> None:
    clock = Clock()
    source = Source(tmp_path, clock=clock)
    assert not source.exists()
    assert source.span() is None
    assert source.window(None).frame.empty

    clock.now += MIN_AGE + 1
    recorded.store(tmp_path, recorded.shifted(recorded.records(), ago=60))
    assert source.exists()
    first = source.window(None)
    assert len(first.frame) == 278
    span = source.span()
    assert span is not None
    # A client row arrives a moment before the engine row that it belongs to.
    assert 0 <= first.frame["arrived_ns"].min() - span[0] < 10**9
    assert 0 <= span[1] - first.frame["arrived_ns"].max() < 10**9

    clock.now += 10_000
    assert source.window(None) is first  # nothing was written

    recorded.store(tmp_path, [RequestRecord("t", "gateway", span[1] + 10**9, tenant="new")])
    second = source.window(None)
    assert second is not first
    assert len(second.frame) == 279
    assert second.names["tenant"] == ["acme", "globex", "initech", "new", "umbrella"]
    assert source.window(None) is second
    assert source.span() == (span[0], span[1] + 10**9)  # read anew


def test_a_dear_read_is_kept_longer(store: Path) -> None:
    clock = Clock()
    source = Source(store, clock=clock)
    loaded = source.window(900.0)
    loaded.cost = 3.0
    clock.now += 29
    assert source.window(900.0) is loaded
    clock.now += 2
    assert source.window(900.0) is not loaded


def test_a_finding_is_made_once_for_a_scope(store: Path) -> None:
    loaded = Source(store).window(None)
    scopes = [Scope(tenants=(str(number),)) for number in range(18)]
    found = [loaded.finding(scope) for scope in scopes]
    assert loaded.finding(scopes[-1]) is found[-1]
    assert loaded.finding(scopes[0]) is not found[0]  # only the last ones are kept


def test_settings_pass_through_the_environment(tmp_path: Path) -> None:
    settings = Settings(
        (tmp_path, tmp_path / "b"), "It's a notice", "http://p:9090", tmp_path / "h"
    )
    assert Settings.read(settings.environment()) == settings
