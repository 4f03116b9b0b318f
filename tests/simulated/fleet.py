"""Scenarios of one or more engines, built from streams of requests, and the truth about them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tests.simulated.engine import Machine, Request, play
from tests.simulated.scenario import to_frame

Row = tuple[float, str, int, int, int]
"""Arrival in seconds, tenant, prompt tokens, cached ones, answer tokens."""

SHARED = 12
"""Requests that usually share a step, for a rough idea of what a request asks of an engine."""


VICTIMS = 8
"""Slow requests of others below which the slowest of the others are looked at."""

REMOVED = 12
"""Tenants that are removed to see what they did: those that ask for most."""


@dataclass(frozen=True)
class Engine:
    """One engine of a fleet, and what it is sent."""

    name: str
    machine: Machine
    rows: Sequence[Row]


@dataclass(frozen=True)
class Usual:
    """What a tenant usually sends."""

    name: str
    rate: float
    prompt: float
    answer: float
    cached: float = 0.0
    spread: float = 0.6

    def sizes(self, random: np.random.Generator, count: int) -> list[tuple[int, int, int]]:
        """Prompt tokens, cached ones, answer tokens of some requests."""
        prompts = np.clip(random.lognormal(np.log(self.prompt), self.spread, count), 16, 30_000)
        answers = np.clip(random.lognormal(np.log(self.answer), self.spread, count), 2, 2000)
        cached = prompts * self.cached * random.uniform(0.8, 1.0, count)
        return [(int(p), int(c), int(a)) for p, c, a in zip(prompts, cached, answers, strict=True)]

    def at(self, random: np.random.Generator, times: Sequence[float]) -> list[Row]:
        """Requests of the usual sizes at these times."""
        sizes = self.sizes(random, len(times))
        return [(float(at), self.name, *size) for at, size in zip(times, sizes, strict=True)]

    def work(self, machine: Machine) -> float:
        """Engine seconds of one request, roughly."""
        return engine_seconds(machine, self.prompt * (1.0 - self.cached), self.answer)


def engine_seconds(machine: Machine, prompt: float, answer: float) -> float:
    """Rough engine seconds of a request that shares its steps with a dozen others."""
    step = machine.floor / SHARED + machine.per_decode
    return prompt * machine.per_prompt + answer * step


def tenants(
    random: np.random.Generator,
    machine: Machine,
    load: float,
    weights: Sequence[float],
    *,
    spread: float = 0.6,
) -> list[Usual]:
    """Tenants that ask for a part of an engine together, each for its weight of it."""
    found = []
    for number, weight in enumerate(weights):
        prompt, answer = random.uniform(300, 1500), random.uniform(60, 250)
        cached = float(random.choice([0.0, 0.0, 0.5]))
        one = Usual(f"t{number:02d}", 0.0, prompt, answer, cached, spread)
        found.append(replace(one, rate=load * weight / one.work(machine)))
    return found


def poisson(random: np.random.Generator, rate: float, begin: float, end: float) -> list[float]:
    """Times of independent arrivals."""
    count = random.poisson(max(rate * (end - begin), 0.0))
    return sorted(random.uniform(begin, end, count).tolist())


def records(engines: Sequence[Engine], seed: int) -> pd.DataFrame:
    """What the engines record."""
    frames = [to_frame(_played(one, seed), f"{one.name}:8000") for one in engines]
    return pd.concat(frames, ignore_index=True)


def removal(engines: Sequence[Engine], seed: int, part: float = 0.05) -> dict[str, float]:
    """Share of the slow excess of the others that goes away without each of the largest tenants."""
    whole = [_played(one, seed) for one in engines]
    excess = [_excess(one, rows) for one, rows in zip(engines, whole, strict=True)]
    every = np.concatenate(excess)
    least = np.sort(every)[-max(round(part * len(every)), 1)]
    found = {}
    for name in _largest(engines):
        saved = total = 0.0
        theirs = np.array([row.tenant != name for rows in whole for row in rows])
        bound = least
        if (every[theirs] >= least).sum() < VICTIMS:  # its own requests are the slow ones
            rest = np.sort(every[theirs])
            bound = rest[-max(round(part * len(rest)), 1)] if len(rest) else least
        for one, rows, lost in zip(engines, whole, excess, strict=True):
            others = [row for row in one.rows if row[1] != name]
            left = _played(replace(one, rows=others), seed)
            mine = np.array([row.tenant == name for row in rows], dtype=bool)
            took = np.array([row.done - row.arrived for row in rows])[~mine]
            after = np.array([row.done - row.arrived for row in left])
            slow = lost[~mine] >= bound
            saved += float((took - after)[slow].sum())
            total += float(lost[~mine][slow].sum())
        found[name] = saved / total if total > 0 else 0.0
    return found


def _largest(engines: Sequence[Engine]) -> list[str]:
    asked: dict[str, float] = {}
    for one in engines:
        for _, name, prompt, cached, answer in one.rows:
            work = engine_seconds(one.machine, prompt - cached, answer)
            asked[name] = asked.get(name, 0.0) + work
    return sorted(sorted(asked, key=lambda name: -asked[name])[:REMOVED])


def _played(one: Engine, seed: int) -> list[Request]:
    rows = sorted(one.rows)
    requests = [Request(i, who, at, n, c, m) for i, (at, who, n, c, m) in enumerate(rows)]
    play(requests, one.machine, seed)
    return requests


def _excess(one: Engine, rows: Sequence[Request]) -> np.ndarray:
    calm = replace(one.machine, jitter=0.0, stall=0.0, slow_by=1.0)
    found = []
    for row in rows:
        single = copy.copy(row)
        single.seen = single.start = single.first = single.done = -1.0
        single.made = single.held = single.left = 0
        single.spare = 0.0
        play([single], calm, 0)
        found.append(max(row.done - row.arrived - (single.done - single.arrived), 0.0))
    return np.array(found)
