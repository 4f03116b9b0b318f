"""Several views of one request: metrics count what the reader of the store joins, in any order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tailscope.exporter.matcher import WAIT_SECONDS, Matcher, Pair
from tailscope.records.reader import join_records
from tailscope.records.record import RequestRecord

NOW_NS = 1_796_000_000_000_000_000
Told = Counter[tuple[str | None, str | None]]


class Calls:
    """Calls as they pass through a program, a gateway, the middleware and an engine.

    Args:
        seed: Of what is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.rows: list[RequestRecord] = []
        self._draw = random.Random(seed)
        for number in range(40):
            self._call(number)
        self._draw.shuffle(self.rows)

    def _add(self, source: str, trace: str, parent: str | None, **more: Any) -> str:
        span = f"{len(self.rows) + 1:016x}"
        role = "engine" if source == "vllm" else "gateway"
        ids: dict[str, Any] = {"span_id": span, "parent_span_id": parent, "trace_id": trace}
        self.rows.append(RequestRecord(source, role, NOW_NS + len(self.rows), **ids, **more))
        return span

    def _call(self, number: int) -> None:
        trace, tenant = f"{number + 1:032x}", f"t{number % 5}"
        given_up = self._draw.choice(("ok", "ok", "queue_timeout"))
        parent: str | None = f"f{number:015x}"
        if self._draw.random() < 0.3:
            parent = self._add("otlp", trace, None, tenant=f"program-{tenant}", outcome="ok")
        if self._draw.random() < 0.8:
            parent = self._add("litellm", trace, parent, tenant=tenant, outcome=given_up)
        attempts = self._draw.choice((0, 1, 1, 2)) if given_up == "ok" else 1
        for attempt in range(attempts):
            last = attempt == attempts - 1
            outcome = "ok" if last else "rejected"
            span = self._add("middleware", trace, parent, outcome=outcome)
            if last:
                parent = span
        for _ in range(self._draw.choice((0, 1, 1, 2))):
            self._add("vllm", trace, parent, outcome="ok")

    def counted(self) -> Told:
        """What the matcher hands on: tenant and outcome of each request."""
        clock = [0.0]
        found: list[Pair] = []
        matcher = Matcher(found.extend, expect_gateway=True, now=lambda: clock[0])
        for row in self.rows:
            matcher.add([row])
            clock[0] += self._draw.random() * 0.05
        for _ in range(4):
            clock[0] += WAIT_SECONDS
            matcher.expire()
        return Counter(_told(*pair) for pair in found)

    def joined(self) -> Told:
        """What the reader joins."""
        frame = join_records(self.rows)
        tenants = frame["tenant"].astype(object).where(frame["tenant"].notna(), None)
        return Counter(zip(tenants, frame["outcome"], strict=True))


def _told(
    engine: RequestRecord | None, gateway: RequestRecord | None
) -> tuple[str | None, str | None]:
    """As the metrics of requests put both sides together."""
    if gateway is None:
        return None, engine.outcome if engine else None
    given_up = gateway.outcome not in (None, "ok")
    return gateway.tenant, gateway.outcome if given_up or engine is None else engine.outcome


@pytest.mark.parametrize("seed", range(6))
def test_metrics_count_what_the_reader_joins(seed: int) -> None:
    calls = Calls(seed)
    joined = calls.joined()
    assert joined.total() > 40
    assert calls.counted() == joined
