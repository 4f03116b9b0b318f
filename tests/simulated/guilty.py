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
from tests.simulated.fleet import Engine, Row, Usual, poisson, records, removal
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
)

KINDS = {kind.__name__: kind for kind in GUILTY}


def guilty(kind: str, seed: int, **changes: Any) -> Guilty:
    """One run with a culprit; the same seed gives the same one.

    Args:
        kind: What it does.
        seed: Of everything else.
        changes: What the engine has beside, such as jitter.
    """
    machine = replace(random_machine(seed), **changes)
    dice = Dice(np.random.default_rng([seed, len(kind), 3]), machine)
    begin = SPAN * float(dice.random.uniform(0.3, 0.5))
    end = begin + SPAN * float(dice.random.uniform(0.1, 0.2))
    load = 0.25 if kind == "beside_large" else dice.load(0.3, 0.55)
    engines, culprits = KINDS[kind](Scene(dice, dice.usual(load), begin, end))
    names = tuple(one.name for one in culprits)
    return Guilty(kind, records(engines, seed), names, removal(engines, seed))
