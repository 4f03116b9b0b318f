"""Scores the predicted effect of fixes against the engine that really runs with them.

``python -m tests.fixscore --seeds 4``: for generated scenarios with a culprit, each fix that the
simulated engine can have is made for real, and the change of the victims' p99 compared with what
was predicted from the records alone. A sign is right if both say better, both say worse, or both
lie within 2 % of no change.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tailscope.triage.fixes import play as predicted
from tailscope.triage.study import Study
from tailscope.triage.trials import Case, Trial, trials
from tailscope.triage.verdict import attribute
from tests.simulated.engine import Machine, Request, play
from tests.simulated.scenario import CULPRITS, random_machine, scenario

NOTHING = 0.02


@dataclass(frozen=True)
class Effect:
    """Change of the victims' p99 by one fix: negative is better."""

    name: str
    told: float
    true: float

    @property
    def right(self) -> bool:
        """Whether the sign was told."""
        if max(abs(self.told), abs(self.true)) <= NOTHING:
            return True
        return (self.told < 0) == (self.true < 0)


def effects(kind: str, seed: int) -> Iterator[Effect]:
    """Each fix of a scenario; none if its replay may not be trusted."""
    machine = random_machine(seed)
    made = scenario(kind, seed, span=120.0, machine=machine, removals=False)
    found = attribute(made.frame)
    if not found.studies or not found.suspects:
        return
    one = found.studies[0]
    first = next((s for s in found.suspects if s.kind == "tenant"), None)
    if one.engine is None or one.fidelity is None or not one.fidelity.passed or first is None:
        return
    case = Case(one.work, one.engine, one.work.tenants.index(first.name), first.change)
    before = _real(made.frame, one, machine, np.ones(len(one.work), dtype=bool))
    for trial in trials(case):
        changed = _changed(machine, trial)
        if changed is None:
            continue
        after = _real(made.frame, one, changed, trial.kept, trial)
        victims = ~trial.paying & trial.kept & ~case.suspected
        p99 = [float(np.quantile(seconds[victims], 0.99)) for seconds in (before, after)]
        yield Effect(trial.name, -predicted(case, trial).gain, p99[1] / p99[0] - 1.0)


def _changed(machine: Machine, trial: Trial) -> Machine | None:
    """The engine with the change; None if it cannot have it."""
    name = trial.name
    if name.startswith(("step_tokens", "longer_steps")):
        return replace(machine, budget=trial.limits.tokens)
    if name.startswith(("batch", "wider_batch")):
        return replace(machine, sequences=trial.limits.sequences)
    plain = ("separate", "output_cap", "input_cap", "cache_restored", "replica")
    return machine if name in plain else None


def _real(
    frame: pd.DataFrame,
    one: Study,
    machine: Machine,
    kept: np.ndarray,
    trial: Trial | None = None,
) -> np.ndarray:
    work = one.work
    requests = []
    for row in np.flatnonzero(kept).tolist():
        record = frame.iloc[int(work.rows[row])]
        cached, output = int(record["cached_tokens"]), int(record["output_tokens"])
        prompt = int(record["input_tokens"])
        if trial is not None:
            cached, output = trial.sent.cached[row], trial.sent.output[row]
            prompt = cached + trial.sent.computed[row]
        requests.append(Request(row, "t", float(work.arrived[row]), prompt, cached, output))
    fresh = copy.deepcopy(requests)
    play(fresh, machine, 1)
    seconds = np.full(len(work), np.nan)
    seconds[[r.number for r in fresh]] = [r.done - r.arrived for r in fresh]
    return seconds


def main() -> None:
    """Run the scoring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--from-seed", type=int, default=3000)
    parser.add_argument("--kinds", default=",".join(CULPRITS))
    given = parser.parse_args()
    found = [
        effect
        for seed in range(given.from_seed, given.from_seed + given.seeds)
        for kind in given.kinds.split(",")
        for effect in effects(kind, seed)
    ]
    names = sorted({one.name.rstrip("0123456789_") for one in found})
    for name in [*names, ""]:
        some = [one for one in found if one.name.startswith(name)]
        right = sum(one.right for one in some)
        errors = [abs(one.told - one.true) for one in some]
        print(
            f"{name or 'all':<16}{f'{right}/{len(some)}':>9}  median error {np.median(errors):.3f}"
        )
    for one in found:
        if not one.right:
            print(f"wrong: {one.name} told {one.told:+.2f}, true {one.true:+.2f}")


if __name__ == "__main__":
    main()
