"""A fake engine and a source that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tailscope.catalogue.engines import engines
from tailscope.exporter.exposition import Lines
from tailscope.exporter.health import SourceError
from tailscope.exporter.poller import Poller
from tailscope.exporter.sources.engine import EngineSource
from tests.fake_engine import Behaviour, FakeEngine, answers, capture, fake_engine
from tests.process import PATIENCE

VLLM = engines()["vllm"]
TOKENS = "tailscope_engine_prompt_tokens_total"
INTERVAL = 0.05
DEADLINE = 0.2
SHORT = 0.8

OTHER = replace(
    VLLM, name="other", title="Other", paths=("/other",), prefixes=("other:",), ignored=VLLM.ignored
)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with fake_engine() as running:
        yield running


@contextmanager
def source_of(url: str, deadline: float = PATIENCE, **options: object) -> Iterator[EngineSource]:
    source = EngineSource(url, engines(), deadline=deadline, longest=1, **options)  # type: ignore[arg-type]
    try:
        yield source
    finally:
        source.close()


@contextmanager
def polled(source: EngineSource, deadline: float = DEADLINE) -> Iterator[Poller]:
    poller = Poller(source, INTERVAL, deadline)
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()
        poller.join(PATIENCE)


def value(groups: list[Lines], metric: str) -> float | None:
    found = [line.value for group in groups for line in group.get(metric, ())]
    return found[0] if found else None


def failure(engine: FakeEngine, behaviour: Behaviour, deadline: float = PATIENCE) -> SourceError:
    """What a source says of one bad answer; the next, good one is read as ever."""
    with source_of(engine.url, PATIENCE) as source:
        source.read()
        engine.behaviour, source.deadline = behaviour, deadline
        with pytest.raises(SourceError) as caught:
            source.read()
        engine.behaviour, source.deadline = answers(capture()), PATIENCE
        source.read()
        assert value([source.lines(True)], TOKENS) == 101907
    return caught.value
