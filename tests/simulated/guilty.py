"""Runs with a known culprit, of kinds that differ in what it does and in the engine that it meets.

Each kind is a function that makes the engines, what they are sent, and who is guilty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tests.simulated.engine import Machine
from tests.simulated.fleet import Engine, Row, Usual, poisson, records, removal, tenants
from tests.simulated.quiet import SPAN, Dice
from tests.simulated.scenario import random_machine


@dataclass(frozen=True)
class Guilty:
    """The records of a run, who is guilty, and the true effect of removing each tenant."""

    kind: str
    frame: pd.DataFrame
    culprits: tuple[str, ...]
    removal: dict[str, float]


@dataclass(frozen=True)
class Scene:
    """Usual tenants, the first of which will do something, and when."""

    dice: Dice
    some: list[Usual]
    begin: float
    end: float

    @property
    def culprit(self) -> Usual:
        """Who does it."""
        return self.some[0]

    @property
    def machine(self) -> Machine:
        """The engine."""
        return self.dice.machine

    def attack(
        self,
        load: tuple[float, float],
        who: Usual | None = None,
        begin: float | None = None,
        end: float | None = None,
        **sizes: Any,
    ) -> list[Row]:
        """Requests that ask for this part of the engine while they come."""
        one = replace(who or self.culprit, **sizes)
        low = self.begin if begin is None else begin
        high = self.end if end is None else end
        rate = float(self.dice.random.uniform(*load)) / one.work(self.machine)
        return one.at(self.dice.random, poisson(self.dice.random, rate, low, high))

    def usual(self) -> list[Row]:
        """What everybody sends anyway."""
        return self.dice.steady(self.some)


Found = tuple[list[Engine], tuple[Usual, ...]]


def _one(scene: Scene, attack: list[Row], **machine: Any) -> Found:
    engine = replace(scene.machine, **machine)
    return [Engine("one", engine, [*scene.usual(), *attack])], (scene.culprit,)


def flood(scene: Scene) -> Found:
    """Many more requests than usual."""
    return _one(scene, scene.attack((0.8, 1.3)))


def short_burst(scene: Scene) -> Found:
    """A burst of thousands of tiny requests."""
    return _one(scene, scene.attack((0.9, 1.4), prompt=60.0, answer=12.0, cached=0.0))


def long_inputs(scene: Scene) -> Found:
    """Prompts that are ten times as long."""
    prompt = float(scene.dice.random.uniform(5e3, 15e3))
    return _one(scene, scene.attack((0.7, 1.1), prompt=prompt, cached=0.0))


def long_outputs(scene: Scene) -> Found:
    """Answers that do not end."""
    answer = float(scene.dice.random.uniform(700, 1200))
    return _one(scene, scene.attack((0.8, 1.3), answer=answer))


def cache_thrash(scene: Scene) -> Found:
    """Long contexts in a small cache: requests lose their places again and again."""
    attack = scene.attack((0.6, 1.0), prompt=8000.0, answer=500.0, cached=0.7)
    return _one(scene, attack, blocks=int(scene.dice.random.integers(2500, 5000)))


def slow_ramp(scene: Scene) -> Found:
    """A load that grows little by little over a third of the time."""
    begin, end = SPAN * 0.4, SPAN * 0.8
    steps = np.linspace(begin, end, 9)
    rows: list[Row] = []
    for number, (low, high) in enumerate(pairwise(steps.tolist()), 1):
        level = 1.3 * number / 8
        rows += scene.attack((level, level), begin=low, end=high)
    return _one(scene, rows)


def on_off(scene: Scene) -> Found:
    """Three bursts with calm between them."""
    length = (scene.end - scene.begin) / 2
    starts = scene.begin + 2.2 * length * np.arange(3)
    rows: list[Row] = []
    for begin in starts.tolist():
        rows += scene.attack((1.1, 1.6), begin=begin, end=begin + length)
    return _one(scene, rows)


def whole_prompts(scene: Scene) -> Found:
    """Long prompts on an engine that computes prompts whole and first."""
    prompt = float(scene.dice.random.uniform(4e3, 10e3))
    attack = scene.attack((0.6, 0.9), prompt=prompt, cached=0.0)
    return _one(scene, attack, prompts_first=True, budget=8192)


def small_chunks(scene: Scene) -> Found:
    """Long prompts on an engine with small chunks."""
    prompt = float(scene.dice.random.uniform(4e3, 10e3))
    return _one(scene, scene.attack((0.6, 0.9), prompt=prompt, cached=0.0), budget=512)


def priority(scene: Scene) -> Found:
    """The culprit's requests are let in first."""
    return _one(scene, scene.attack((0.7, 1.0)), first=(scene.culprit.name,))


def two(scene: Scene) -> Found:
    """Two culprits at a time, each enough."""
    second = scene.some[1]
    rows = [*scene.attack((0.7, 1.0)), *scene.attack((0.6, 0.9), second, prompt=6000.0, cached=0.0)]
    engines, _ = _one(scene, rows)
    return engines, (scene.culprit, second)


def one_of_two_servers(scene: Scene) -> Found:
    """The culprit floods one server; the other goes on as usual."""
    hit = Engine("a", scene.machine, [*scene.usual(), *scene.attack((0.8, 1.3))])
    return [hit, Engine("b", scene.machine, scene.usual())], (scene.culprit,)


def newcomer(scene: Scene) -> Found:
    """A tenant that was not there before."""
    who = replace(scene.culprit, name="new")
    engines, _ = _one(scene, scene.attack((0.8, 1.2), who))
    return engines, (who,)


def beside_large(scene: Scene) -> Found:
    """A small tenant floods an engine that a large, steady one mostly fills."""
    large = scene.some[1]
    rate = 0.45 / large.work(scene.machine)
    rows = scene.dice.steady([replace(large, name="large", rate=rate)])
    return _one(scene, [*rows, *scene.attack((0.6, 0.9))])


def leaves(scene: Scene) -> Found:
    """A load that was there from the beginning, and stops half-way."""
    end = SPAN * float(scene.dice.random.uniform(0.4, 0.55))
    return _one(scene, scene.attack((0.6, 0.8), begin=0.0, end=end))


def arrives(scene: Scene) -> Found:
    """A tenant that was not there before, and stays."""
    who = replace(scene.culprit, name="new")
    begin = SPAN * float(scene.dice.random.uniform(0.5, 0.65))
    engines, _ = _one(scene, scene.attack((0.6, 0.8), who, begin, SPAN))
    return engines, (who,)


def brief(scene: Scene) -> Found:
    """There for one hundredth of the time."""
    begin = scene.begin
    return _one(scene, scene.attack((3.0, 5.0), begin=begin, end=begin + 0.01 * scene.dice.span))


def giants(scene: Scene) -> Found:
    """Six requests of a tenant are as long as the model takes; the others are as usual."""
    giant = replace(scene.culprit, prompt=28_000.0, cached=0.0, spread=0.05)
    times = scene.begin + 1.5 * np.arange(6)
    return _one(scene, giant.at(scene.dice.random, times.tolist()))


def large_batch(scene: Scene) -> Found:
    """Long answers to short prompts, and nobody waits: all steps take longer."""
    attack = scene.attack((1.5, 2.5), prompt=50.0, answer=500.0, cached=0.0)
    return _one(scene, attack, sequences=512, blocks=100_000, budget=8192)


def long_victim(scene: Scene) -> Found:
    """A steady tenant with long prompts, whose own requests are slow, beside the culprit."""
    victim = replace(scene.some[1], name="victim", prompt=8000.0, cached=0.0)
    victim = replace(victim, rate=0.2 / victim.work(scene.machine))
    return _one(scene, [*scene.dice.steady([victim]), *scene.attack((0.6, 1.0))])


def at_the_gateway(scene: Scene) -> Found:
    """A flood that waits before the engine, which lets in only what it can run at once."""
    return flood(scene)


def speculative(scene: Scene) -> Found:
    """Long answers on an engine whose steps give some requests more tokens than others."""
    answer = float(scene.dice.random.uniform(700, 1200))
    return _one(scene, scene.attack((1.2, 1.8), answer=answer), speculation=2.0)


def cache_collapse(scene: Scene) -> Found:
    """A tenant whose long prompts are cached no more for a while; it sends what it always did."""
    who = replace(scene.culprit, name="lost", prompt=6000.0, cached=0.95)
    who = replace(who, rate=0.25 / who.work(scene.machine))
    rows = scene.dice.steady([who])
    lost = [
        (at, name, prompt, 0 if scene.begin <= at < scene.end else cached, answer)
        for at, name, prompt, cached, answer in rows
    ]
    return _one(scene, lost)[0], (who,)


def in_turn(scene: Scene) -> Found:
    """Two culprits, one after the other."""
    second, length = scene.some[1], (scene.end - scene.begin) * 0.7
    later = scene.begin + 3 * length
    rows = scene.attack((1.0, 1.3), end=scene.begin + length)
    rows += scene.attack((1.0, 1.3), second, later, later + length)
    return _one(scene, rows)[0], (scene.culprit, second)


def everywhere(scene: Scene) -> Found:
    """A flood over three servers."""
    found = [
        Engine(name, scene.machine, [*scene.usual(), *scene.attack((0.8, 1.2))]) for name in "abc"
    ]
    return found, (scene.culprit,)


def crowd(scene: Scene) -> Found:
    """One of two hundred tenants floods."""
    weights = scene.dice.weights(200)
    some = tenants(scene.dice.random, scene.machine, scene.dice.load(0.3, 0.55), weights)
    who = some[0]
    rows = [*scene.dice.steady(some), *scene.attack((0.8, 1.2), who)]
    return [Engine("one", scene.machine, rows)], (who,)


def tide(scene: Scene) -> Found:
    """A flood in a day, in which everybody's load rises and falls."""
    phase = scene.dice.random.uniform(0, 2 * np.pi)

    def shape(when: np.ndarray) -> np.ndarray:
        return 1.0 + 0.7 * np.sin(2 * np.pi * when / scene.dice.span + phase)

    begin = scene.begin
    attack = scene.attack((0.9, 1.3), begin=begin, end=begin + 0.03 * scene.dice.span)
    rows = [*scene.dice.shaped(scene.some, shape), *attack]
    return [Engine("one", scene.machine, rows)], (scene.culprit,)


def adapters(scene: Scene) -> Found:
    """Every tenant has a model of its own, and all of them are one engine's."""
    return flood(scene)


def half_told(scene: Scene) -> Found:
    """Half of the requests do not say whose they are."""
    return flood(scene)


def mostly_strangers(scene: Scene) -> Found:
    """The culprit, beside a main load that does not say whose it is."""
    return beside_large(scene)


GUILTY: tuple[Callable[[Scene], Found], ...] = (
    flood,
    short_burst,
    long_inputs,
    long_outputs,
    cache_thrash,
    slow_ramp,
    on_off,
    whole_prompts,
    small_chunks,
    priority,
    two,
    one_of_two_servers,
    newcomer,
    beside_large,
    leaves,
    arrives,
    brief,
    giants,
    large_batch,
    long_victim,
    at_the_gateway,
    speculative,
    cache_collapse,
    in_turn,
    everywhere,
    crowd,
    tide,
    adapters,
    half_told,
    mostly_strangers,
)

KINDS = {kind.__name__: kind for kind in GUILTY}

LONG = {"brief": 5, "tide": 5}
"""Kinds whose runs are so many times as long."""


def _before(frame: pd.DataFrame) -> pd.DataFrame:
    """All waiting was before the engine."""
    waited = frame["frontend_seconds"] + frame["queue_seconds"]
    return frame.assign(frontend_seconds=waited, queue_seconds=0.0)


def _untold(frame: pd.DataFrame) -> pd.DataFrame:
    lost = np.random.default_rng(len(frame)).random(len(frame)) < 0.5
    return frame.assign(tenant=frame["tenant"].mask(lost))


RECORDED: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "at_the_gateway": _before,
    "adapters": lambda frame: frame.assign(model="base-" + frame["tenant"]),
    "half_told": _untold,
    "mostly_strangers": lambda frame: frame.assign(
        tenant=frame["tenant"].mask(frame["tenant"] == "large")
    ),
}
"""What the records of some kinds say, and do not say."""


def guilty(kind: str, seed: int, **changes: Any) -> Guilty:
    """One run with a culprit; the same seed gives the same one.

    Args:
        kind: What it does.
        seed: Of everything else.
        changes: What the engine has beside, such as jitter.
    """
    machine = replace(random_machine(seed), **changes)
    span = SPAN * LONG.get(kind, 1)
    dice = Dice(np.random.default_rng([seed, len(kind), 3]), machine, span)
    begin = span * float(dice.random.uniform(0.3, 0.5))
    end = begin + span * float(dice.random.uniform(0.1, 0.2))
    load = 0.25 if kind in ("beside_large", "mostly_strangers") else dice.load(0.3, 0.55)
    engines, culprits = KINDS[kind](Scene(dice, dice.usual(load), begin, end))
    frame = records(engines, seed)
    told = RECORDED[kind](frame) if kind in RECORDED else frame
    names = tuple(one.name for one in culprits)
    return Guilty(kind, told, names, removal(engines, seed))
