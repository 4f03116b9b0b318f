"""A source, read by a poller: what comes and goes, hangs and fails."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import Health, SourceError
from tailscope.exporter.poller import STALE_INTERVALS, Poller
from tests import fake_engine as fakes
from tests.enginesources import (
    DEADLINE,
    TOKENS,
    engine,
    polled,
    source_of,
    value,
)
from tests.fake_engine import FakeEngine, answers, capture
from tests.process import PATIENCE, until

__all__ = ["engine"]


def seen(poller: Poller) -> tuple[float | None, float | None]:
    """Whether the engine is up, and its tokens, of one look."""
    lines = poller.lines()
    return value(lines, "tailscope_engine_up"), value(lines, TOKENS)


def test_down_then_up_then_down(engine: FakeEngine) -> None:
    engine.stop()
    with source_of(engine.url, DEADLINE) as source, polled(source) as poller:
        until(lambda: poller.health.state.reason == "unreachable")
        assert value(poller.lines(), "tailscope_source_up") == 0
        assert value(poller.lines(), "tailscope_engine_up") == 0
        assert value(poller.lines(), TOKENS) is None
        engine.start()
        until(lambda: value(poller.lines(), "tailscope_source_up") == 1)
        until(lambda: seen(poller) == (1, 101907))
        engine.stop()
        until(lambda: poller.health.state.up is False)
        until(lambda: seen(poller) == (0, None), "its series are gone")
        assert value(poller.lines(), "tailscope_source_last_success_timestamp_seconds")
        assert value(poller.lines(), "tailscope_source_resets_total") == 0


def test_series_stay_for_three_intervals_and_no_longer(engine: FakeEngine) -> None:
    with source_of(engine.url) as source:
        poller = Poller(source, 0.5, 5)
        poller.start()
        until(lambda: value(poller.lines(), TOKENS))
        engine.stop()
        until(lambda: poller.health.state.up is False)
        last = poller._last_success
        assert last is not None
        until(lambda: value(poller.lines(), TOKENS) is None)
        assert time.monotonic() - last > STALE_INTERVALS * 0.5
        poller.stop()
        poller.join(PATIENCE)


def test_a_restart_while_it_is_polled(engine: FakeEngine) -> None:
    with source_of(engine.url, DEADLINE) as source, polled(source) as poller:
        until(lambda: value(poller.lines(), TOKENS))
        engine.stop()
        engine.behaviour = answers(fakes.restarted(capture()))
        until(lambda: poller.health.state.up is False)
        engine.start()
        until(lambda: value(poller.lines(), "tailscope_source_resets_total") == 1)
        until(lambda: seen(poller) == (1, 101907), "its counts go on")


def test_a_head_that_never_ends_is_a_read_that_hangs(engine: FakeEngine) -> None:
    engine.behaviour = fakes.drips_head()
    with source_of(engine.url, DEADLINE) as source, polled(source) as poller:
        until(lambda: poller.watch().state.reason == "hanging")
        engine.stop()
        engine.behaviour = answers(capture())
        engine.start()
        until(lambda: seen(poller) == (1, 101907))


class _Faulty:
    """A source with a fault of its own in its second read."""

    name = "faulty"
    reads = 0

    def read(self) -> str:
        self.reads += 1
        if self.reads == 2:
            raise ZeroDivisionError("a detail that belongs into the log")
        return "read"

    def lines(self, fresh: bool) -> Lines:
        return {}

    def close(self) -> None:
        self.closed = True


def test_a_fault_of_a_source_is_isolated(caplog: pytest.LogCaptureFixture) -> None:
    source = _Faulty()
    poller = Poller(source, 0.02, 1)
    states: list[str] = []
    poller.health.failure = _recorder(poller.health, states)  # type: ignore[method-assign]
    poller.start()
    until(lambda: source.reads >= 3)
    poller.stop()
    poller.join(PATIENCE)
    assert states == ["internal_error"]
    assert poller.health.state.up
    assert source.closed
    assert "ZeroDivisionError" in caplog.text
    assert poller._thread.name == "faulty"


class _Stuck(_Faulty):
    """A source whose first read lasts until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def read(self) -> str:
        self.let_go.wait()
        return "read"


def test_a_read_that_never_ends_is_told_once_and_over_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = _Stuck()
    poller = Poller(source, 0.02, 0.05)
    poller.start()
    until(lambda: poller.watch().state.reason == "hanging")
    for _ in range(20):
        assert value(poller.lines(), "tailscope_source_errors_total") == 1
    assert value(poller.lines(), "tailscope_source_up") == 0
    assert "has not ended in" in poller.health.state.message
    assert len([m for m in caplog.messages if "is down (hanging)" in m]) == 1
    source.let_go.set()
    until(lambda: poller.health.state.up)
    poller.stop()
    poller.join(PATIENCE)


def _recorder(health: Health, states: list[str]) -> Callable[..., None]:
    failure = health.failure

    def record(error: SourceError, read_seconds: float | None = None) -> None:
        states.append(error.reason)
        failure(error, read_seconds)

    return record


class _Slow(_Faulty):
    """A source whose second read takes two beats and a half, by a clock that it turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def is_set(self) -> bool:
        return len(self.times) == 5

    def read(self) -> str:
        self.times.append(self.now)
        if len(self.times) == 2:
            self.now += 2.5
        return "read"


def test_the_beat_is_kept_and_missed_ones_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _Slow()
    poller = Poller(source, 1.0, 1)
    monkeypatch.setattr("tailscope.exporter.poller.time", source)
    monkeypatch.setattr(poller, "_stop", source)
    poller._run()
    assert source.times == [0, 1, 4, 5, 6], "no burst for the two that were missed"


# Health


def test_a_change_is_logged_once_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    health = Health("engine:a:1", now=lambda: 1234.5)
    assert value([health.lines()], "tailscope_source_up") == 0
    assert 'reason="starting"' in health.lines()["tailscope_source_state"][0].series
    for _ in range(3):
        health.failure(SourceError("timeout", "late"), 0.5)
    health.failure(SourceError("http_503", "it answers 503"))
    for _ in range(3):
        health.success(0.01, "vLLM answers")
    health.failure(SourceError("timeout", "late"))
    assert caplog.messages == [
        "source engine:a:1 is down (timeout): late",
        "source engine:a:1 is down (http_503): it answers 503",
        "source engine:a:1: vLLM answers",
        "source engine:a:1 is down (timeout): late",
    ]
    assert value([health.lines()], "tailscope_source_errors_total") == 5
    assert value([health.lines()], "tailscope_source_last_success_timestamp_seconds") == 1234.5


def test_what_an_engine_says_cannot_forge_a_line_of_the_log(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    health = Health("engine:a:1")
    health.failure(SourceError("no_metrics", "x\n2026 source b is up\x1b[2J" + "y" * 5_000))
    (message,) = caplog.messages
    assert "\n" not in message
    assert "\x1b" not in message
    assert len(message) < 500
