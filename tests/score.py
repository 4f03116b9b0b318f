"""Scores the attribution against known truth: ``python -m tests.score --seeds 10``.

``--null 100 --from-seed N`` makes that many runs in which no tenant is to be accused, of the kinds
in ``tests.simulated.quiet``; ``--guilty 100`` as many of those in ``tests.simulated.guilty``, as
they are or spoiled (``--ways``). ``in range`` counts true shares that lie in the stated range.

Prints, for recorded scenarios and real paired plays (``--shared DIR``) and for generated ones: how
often the culprit comes first, how far the removal share is from the truth, precision and recall of
the accusations, and false accusations where nobody is to be accused.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tailscope.triage.verdict import attribute
from tests.degraded import WAYS
from tests.simulated import guilty, quiet
from tests.simulated.scenario import KINDS, Scenario, random_machine, scenario

Job = tuple[str, int, str]
"""Kind, seed, and how the records are spoiled."""

ENGINES: dict[str, dict[str, Any]] = {
    "jitter": {"jitter": 0.2, "stall": 0.004},
    "prompts": {"prompts_first": True},
}
"""Ways that are the engine's, not the records'."""

CULPRIT = 0.25
"""True removal share from which an accusation is right."""


@dataclass(frozen=True)
class Score:
    """What one attribution got right."""

    name: str
    group: str
    grade: str
    culprits: tuple[str, ...]
    first: str | None
    accused: tuple[str, ...]
    engine_slow: bool | None
    engine_accused: bool
    told: dict[str, float]
    ranges: dict[str, tuple[float, float]]
    sure: frozenset[str]
    truth: dict[str, float]
    loss: float

    @property
    def errors(self) -> list[float]:
        """Told less true removal share, for every tenant with both."""
        return [self.told[name] - true for name, true in self.truth.items() if name in self.told]

    @property
    def sure_errors(self) -> list[float]:
        """The same for tenants with grade A or B."""
        return [self.told[name] - true for name, true in self.truth.items() if name in self.sure]

    @property
    def within(self) -> list[bool]:
        """Whether the true share lies in the range that was told."""
        return [
            low <= min(max(true, 0.0), 1.0) <= high
            for name, true in self.truth.items()
            for low, high in [self.ranges.get(name, (0.0, 1.0))]
        ]

    @property
    def matters(self) -> bool:
        """Whether a culprit did real harm."""
        return any(self.truth.get(name, 1.0) >= CULPRIT for name in self.culprits)


def score(
    name: str,
    group: str,
    frame: pd.DataFrame,
    culprits: tuple[str, ...],
    truth: dict[str, float],
    *,
    slow: bool | None = False,
    quantile: float = 0.95,
) -> Score:
    """Attribute, and compare with the truth."""
    found = attribute(frame, quantile=quantile)
    tenants = [one for one in found.suspects if one.kind == "tenant"]
    return Score(
        name,
        group,
        found.grade,
        culprits,
        tenants[0].name if tenants else None,
        tuple(one.name for one in tenants if one.accused),
        slow,
        any(one.accused for one in found.suspects if one.kind == "engine"),
        {one.name: one.removal_share for one in tenants},
        {one.name: one.removal_range for one in tenants},
        frozenset(one.name for one in tenants if one.grade in "AB"),
        truth,
        min((one.fidelity.loss for one in found.studies if one.fidelity), default=float("nan")),
    )


def read(path: Path) -> pd.DataFrame:
    """Records of a file of JSON lines."""
    with gzip.open(path, "rt") as file:
        return pd.DataFrame([json.loads(line) for line in file])


def recorded(shared: Path) -> Iterator[Score]:
    """The scenarios with a truth file."""
    for path in sorted((shared / "scenarios").glob("*.jsonl.gz")):
        truth = json.loads(path.with_name(path.name.replace("jsonl.gz", "truth.json")).read_text())
        yield score(
            path.name.removesuffix(".jsonl.gz"),
            "recorded",
            read(path),
            tuple(truth["injected"]),
            {name: one["removal_share"] for name, one in truth["tenants"].items()},
            slow=truth["engine_slowdown"],
        )


def paired(shared: Path) -> Iterator[Score]:
    """The whole plays on a real engine."""
    for path in sorted((shared / "paired").glob("*/full*/records.jsonl.gz")):
        truth = json.loads((path.parent.parent / "truth.json").read_text())
        yield score(
            f"{truth['scenario']}/{path.parent.name}",
            "paired",
            read(path),
            tuple(truth["attackers"]),
            {
                name: one["cohort"]["share_by_reference"][path.parent.name]
                for name, one in truth["removed"].items()
            },
            quantile=0.90,
        )


def generated(job: Job) -> Score:
    """One generated scenario, as it is or spoiled."""
    kind, seed, way = job
    machine = random_machine(seed)
    machine = replace(machine, **ENGINES.get(way, {}))
    made: Scenario = scenario(kind, seed, span=150.0, machine=machine)
    frame = WAYS[way](made.frame) if way in WAYS else made.frame
    return score(
        f"{kind}-{seed}-{way}",
        way,
        frame,
        made.culprits,
        made.removal,
        slow=made.slow_engine,
    )


def quiet_run(job: Job) -> Score:
    """One run in which no tenant is to be accused."""
    kind, seed, _ = job
    made = quiet.quiet(kind, seed)
    return score(f"{kind}-{seed}", "quiet", made.frame, (), {}, slow=made.slow)


def guilty_run(job: Job) -> Score:
    """One run with a culprit, as it is or spoiled."""
    kind, seed, way = job
    made = guilty.guilty(kind, seed, **ENGINES.get(way, {}))
    frame = WAYS[way](made.frame) if way in WAYS else made.frame
    return score(f"{kind}-{seed}-{way}", f"guilty {way}", frame, made.culprits, made.removal)


def table(scores: list[Score]) -> str:
    """One line for each group of scores."""
    lines = [
        f"{'group':<19}{'runs':>5}{'top-1':>8}{'recall':>8}{'precision':>10}{'false/null':>11}"
        f"{'engine':>8}{'|error|':>8}{'p90':>7}{'A/B err':>9}{'in range':>10}"
        f"{'grades':>16}"
    ]
    for group in dict.fromkeys(one.group for one in scores):
        lines.append(_line(group, [one for one in scores if one.group == group]))
    return "\n".join(lines)


def _line(group: str, scores: list[Score]) -> str:
    attacked = [one for one in scores if one.culprits and one.matters]
    nulls = [one for one in scores if not one.culprits]
    top = sum(one.first in one.culprits for one in attacked)
    harmful = [
        (one, name) for one in attacked for name in one.culprits if one.truth.get(name, 1.0) >= 0.4
    ]
    recalled = sum(name in one.accused for one, name in harmful)
    accusations = [(one, name) for one in scores for name in one.accused]
    right = sum(name in one.culprits for one, name in accusations)
    false = sum(bool(one.accused) for one in nulls)
    known = [one for one in scores if one.engine_slow is not None]
    engines = sum(one.engine_slow == one.engine_accused for one in known)
    errors = np.abs([error for one in scores for error in one.errors] or [0.0])
    good = np.abs([error for one in scores for error in one.sure_errors] or [0.0])
    within = [inside for one in scores for inside in one.within]
    grades = "".join(f" {g}{sum(one.grade == g for one in scores)}" for g in "ABCD")
    return (
        f"{group:<19}{len(scores):>5}{f'{top}/{len(attacked)}':>8}"
        f"{f'{recalled}/{len(harmful)}':>8}{f'{right}/{len(accusations)}':>10}"
        f"{f'{false}/{len(nulls)}':>11}{f'{engines}/{len(known)}':>8}"
        f"{errors.mean():>8.3f}{np.quantile(errors, 0.9):>7.3f}{good.max():>9.3f}"
        f"{f'{sum(within)}/{len(within)}':>10}{grades:>16}"
    )


def mistakes(scores: list[Score]) -> list[str]:
    """What was wrong, one line for each."""
    found = []
    for one in scores:
        if one.matters and one.culprits and one.first not in one.culprits:
            found.append(f"{one.name}: first {one.first}, culprits {one.culprits} {one.truth}")
        for name in one.accused:
            if name not in one.culprits:
                found.append(f"{one.name}: accused {name}, true {one.truth.get(name, 0.0):.2f}")
        for name in one.culprits:
            if one.truth.get(name, 1.0) >= 0.4 and name not in one.accused:
                found.append(
                    f"{one.name}: missed {name}, true {one.truth.get(name, 1.0):.2f}, "
                    f"told {one.told.get(name, 0.0):.2f}"
                )
        if one.engine_slow is not None and one.engine_slow != one.engine_accused:
            found.append(f"{one.name}: engine slow {one.engine_slow}, told {one.engine_accused}")
        worst = max(one.sure_errors, key=abs, default=0.0)
        if abs(worst) > 0.15:
            found.append(f"{one.name}: grade {one.grade}, error {worst:+.2f}, loss {one.loss:.3f}")
    return found


def _jobs(given: argparse.Namespace) -> Iterator[tuple[Callable[[Job], Score], list[Job]]]:
    """What to play, and how."""
    first, ways = given.from_seed, given.ways.split(",")
    seeds = range(first, first + given.seeds)
    kinds = given.kinds.split(",")
    yield generated, [(kind, seed, way) for way in ways for seed in seeds for kind in kinds]
    yield quiet_run, list(_in_turn(list(quiet.KINDS), first, given.null, [""]))
    yield guilty_run, list(_in_turn(list(guilty.KINDS), first, given.guilty, ways))


def _in_turn(kinds: list[str], first: int, count: int, ways: list[str]) -> Iterator[Job]:
    """Kinds one after the other, each with a seed of its own."""
    for way in ways:
        for number in range(count):
            yield kinds[number % len(kinds)], first + number, way


def main() -> None:
    """Run the scoring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, help="folder with scenarios/ and paired/")
    parser.add_argument("--seeds", type=int, default=2, help="generated scenarios of each kind")
    parser.add_argument("--null", type=int, default=0, help="runs without a culprit")
    parser.add_argument("--guilty", type=int, default=0, help="runs with one, of more kinds")
    parser.add_argument("--from-seed", type=int, default=1000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--ways", default="clean,jitter,prompts,ttft,total,untold,skew")
    parser.add_argument("--by-kind", action="store_true", help="one line for each kind as well")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    scores: list[Score] = []
    if given.shared:
        scores += [*recorded(given.shared), *paired(given.shared)]
    with multiprocessing.Pool(given.jobs) as pool:
        for play, jobs in _jobs(given):
            for number, one in enumerate(pool.imap(play, jobs), 1):
                print(f"{number} of {len(jobs)}: {one.name}", file=sys.stderr, flush=True)
                scores.append(one)
    print(table(scores))
    if given.by_kind:
        print(table([replace(one, group=one.name.split("-")[0]) for one in scores]))
    print("\n".join(mistakes(scores)))


if __name__ == "__main__":
    main()
