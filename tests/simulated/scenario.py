"""Random scenarios with a known culprit, or none, and the true effect of removing each tenant."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tests.simulated.engine import Machine, Request, play

TENANTS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple")
CULPRITS = ("flood", "longprompt", "longoutput", "cacheloss", "cachehog", "decoy", "two")
NULLS = ("steady", "large", "bursty", "surge", "slow_engine")
KINDS = (*CULPRITS, *NULLS)

START_NS = 1_796_000_000_000_000_000


@dataclass(frozen=True)
class Scenario:
    """Requests of one engine, and the truth about them."""

    kind: str
    frame: pd.DataFrame
    culprits: tuple[str, ...]
    slow_engine: bool
    removal: dict[str, float]


def scenario(
    kind: str,
    seed: int,
    *,
    span: float = 240.0,
    machine: Machine | None = None,
    removals: bool = True,
) -> Scenario:
    """Make one scenario; the same seed gives the same one."""
    random = np.random.default_rng(seed)
    engine = machine or random_machine(seed)
    begin = span * random.uniform(0.3, 0.5)
    end = begin + span * random.uniform(0.08, 0.2)
    if kind == "slow_engine":
        factor = float(random.uniform(1.7, 3.5))
        engine = replace(engine, slow_from=begin, slow_until=end, slow_by=factor)
    requests, culprits = _requests(kind, random, engine, span, begin, end)
    whole = _played(requests, engine, seed)
    removal = _removal(requests, whole, engine, seed) if removals else {}
    return Scenario(kind, to_frame(whole), culprits, kind == "slow_engine", removal)


def random_machine(seed: int) -> Machine:
    """An engine of random speed and limits."""
    random = np.random.default_rng([seed, 7])
    scale = float(random.uniform(0.6, 1.6))
    return Machine(
        floor=0.008 * scale,
        fixed=0.002 * scale,
        per_prompt=60e-6 * scale,
        per_decode=float(random.uniform(40e-6, 150e-6)) * scale,
        per_read=float(random.uniform(30e-9, 120e-9)) * scale,
        per_pair=float(random.uniform(1e-9, 3e-9)) * scale,
        sequences=int(random.choice([16, 24, 32, 48, 64, 128])),
        budget=int(random.choice([1024, 2048, 4096, 8192])),
        blocks=int(random.choice([4000, 8000, 16000])),
        boundary=bool(random.random() < 0.5),
    )


def _requests(
    kind: str, random: np.random.Generator, machine: Machine, span: float, begin: float, end: float
) -> tuple[list[Request], tuple[str, ...]]:
    names = list(TENANTS[: int(random.integers(4, len(TENANTS) + 1))])
    weights = random.dirichlet(np.full(len(names), 2.0))
    if kind == "large":
        weights = np.array([0.6, *(0.4 * random.dirichlet(np.full(len(names) - 1, 3.0)))])
    load = random.uniform(0.2, 0.35) if kind == "decoy" else random.uniform(0.35, 0.6)
    if kind in ("steady", "large", "bursty"):
        load = random.uniform(0.5, 0.85)
    made: list[tuple[float, str, int, int, int]] = []
    bursty = 3.0 if kind == "bursty" else float(random.choice([1.0, 1.0, 1.5]))
    hit = random.permutation(len(names))
    culprits: list[str] = []
    for place, name in enumerate(names):
        prompt, answer = random.uniform(300, 1500), random.uniform(60, 250)
        share = random.choice([0.0, 0.0, 0.5])
        rate = load * weights[place] / _engine_seconds(machine, prompt * (1 - share), answer)
        role = kind if place == hit[0] else ("second" if place == hit[1] else "")
        if kind == "surge":
            role = "surge"
        share = 0.75 if role == "cacheloss" else share
        if role in CULPRITS or (role == "second" and kind == "two"):
            culprits.append(name)
        made += _stream(random, name, rate, prompt, answer, share, span, bursty)
        made = _injected(
            random, made, role, kind, name, (rate, prompt, answer, share), begin, end, machine
        )
    made.sort(key=lambda one: one[0])
    requests = [Request(i, name, at, n, c, m) for i, (at, name, n, c, m) in enumerate(made)]
    return requests, tuple(culprits)


def _engine_seconds(machine: Machine, prompt: float, answer: float) -> float:
    """Rough engine seconds of a request that shares its steps with a dozen others."""
    return prompt * machine.per_prompt + answer * (machine.floor / 12 + machine.per_decode)


def _stream(
    random: np.random.Generator,
    name: str,
    rate: float,
    prompt: float,
    answer: float,
    share: float,
    span: float,
    bursty: float,
) -> list[tuple[float, str, int, int, int]]:
    rate = max(rate, 6.0 / span)
    gaps = random.gamma(1 / bursty**2, bursty**2 / rate, size=int(3 * rate * span) + 20)
    times = np.cumsum(gaps)
    return [(float(at), name, *_size(random, prompt, answer, share)) for at in times[times < span]]


def _size(
    random: np.random.Generator, prompt: float, answer: float, share: float
) -> tuple[int, int, int]:
    tokens = int(np.clip(random.lognormal(np.log(prompt), 0.6), 16, 30_000))
    made = int(np.clip(random.lognormal(np.log(answer), 0.6), 2, 2000))
    return tokens, int(tokens * share * random.uniform(0.8, 1.0)), made


def _injected(
    random: np.random.Generator,
    made: list[tuple[float, str, int, int, int]],
    role: str,
    kind: str,
    name: str,
    usual: tuple[float, float, float, float],
    begin: float,
    end: float,
    machine: Machine,
) -> list[tuple[float, str, int, int, int]]:
    rate, prompt, answer, share = usual
    length = end - begin

    def burst(
        work: float, prompt: float, answer: float, share: float
    ) -> list[tuple[float, str, int, int, int]]:
        count = work * length / _engine_seconds(machine, prompt * (1 - share), answer)
        times = begin + length * random.random(max(int(count), 4))
        return [(float(at), name, *_size(random, prompt, answer, share)) for at in times]

    if role == "surge":
        extra = random.uniform(2.5, 3.5) * rate * _engine_seconds(machine, prompt, answer)
        return made + burst(extra, prompt, answer, share)
    if role in ("flood", "two"):
        return made + burst(random.uniform(0.8, 1.3), prompt, answer, share)
    if role == "longprompt" or (role == "decoy"):
        return made + burst(random.uniform(0.7, 1.1), random.uniform(6e3, 15e3), answer, 0.0)
    if role == "longoutput":
        return made + burst(random.uniform(0.8, 1.3), prompt, random.uniform(700, 1200), share)
    if role == "cachehog":
        return made + burst(random.uniform(0.7, 1.1), 8000.0, 600.0, 0.7)
    if role == "cacheloss":
        lost = [
            (at, who, n, 0 if who == name and begin <= at < end else c, m)
            for at, who, n, c, m in made
        ]
        return lost + burst(random.uniform(0.6, 1.0), 2 * prompt, answer, 0.0)
    if role == "second" and kind == "two":
        return made + burst(random.uniform(0.6, 1.0), 6000.0, answer, 0.0)
    if role == "second" and kind == "decoy":
        times = begin + length * random.random(int(8 * length))
        return made + [(float(at), name, 24, 0, 4) for at in times]
    return made


def _played(requests: list[Request], machine: Machine, seed: int) -> list[Request]:
    fresh = copy.deepcopy(requests)
    play(fresh, machine, seed)
    return fresh


def _removal(
    requests: list[Request], whole: list[Request], machine: Machine, seed: int
) -> dict[str, float]:
    """Share of the excess of the slowest 5 % (of the others) that goes away without each tenant."""
    alone = {}
    for request in requests:
        single = copy.deepcopy(request)
        play([single], replace(machine, jitter=0.0, stall=0.0, slow_by=1.0), seed)
        alone[request.number] = single.done - single.arrived
    took = {r.number: r.done - r.arrived for r in whole}
    excess = {number: max(took[number] - alone[number], 0.0) for number in took}
    least = np.sort(list(excess.values()))[-max(round(0.05 * len(excess)), 1)]
    slow = [r for r in whole if excess[r.number] >= least]
    found = {}
    for tenant in sorted({r.tenant for r in requests}):
        victims = [r.number for r in slow if r.tenant != tenant]
        if len(victims) < 8:
            others = [r for r in whole if r.tenant != tenant]
            count = max(round(0.05 * len(others)), 1)
            victims = [r.number for r in sorted(others, key=lambda r: -excess[r.number])[:count]]
        rest = _played([r for r in requests if r.tenant != tenant], machine, seed)
        after = {r.number: r.done - r.arrived for r in rest}
        saved = sum(took[number] - after[number] for number in victims)
        total = sum(excess[number] for number in victims)
        found[tenant] = saved / total if total > 0 else 0.0
    return found


def to_frame(requests: list[Request], server: str = "sim:8000") -> pd.DataFrame:
    """Requests as records."""
    rows = []
    for r in requests:
        arrived = START_NS + round(r.arrived * 1e9)
        rows.append(
            {
                "source": "simulated",
                "role": "engine",
                "span_id": f"{r.number:016x}",
                "tenant": r.tenant,
                "model": "sim",
                "server": server,
                "arrived_ns": arrived,
                "ended_ns": START_NS + round(r.done * 1e9),
                "frontend_seconds": round(r.seen - r.arrived, 6),
                "queue_seconds": round(r.start - r.seen, 6),
                "prefill_seconds": round(r.first - r.start, 6),
                "decode_seconds": round(r.done - r.first, 6),
                "ttft_seconds": round(r.first - r.arrived, 6),
                "total_seconds": round(r.done - r.arrived, 6),
                "input_tokens": r.input,
                "cached_tokens": r.cached,
                "output_tokens": r.output,
                "max_tokens": r.output,
                "outcome": "ok",
                "attempt": 1,
            }
        )
    return pd.DataFrame(rows)
