"""Everything about a window, part by part: each is computed when it is first asked for.

The parts, and what each costs on 1,500 requests and on a million (two cores):

    sight         percentiles, quality                               0.1 s      0.5 s
    finding       slow requests, tenants                             0.1 s      1.5 s
    quick         attribution by ledger and order of admission       0.5 s      3 s
    attribution   the same, checked by a replay                      2 s        6 s
    fixes         changes, each played                               2 s        5 s
    capacity      latency against load                               1 s        3 s
    the rest      less than a second each
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from tailscope.triage import blame, capacity, cohort, comparison, correlation, offline, recipes
from tailscope.triage.analysis import analyse, judged, sight
from tailscope.triage.cause import Explanation, explain
from tailscope.triage.company import company
from tailscope.triage.finding import Finding, Sight
from tailscope.triage.fixes import Fix, fixes
from tailscope.triage.gpusentence import suspicions
from tailscope.triage.hardware import Gpu
from tailscope.triage.ledger import Ledger, ledger
from tailscope.triage.lift import sizes
from tailscope.triage.outside import Outside, outside
from tailscope.triage.phrase import row
from tailscope.triage.reckoning import Reckoning, reckon
from tailscope.triage.retries import Retries, again, retries
from tailscope.triage.scope import Scope, measured
from tailscope.triage.sentence import headline, slowness
from tailscope.triage.slow import MIN_REQUESTS
from tailscope.triage.stages import Flags, rows
from tailscope.triage.statement import verdict
from tailscope.triage.step import Limits
from tailscope.triage.study import Study
from tailscope.triage.suspects import ranked
from tailscope.triage.trials import Case
from tailscope.triage.verdict import Attribution, Suspect, checked, judge
from tailscope.triage.work import Floats

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What to look at, and what is known beside the records.

    Attributes:
        scope: Window, filters and what slow means.
        offline: Tenants whose work is offline: it may take its time.
        objective: Seconds that p99 of the total time may have.
        changed_ns: When something was changed: costs are fitted anew from then on, and what came
            before is compared with what came after.
        force: Whether to compare windows of less than half an hour, too.
        limits: Known limits of engines, by server.
    """

    scope: Scope = field(default_factory=Scope)
    offline: frozenset[str] = frozenset()
    objective: float | None = None
    changed_ns: int | None = None
    force: bool = False
    limits: Mapping[str, Limits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graded:
    """A fix with the certainty of its prediction.

    Attributes:
        fix: The change and what it would have done.
        grade: ``A`` where the replay is within 5 % of the records, else ``B``.
        server: Engine that it was played on.
        config: Settings to copy, for the engine at hand and for gateways.
    """

    fix: Fix
    grade: str
    server: str
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Whose requests lost time while whose requests were worked on, all requests of an engine.

    Attributes:
        server: Engine.
        tenants: Names, T of them.
        seconds: Victims by workers, shape (T, T + 1); the last column is what nobody worked for.
    """

    server: str
    tenants: tuple[str, ...]
    seconds: Floats


@dataclass(frozen=True, slots=True)
class Offline:
    """What is said of offline work.

    Attributes:
        outliers: Offline requests that stand out among their own kind.
        relief: Share of the others' slow seconds that goes away without each offline tenant.
    """

    outliers: tuple[offline.Outlier, ...]
    relief: Mapping[str, float]


class Diagnosis:
    """A window of requests under examination; not safe to share between threads without a lock.

    Args:
        frame: Every request that may have run in the window, joined with the gateways' rows.
        options: What to look at.
        rejected: Lines of an input file that were left out, by reason.
        gpus: What the GPUs went through in the window.
        progress: Told what is done next, where that takes long.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        options: Options | None = None,
        *,
        rejected: Mapping[str, int] | None = None,
        gpus: Iterable[Gpu] = (),
        progress: Progress | None = None,
    ) -> None:
        self.options = options or Options()
        # What ran elsewhere is no load here.
        self.frame = rows(frame, self.options.scope.places(frame))
        self._rejected = rejected or {}
        self._gpus = tuple(gpus)
        self._say = progress or (lambda _: None)

    @cached_property
    def reckoning(self) -> Reckoning:
        """Costs and excess of every request."""
        scope = self.options.scope
        chosen = judged(self.frame, scope) & ~self._offline
        changed = self.options.changed_ns
        return reckon(self.frame, scope.slow, chosen, () if changed is None else (changed,))

    @property
    def _offline(self) -> Flags:
        return self.frame["tenant"].isin(list(self.options.offline)).to_numpy(dtype=np.bool_)

    @cached_property
    def sight(self) -> Sight:
        """Percentiles and data quality: all that needs no costs."""
        return sight(self.frame, self.options.scope, self._rejected)

    @cached_property
    def finding(self) -> Finding:
        """Percentiles, slow requests, tenants, data quality: nobody is named yet."""
        self._say(f"Fitting the costs of {len(self.frame):,} requests")
        scope, seen = self.options.scope, self.sight
        return analyse(self.frame, scope, seen, self.reckoning, self._gpus)

    @cached_property
    def quick(self) -> Attribution:
        """Who made them slow, by the ledger and the order of admission."""
        self._say(f"Sharing out the time of {int(self.reckoning.slow.sum()):,} slow requests")
        return judge(self.reckoning)

    @cached_property
    def attribution(self) -> Attribution:
        """The same, checked by a replay on calibrated engines."""
        return self.replay()

    def replay(self) -> Attribution:
        """Make that check, which nothing else sees before it is adopted.

        So that whoever shares a diagnosis need not lock the others out for the seconds it takes.
        """
        quick = self.quick
        if quick.studies:
            self._say("Calibrating a replay of the engine")
        return checked(quick, self.options.limits)

    def adopt(self, found: Attribution) -> None:
        """Take the outcome of ``replay`` for the attribution."""
        self.__dict__["attribution"] = found

    @property
    def checked(self) -> bool:
        """Whether the replay has been made."""
        return "attribution" in self.__dict__

    @property
    def best(self) -> Attribution:
        """The attribution that is known, without a replay that was not asked for."""
        return self.attribution if self.checked else self.quick

    @cached_property
    def outside(self) -> Outside | None:
        """What clients lost outside of the engine; None where their times are not known."""
        return outside(self.frame, self.reckoning.excess, judged(self.frame, self.options.scope))

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """Tenants, engines, GPUs and what lies outside, accused ones first."""
        return ranked(self.best, self.reckoning.origin_ns, self.finding.gpus, self.outside)

    @property
    def cause(self) -> Explanation | None:
        """The cause of the slow requests; None if none is slow."""
        return explain(self.best, self.suspects)

    @property
    def verdict(self) -> str:
        """Who made them slow, in words; empty where nothing is slow."""
        return verdict(self.best, self.cause, self.reckoning.origin_ns)

    @property
    def sentence(self) -> str:
        """Percentiles, slow requests and verdict as one paragraph."""
        found = self.finding
        return row([headline(found), *slowness(found), self.verdict, *suspicions(found.gpus)])

    @cached_property
    def tried(self) -> tuple[Graded, ...]:
        """Every change that was played, the best first; none without a replay to trust."""
        found = self.attribution
        if not found.studies:
            return ()
        one = found.studies[0]
        case = self._case(one)
        if case is None or one.fidelity is None:
            return ()
        self._say("Playing the load with each change")
        grade = "A" if one.fidelity.near else "B"
        engines = set(self.frame["engine"].dropna().unique())
        return tuple(
            Graded(fix, grade, one.work.server, recipes.at_hand(fix.config, engines))
            for fix in fixes(case, one.fidelity)
        )

    @property
    def fixes(self) -> tuple[Graded, ...]:
        """Changes that lower the victims' p99, the best first."""
        return tuple(one for one in self.tried if one.fix.helps)

    def _case(self, one: Study) -> Case | None:
        if one.engine is None:
            return None
        work = one.work.take(one.window)
        # An engine before and after a change is one of them.
        replicas = len(
            {
                part.work.server
                for part in self.attribution.costings
                if part.work.model == work.model
            }
        )
        repeated = again(self.frame)[work.rows]
        for suspect in self.attribution.suspects:
            number = work.tenants.index(suspect.name) if suspect.kind == "tenant" else -1
            if (work.tenant == number).any():
                return Case(work, one.engine, number, suspect.change, replicas, repeated)
        return Case(work, one.engine, replicas=replicas, repeated=repeated)

    def capacity(self, tenant: str | None = None) -> capacity.Capacity | None:
        """Latency against load, of the engine with the most slow seconds.

        Args:
            tenant: Only this tenant's load grows.

        Returns:
            None without a replay to trust.
        """
        if not self.attribution.studies:
            return None
        one = self.attribution.studies[0]
        if one.engine is None or one.fidelity is None:
            return None
        self._say("Playing the load at higher rates")
        work = one.work.take(one.window)
        number = None if tenant is None else work.tenants.index(tenant)
        return capacity.capacity(
            work, one.engine, one.fidelity, objective=self.options.objective, tenant=number
        )

    @cached_property
    def retries(self) -> Retries:
        """Repeated attempts, and work for clients who had left."""
        return retries(rows(self.frame, self.options.scope.mine(self.frame)))

    @cached_property
    def correlations(self) -> Mapping[str, correlation.Correlation]:
        """By tenant: how the others' excess goes with its load. A second opinion."""
        if not self.best.studies:
            return {}
        one = self.best.studies[0]
        work, excess = one.work, one.costing.excess
        size = sizes(work, one.costing.cost)
        slow = np.isin(np.arange(len(work)), one.slow)
        return {
            suspect.name: found
            for suspect in self.best.suspects
            if suspect.kind == "tenant"
            for number in [work.tenants.index(suspect.name)]
            if (found := correlation.correlation(work, excess, size, number, slow)) is not None
        }

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """Tenant by tenant, over all requests, one for each engine with slow requests.

        Of a handful of requests, such as those that name no server yet, it says nothing.
        """
        return tuple(
            Matrix(
                one.work.server,
                one.accounts.tenants,
                blame.matrix(one.work, one.costing.cost, one.costing.alone, one.accounts),
            )
            for one in self.best.studies
            if len(one.work) >= MIN_REQUESTS
        )

    @cached_property
    def associations(self) -> list[cohort.Association]:
        """What the slow requests have in common: a second opinion."""
        chosen = judged(self.frame, self.options.scope)
        part = rows(self.frame, chosen)
        load = company(self.reckoning.costings, len(self.frame))
        return cohort.associations(part, self.reckoning.slow[chosen], extra=load[chosen])

    @cached_property
    def offline(self) -> Offline | None:
        """Offline work by its own measure; None where no tenant is offline."""
        names = set(self.options.offline)
        if not names:
            return None
        studies = list(self.best.studies)
        relief = offline.relief(studies, names)
        shares = {
            name: gain.seconds / gain.excess for name, gain in relief.items() if gain.excess > 0
        }
        mine = self.options.scope.window(self.frame)
        return Offline(tuple(offline.outliers(self.frame, names, mine)), shares)

    @cached_property
    def comparison(self) -> comparison.Comparison | None:
        """Before and after the change; None where none is known."""
        at = self.options.changed_ns
        if at is None:
            return None
        scope = self.options.scope
        part = rows(self.frame, scope.window(self.frame) & measured(self.frame))
        late = part["arrived_ns"].to_numpy(dtype=np.int64) >= at
        return comparison.compare(
            part[~late], part[late], tenants=scope.tenants, force=self.options.force
        )

    def account(self, position: int) -> Ledger | None:
        """The ledger of one request: one row; None where its engine or its time is not known.

        Args:
            position: Of the request in ``frame``.
        """
        for one in self.best.studies:
            at = np.flatnonzero(one.work.rows == position)
            if len(at):
                cost, alone = one.costing.cost, one.costing.alone
                return ledger(one.work, cost, alone, one.accounts, one.residual, at)
        return None
