"""Runs in which no tenant is to be accused, of many kinds: load that is large, bursty, or common.

Each kind is a function that makes the engines and what they are sent; ``quiet`` picks one by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tests.simulated.engine import Machine
from tests.simulated.fleet import Engine, Row, Usual, poisson, records, tenants
from tests.simulated.scenario import random_machine

SPAN = 120.0
"""Seconds of a run."""


@dataclass(frozen=True)
class Quiet:
    """The records of a run, and what is true of its engines.

    ``slow`` is None where it is no matter whether an engine is called slow.
    """

    kind: str
    frame: pd.DataFrame
    slow: bool | None


Fleet = tuple[list[Engine], bool | None]


@dataclass(frozen=True)
class Dice:
    """Where a kind takes its choices from."""

    random: np.random.Generator
    machine: Machine
    span: float = SPAN

    def weights(self, count: int | None = None, even: float = 2.0) -> Sequence[float]:
        """Shares of the load of some tenants."""
        number = count or int(self.random.integers(4, 9))
        found: list[float] = self.random.dirichlet(np.full(number, even)).tolist()
        return found

    def load(self, low: float = 0.5, high: float = 0.9) -> float:
        """Part of the engine that is asked for."""
        return float(self.random.uniform(low, high))

    def usual(self, load: float | None = None, **more: float) -> list[Usual]:
        """Tenants as they mostly are."""
        part = self.load() if load is None else load
        return tenants(self.random, self.machine, part, self.weights(), **more)

    def steady(self, some: Sequence[Usual]) -> list[Row]:
        """Their requests at random times."""
        return [
            row
            for one in some
            for row in one.at(self.random, poisson(self.random, one.rate, 0.0, self.span))
        ]

    def shaped(self, some: Sequence[Usual], shape: Callable[[np.ndarray], np.ndarray]) -> list[Row]:
        """Their requests at a rate that has one shape for all; the mean of the shape is kept."""
        grid = shape(np.linspace(0.0, self.span, 2000))
        most = float(grid.max() / grid.mean())
        rows = []
        for one in some:
            times = np.array(poisson(self.random, one.rate * most, 0.0, self.span))
            kept = times[self.random.random(len(times)) < shape(times) / grid.max()]
            rows += one.at(self.random, kept.tolist())
        return rows


def steady(dice: Dice) -> Fleet:
    """Independent arrivals at a constant rate."""
    return [Engine("one", dice.machine, dice.steady(dice.usual()))], False


def own_bursts(dice: Dice) -> Fleet:
    """Every tenant comes in bursts, all the time."""
    rows: list[Row] = []
    burst = float(dice.random.uniform(2.0, 3.5))
    for one in dice.usual():
        gaps = dice.random.gamma(1 / burst**2, burst**2 / one.rate, int(3 * one.rate * SPAN) + 20)
        times = np.cumsum(gaps)
        rows += one.at(dice.random, times[times < SPAN].tolist())
    return [Engine("one", dice.machine, rows)], False


def common_bursts(dice: Dice) -> Fleet:
    """All come at once, again and again: their clients share a clock or a front page."""
    edges = np.cumsum(dice.random.exponential(10.0, 60))
    high = float(dice.random.uniform(3.0, 6.0))

    def shape(when: np.ndarray) -> np.ndarray:
        return np.where(np.searchsorted(edges, when) % 3 == 1, high, 1.0)

    return [Engine("one", dice.machine, dice.shaped(dice.usual(), shape))], False


def diurnal(dice: Dice) -> Fleet:
    """A day in two minutes: everybody's load rises and falls."""
    phase, depth = dice.random.uniform(0, 2 * np.pi), dice.random.uniform(0.5, 0.9)

    def shape(when: np.ndarray) -> np.ndarray:
        return 1.0 + depth * np.sin(2 * np.pi * when / SPAN + phase)

    return [Engine("one", dice.machine, dice.shaped(dice.usual(), shape))], False


def heavy_tails(dice: Dice) -> Fleet:
    """Sizes that differ by orders of magnitude within each tenant."""
    return [Engine("one", dice.machine, dice.steady(dice.usual(spread=1.3)))], False


def many_small(dice: Dice) -> Fleet:
    """Dozens of tenants, each small."""
    weights = dice.weights(int(dice.random.integers(30, 70)))
    some = tenants(dice.random, dice.machine, dice.load(), weights)
    return [Engine("one", dice.machine, dice.steady(some))], False


def one_large(dice: Dice) -> Fleet:
    """One tenant has most of the load, all the time."""
    share = dice.random.uniform(0.5, 0.8)
    rest = [(1 - share) * weight for weight in dice.weights(int(dice.random.integers(3, 7)))]
    some = tenants(dice.random, dice.machine, dice.load(), [share, *rest])
    return [Engine("one", dice.machine, dice.steady(some))], False


def surge(dice: Dice) -> Fleet:
    """Everybody's load rises at one time."""
    begin = SPAN * dice.random.uniform(0.3, 0.6)
    end = begin + SPAN * dice.random.uniform(0.1, 0.2)
    high = float(dice.random.uniform(2.5, 5.0))

    def shape(when: np.ndarray) -> np.ndarray:
        return np.where((when >= begin) & (when < end), high, 1.0)

    return [Engine("one", dice.machine, dice.shaped(dice.usual(dice.load(0.4, 0.7)), shape))], False


def ramp(dice: Dice) -> Fleet:
    """Everybody's load grows until the engine is full."""
    some = dice.usual(dice.load(0.6, 0.9))
    return [Engine("one", dice.machine, dice.shaped(some, lambda when: 0.2 + when / SPAN))], False


def servers(dice: Dice) -> Fleet:
    """Several engines that get different parts of the load."""
    found = []
    count = int(dice.random.integers(2, 4))
    some = dice.usual(dice.load(0.8, 1.2))
    for name, part in zip("abc", dice.random.dirichlet(np.full(count, 4.0)), strict=False):
        mine = [replace(one, rate=one.rate * float(part) * 1.5) for one in some]
        found.append(Engine(name, dice.machine, dice.steady(mine)))
    return found, False


def few(dice: Dice) -> Fleet:
    """Hardly any requests, and these are long."""
    some = [
        replace(one, prompt=4 * one.prompt, answer=4 * one.answer, rate=one.rate / 4)
        for one in dice.usual(dice.load(0.5, 0.9))
    ]
    rows = sorted(dice.steady(some))
    return [Engine("one", dice.machine, rows[:: len(rows) // 150 + 1])], None


def slow_engine(dice: Dice) -> Fleet:
    """The engine itself is slow for a while."""
    begin = SPAN * dice.random.uniform(0.3, 0.6)
    machine = replace(
        dice.machine,
        slow_from=begin,
        slow_until=begin + SPAN * dice.random.uniform(0.12, 0.3),
        slow_by=float(dice.random.uniform(1.8, 3.5)),
    )
    return [Engine("one", machine, dice.steady(dice.usual(dice.load(0.35, 0.6))))], True


def throttled(dice: Dice) -> Fleet:
    """Clocks that go down and up again: the engine is slow in every second stretch."""
    machine = replace(
        dice.machine,
        slow_from=SPAN * dice.random.uniform(0.2, 0.4),
        slow_until=SPAN * dice.random.uniform(0.7, 0.9),
        slow_by=float(dice.random.uniform(1.3, 2.5)),
        slow_every=float(dice.random.uniform(6.0, 20.0)),
    )
    return [Engine("one", machine, dice.steady(dice.usual(dice.load(0.4, 0.7))))], None


def correlated(dice: Dice) -> Fleet:
    """A request of one tenant brings requests of others: steps of one pipeline."""
    some = dice.usual(dice.load(0.5, 0.8))
    first, *rest = some
    rows = first.at(dice.random, poisson(dice.random, first.rate, 0.0, SPAN))
    for one in rest:
        wanted = poisson(dice.random, one.rate, 0.0, SPAN)
        brought = dice.random.permutation([at for at, *_ in rows])[: len(wanted) * 3 // 4]
        times = [float(at + dice.random.exponential(1.0)) for at in brought]
        times += dice.random.permutation(wanted)[len(times) :].tolist()
        rows += one.at(dice.random, [at for at in times if at < SPAN])
    return [Engine("one", dice.machine, rows)], False


def sessions(dice: Dice) -> Fleet:
    """Talks: a few turns, each with the whole talk so far as its prompt, mostly cached.

    They are short against the window: one talk that fills half of it is a change of load.
    """
    rows: list[Row] = []
    for one in dice.usual(dice.load(0.5, 0.8)):
        turns = int(dice.random.integers(3, 7))
        for begin in poisson(dice.random, one.rate / turns, -20.0, SPAN):
            at, said = begin, 0
            for prompt, _, answer in one.sizes(dice.random, turns):
                whole = said + prompt // 3 + 16
                if 0.0 <= at < SPAN:
                    rows.append((at, one.name, whole, said, answer))
                said, at = whole + answer, at + float(dice.random.exponential(2.0)) + 0.5
    return [Engine("one", dice.machine, rows)], False


def periodic(dice: Dice) -> Fleet:
    """A job that comes every few seconds, as it always did."""
    some = dice.usual(dice.load(0.5, 0.8))
    first, *rest = some
    every = float(dice.random.uniform(8.0, 20.0))
    count = max(round(first.rate * every), 2)
    times = [
        begin + float(dice.random.uniform(0.0, 0.5))
        for begin in np.arange(dice.random.uniform(0, every), SPAN - 1.0, every)
        for _ in range(count)
    ]
    return [Engine("one", dice.machine, [*dice.steady(rest), *first.at(dice.random, times)])], False


def noisy(dice: Dice) -> Fleet:
    """Step times that jitter and stall."""
    machine = replace(dice.machine, jitter=0.2, stall=0.004)
    return [Engine("one", machine, dice.steady(dice.usual(dice.load(0.4, 0.8))))], False


def overload(dice: Dice) -> Fleet:
    """More is asked for than the engine can do, from beginning to end."""
    return [Engine("one", dice.machine, dice.steady(dice.usual(dice.load(1.0, 1.4))))], False


def light(dice: Dice) -> Fleet:
    """An engine that is hardly used."""
    return [Engine("one", dice.machine, dice.steady(dice.usual(dice.load(0.05, 0.25))))], False


def failover(dice: Dice) -> Fleet:
    """Tenants that each have their server, until one server is gone and the other gets all."""
    machine, gone = dice.machine, SPAN * dice.random.uniform(0.5, 0.7)
    some = dice.usual(dice.load(0.7, 1.1))
    first = dice.steady(some[::2])
    second = dice.steady(some[1::2])
    moved = [row for row in second if row[0] >= gone]
    stayed = [row for row in second if row[0] < gone]
    return [Engine("a", machine, [*first, *moved]), Engine("b", machine, stayed)], None


def strangers(dice: Dice) -> Fleet:
    """A flood of requests that do not say whose they are."""
    some = dice.usual(dice.load(0.4, 0.6))
    begin = SPAN * dice.random.uniform(0.3, 0.6)
    flood = replace(some[0], name="")
    times = poisson(dice.random, 1.0 / flood.work(dice.machine), begin, begin + 0.15 * SPAN)
    return [Engine("one", dice.machine, [*dice.steady(some), *flood.at(dice.random, times)])], None


def cold_start(dice: Dice) -> Fleet:
    """Everybody's cache is lost at one time: the engine, or the router, began anew."""
    lost = SPAN * dice.random.uniform(0.3, 0.6)
    until = lost + SPAN * dice.random.uniform(0.1, 0.3)
    some = [replace(one, cached=0.8) for one in dice.usual(dice.load(0.6, 0.8))]
    rows = [
        (at, who, prompt, 0 if lost <= at < until else cached, answer)
        for at, who, prompt, cached, answer in dice.steady(some)
    ]
    return [Engine("one", dice.machine, rows)], None


def hang(dice: Dice) -> Fleet:
    """The engine does next to nothing for some seconds, and all wait."""
    begin = SPAN * dice.random.uniform(0.3, 0.6)
    length = float(dice.random.uniform(4.0, 12.0))
    machine = replace(dice.machine, slow_from=begin, slow_until=begin + length, slow_by=200.0)
    return [Engine("one", machine, dice.steady(dice.usual(dice.load(0.4, 0.7))))], None


def batch_and_chat(dice: Dice) -> Fleet:
    """A steady batch job with long prompts beside tenants that chat."""
    some = dice.usual(dice.load(0.3, 0.5))
    job = replace(some[0], name="job", prompt=8000.0, answer=20.0, cached=0.0)
    job = replace(job, rate=float(dice.load(0.2, 0.4)) / job.work(dice.machine))
    return [Engine("one", dice.machine, dice.steady([*some, job]))], False


QUIET: tuple[Callable[[Dice], Fleet], ...] = (
    steady,
    own_bursts,
    common_bursts,
    diurnal,
    heavy_tails,
    many_small,
    one_large,
    surge,
    ramp,
    servers,
    few,
    slow_engine,
    throttled,
    correlated,
    sessions,
    periodic,
    noisy,
    overload,
    light,
    failover,
    strangers,
    cold_start,
    hang,
    batch_and_chat,
)
"""All kinds; clients' timeouts cut the records of every fourth run."""

KINDS = {kind.__name__: kind for kind in QUIET}


def quiet(kind: str, seed: int) -> Quiet:
    """One run in which no tenant is to be accused; the same seed gives the same one."""
    machine = random_machine(seed)
    if seed % 5 == 1:
        machine = replace(machine, prompts_first=True)
    dice = Dice(np.random.default_rng([seed, len(kind)]), machine)
    engines, slow = KINDS[kind](dice)
    frame = records(engines, seed)
    frame["tenant"] = frame["tenant"].mask(frame["tenant"] == "")
    return Quiet(kind, given_up(frame) if seed % 4 == 2 else frame, slow)


def given_up(frame: pd.DataFrame) -> pd.DataFrame:
    """Clients leave after a time that one request in thirty would exceed."""
    patience = float(np.quantile(frame["total_seconds"], 0.97))
    late = frame["total_seconds"] > patience
    left = np.minimum(frame["total_seconds"], patience)
    told = {"total_seconds": left, "outcome": np.where(late, "generation_timeout", "ok")}
    for name in ("frontend", "queue", "prefill", "decode"):
        took = np.minimum(frame[f"{name}_seconds"], left)
        told[f"{name}_seconds"], left = took, left - took
    made = (
        frame["output_tokens"] * told["decode_seconds"] / frame["decode_seconds"].clip(lower=1e-6)
    )
    told["output_tokens"] = np.where(late, np.maximum(made, 1).astype(int), frame["output_tokens"])
    ended = frame["arrived_ns"] + (told["total_seconds"] * 1e9).astype("int64")
    before = told["frontend_seconds"] + told["queue_seconds"] + told["prefill_seconds"]
    return frame.assign(**told, ended_ns=ended, ttft_seconds=before)
